"""What is run: models, base cells that are repeated to the wanted size, and where model files are."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
#: Model files that are not committed: random weights (make_models.py here).
FOLDER = Path(os.environ.get("CLEBSCH_GPU_MODELS", ROOT / ".gpu/models"))
MASSES = {"O": 15.9994, "H": 1.008, "C": 12.011}
#: eV/A per amu in A/fs^2.
ACCELERATION = 9.6485332e-3


@dataclass(frozen=True)
class Case:
    """A model on a base cell. `names` are the model's types for the cell's types in order."""

    name: str
    model: str
    names: str
    base: str
    timestep: float | None  # fs; None: small enough for random weights, from the forces at the start
    peers: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        committed = ROOT / "models" / f"{self.model}.pt"
        return committed if committed.exists() else FOLDER / f"{self.model}.pt"


def _allegro() -> Case:
    """The trained model, or one of random weights for C and O where there is none."""
    trained = Case("allegro", "water-allegro", "O H", "water", 0.5)
    return trained if trained.path.exists() else Case("allegro", "allegro-l2", "O C", "water", None)


CASES = {
    case.name: case
    for case in (
        Case("water", "water-nequip", "O H", "water", 0.5),
        Case("carbon", "carbon-mace", "C", "diamond", 1.0),
        Case("mace-M", "mace-M", "C", "diamond", None, ("mace", "mace-cueq")),
        Case("nequip-M", "nequip-M", "C", "diamond", None, ("nequip",)),
        _allegro(),
        Case("nequip-M-water", "nequip-M", "O C", "water", None),
    )
}


@dataclass(frozen=True)
class Base:
    """A cubic cell: edge (A), positions (N, 3) in A, types (N,) counting from 1, elements of the types."""

    length: float
    positions: np.ndarray
    types: np.ndarray
    elements: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.types)

    @property
    def masses(self) -> np.ndarray:
        return np.array([MASSES[self.elements[k - 1]] for k in self.types])

    def data(self) -> str:
        """The text of a LAMMPS data file."""
        head = [f"base cell\n\n{len(self)} atoms\n{len(self.elements)} atom types\n"]
        head += [f"0.0 {self.length!r} {axis}lo {axis}hi" for axis in "xyz"]
        masses = [f"{number} {MASSES[name]}" for number, name in enumerate(self.elements, 1)]
        atoms = [
            f"{number} {kind} {x:.8f} {y:.8f} {z:.8f}"
            for number, (kind, (x, y, z)) in enumerate(zip(self.types, self.positions, strict=True), 1)
        ]
        return "\n".join([*head, "\nMasses\n", *masses, "\nAtoms # atomic\n", *atoms, ""])


def diamond() -> Base:
    """64 atoms, displaced by 0.05 A."""
    basis = np.array([[0, 0, 0], [0, 2, 2], [2, 0, 2], [2, 2, 0], [1, 1, 1], [1, 3, 3], [3, 1, 3], [3, 3, 1]]) / 4
    cells = np.array(list(itertools.product(range(2), repeat=3)))
    positions = (cells[:, None] + basis[None]).reshape(-1, 3) * 3.567
    positions = positions + 0.05 * np.random.default_rng(0).standard_normal(positions.shape)
    return Base(2 * 3.567, positions, np.ones(len(positions), dtype=int), ("C",))


def water() -> Base:
    """64 molecules at 300 K (water192.data)."""
    lines = (Path(__file__).parent / "water192.data").read_text().splitlines()
    length = next(float(line.split()[1]) for line in lines if line.endswith("xlo xhi"))
    start = next(k for k, line in enumerate(lines) if line.startswith("Atoms")) + 2
    rows = np.array(sorted([float(w) for w in line.split()[:5]] for line in lines[start:] if line.strip()))
    return Base(length, rows[:, 2:5], rows[:, 1].astype(int), ("O", "H"))


BASES = {"diamond": diamond, "water": water}


def replication(base: int, atoms: int) -> tuple[int, int, int]:
    """Copies along each edge for at least `atoms` atoms, as few as a nearly cubic box allows."""
    wanted = -(-atoms // base)
    edge = max(1, round(wanted ** (1 / 3)))
    near = range(max(1, edge - 2), edge + 4)
    fitting = [
        t for t in itertools.combinations_with_replacement(near, 3) if np.prod(t) >= wanted and t[2] <= 1.5 * t[0] + 1
    ]
    return min(fitting, key=lambda t: (int(np.prod(t)), t[2] - t[0]))


def timestep(case: Case, base: Base, forces: np.ndarray, steps: int) -> float:
    """fs. With random weights: what keeps an atom within 0.3 A during the run at the largest acceleration."""
    if case.timestep is not None:
        return case.timestep
    acceleration = ACCELERATION * float((np.linalg.norm(forces, axis=1) / base.masses).max())
    return float(np.clip(np.sqrt(0.6 / max(acceleration, 1e-12)) / max(steps, 1), 1e-4, 0.5))
