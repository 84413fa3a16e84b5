"""Structures and models for the GPU tests and benchmarks of whole models."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src/python")]

from clebsch.neighbours import NeighbourFinder, completed_cell  # noqa: E402
from clebsch.runtime import Model  # noqa: E402

#: Model files that are not committed: random weights (benchmarks/models/make_models.py, make_mace_models.py).
FOLDER = Path(os.environ.get("CLEBSCH_GPU_MODELS", ROOT / ".gpu/models"))


#: Models that the exporter's back end makes where they are wanted (torch alone): script of tests/unit and its options.
MADE = {
    "allegro-l2": ("tiny_allegro.py", "tutorial=1"),
    "small-nequip": ("tiny_model.py", "parity=1", "lmax=2", "zbl=1"),
    "uniform-nequip": ("tiny_model.py", "uniform=1"),
    "small-mace": ("tiny_mace.py",),
    "uniform-mace": ("tiny_mace.py", "uniform=1"),
    "small-allegro": ("tiny_allegro.py",),
}


def model_path(name: str) -> Path:
    """Of a shipped model, of one in FOLDER, of one in MADE that is not there, or a file's own."""
    if name.endswith(".pt"):
        return Path(name)
    committed = ROOT / "models" / f"{name}.pt"
    path = committed if committed.exists() else FOLDER / f"{name}.pt"
    if name not in MADE or path.exists():
        return path
    made = Path(tempfile.gettempdir()) / f"clebsch-{os.getuid()}-{name}.pt"
    if not made.exists():
        script, *options = MADE[name]
        # Under a name of its own first: several processes may want it at once.
        own = made.with_suffix(f".{os.getpid()}")
        environment = os.environ | {"CLEBSCH_LIBRARY": str(made) + ".none"}  # the schemas alone
        command = [sys.executable, "-W", "ignore", ROOT / "tests/unit" / script, own, *options]
        subprocess.run(command, env=environment, check=True)
        own.replace(made)
    return made


class Structure:
    """Positions (A), cubic cell edge (A, 0: open) and types; graph(cutoff) gives what Model.compute wants."""

    def __init__(self, positions: np.ndarray, length: float, types: np.ndarray) -> None:
        self.positions, self.length = positions, length
        self.types = torch.as_tensor(np.asarray(types), dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.positions)

    def graph(self, cutoff: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        edges = NeighbourFinder(cutoff).find(self.positions, np.eye(3) * self.length, [self.length > 0] * 3)
        order = torch.argsort(edges.receivers, stable=True)
        return edges.vectors[order].contiguous(), self.types, edges.receivers[order], edges.senders[order]

    def pairs(self, reach: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Receivers, senders and shifts of all pairs within `reach`, for Model.set_neighbours."""
        box = completed_cell(np.eye(3) * self.length, [self.length > 0] * 3)
        pairs = NeighbourFinder(reach).find_pairs(self.positions, box, [self.length > 0] * 3, 0.0)
        return pairs.receivers, pairs.senders, pairs.shifts

    def points(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions and cell for Model.compute_positions."""
        cell = torch.eye(3, dtype=torch.float64) * (self.length or 1.0)
        return torch.from_numpy(np.ascontiguousarray(self.positions)), cell


def diamond(cells: int, seed: int = 0, rattle: float = 0.05) -> Structure:
    """8 cells^3 atoms of type 0."""
    base = np.array([[0, 0, 0], [0, 2, 2], [2, 0, 2], [2, 2, 0], [1, 1, 1], [1, 3, 3], [3, 1, 3], [3, 3, 1]]) / 4
    grid = np.array(list(itertools.product(range(cells), repeat=3)))
    positions = (grid[:, None] + base[None]).reshape(-1, 3) * 3.567
    positions += rattle * np.random.default_rng(seed).standard_normal(positions.shape)
    return Structure(positions, cells * 3.567, np.zeros(len(positions)))


def water(side: int, seed: int = 0) -> Structure:
    """side^3 molecules (O, H, H of types 0, 1, 1) at the density of the liquid, turned at random."""
    random = np.random.default_rng(seed)
    spacing = 3.104
    centres = np.array(list(itertools.product(range(side), repeat=3))) * spacing
    centres = centres + 0.1 * random.standard_normal(centres.shape)
    shape = np.array([[0, 0, 0], [0.757, 0.586, 0], [-0.757, 0.586, 0]])
    turns = np.linalg.qr(random.standard_normal((len(centres), 3, 3)))[0]
    positions = (centres[:, None] + shape[None] @ turns).reshape(-1, 3)
    return Structure(positions, side * spacing, np.tile([0, 1, 1], len(centres)))


def gas(atoms: int, seed: int = 0) -> Structure:
    """A few atoms in a large open box; of none and of one too."""
    random = np.random.default_rng(seed)
    return Structure(random.uniform(0, 1.5 * max(atoms, 1) ** (1 / 3), (atoms, 3)), 0.0, random.integers(0, 2, atoms))


def lacks(reason: str) -> None:
    """Skips the test for want of what the reason names; with CLEBSCH_REQUIRE_GPU=1 it fails."""
    import pytest

    (pytest.fail if os.environ.get("CLEBSCH_REQUIRE_GPU", "") not in ("", "0") else pytest.skip)(reason)


def needs(name: str) -> str:
    """The name, where its model file is there; elsewhere the test is over as by lacks()."""
    path = model_path(name)
    if not path.exists():
        lacks(f"no model file {path.name} in CLEBSCH_GPU_MODELS: `benchmarks/run models` makes it")
    return name


def load(name: str, device: str, dtype: str, **options: object) -> Model:
    return Model(model_path(name), device=device, dtype=dtype, **options)


def evaluate(model: Model, structure: Structure, **wanted: bool) -> dict[str, torch.Tensor]:
    return model.compute(*structure.graph(model.r_max), **wanted)


def rms(x: torch.Tensor) -> float:
    return float(x.double().square().mean().sqrt()) if x.numel() else 0.0


def difference(got: dict, expected: dict, keys=("forces", "virial", "atom_virial", "centroid_virial")):
    """Energy error per atom against max(|E|/N, 1 eV), and relative RMS of the rest."""
    n = max(len(expected["atomic_energy"]), 1)
    energy, reference = float(got["energy"]), float(expected["energy"])
    errors = {"energy": abs(energy - reference) / n / max(abs(reference) / n, 1.0)}
    for key in keys:
        if key in expected:
            scale = max(rms(expected[key]), 1e-6)
            errors[key] = rms(got[key] - expected[key]) / scale
    return errors


def largest(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
    """The larger of both for every name of b. What is not a number is larger than any."""
    before = {key: a.get(key, 0.0) for key in b}
    return {key: v if v != v or v > before[key] else before[key] for key, v in b.items()}


def limits(errors: dict[str, float], tolerance: float) -> dict[str, float]:
    """What each error may be: virials are sums with cancellation, ten times looser."""
    return {key: tolerance * (10 if "virial" in key else 1) for key in errors}


def save(path: Path, records: list[dict[str, object]]) -> None:
    path.write_text(json.dumps(records, indent=1) + "\n")


def tiled(cell: Structure, graph: tuple, copies: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The graph of copies^3 cells side by side. The cell must be longer than the cutoff."""
    vectors, types, receivers, senders = graph
    positions = torch.as_tensor(cell.positions)
    shifts = ((vectors - positions[senders] + positions[receivers]) / cell.length).round().long()
    atoms, edges = len(cell), len(vectors)
    blocks = torch.cartesian_prod(*[torch.arange(copies)] * 3)
    weight = torch.tensor([copies * copies, copies, 1])
    all_senders = torch.empty(len(blocks), edges, dtype=senders.dtype)
    for k, block in enumerate(blocks):
        other = (((block + shifts) % copies) * weight).sum(1)
        all_senders[k] = other * atoms + senders
    offsets = torch.arange(len(blocks), dtype=receivers.dtype)[:, None] * atoms
    return (
        vectors.repeat(len(blocks), 1),
        types.repeat(len(blocks)),
        (offsets + receivers).reshape(-1),
        all_senders.reshape(-1),
    )
