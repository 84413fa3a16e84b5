"""What the benchmarks of ASE and of batches share: structures, models, times, peers through ASE."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ase import Atoms, units
from ase.calculators.calculator import Calculator, all_changes
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from ase.md.verlet import VelocityVerlet

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402
from model_cases import Structure, diamond, model_path  # noqa: E402

from clebsch.neighbours import NeighbourFinder  # noqa: E402

#: Relative RMS error of forces, against float64, beyond which nothing is timed.
LIMIT = {"float32": 1e-4, "float64": 1e-9}


def atoms_of(structure: Structure, numbers: list[int]) -> Atoms:
    """The structure with the elements of its types."""
    chosen = np.asarray(numbers)[structure.types.numpy()]
    return Atoms(numbers=chosen, positions=structure.positions, cell=[structure.length] * 3, pbc=True)


def many(count: int, cells: int, seed: int = 0) -> list[Atoms]:
    """Rattled diamond of 8 cells^3 atoms, each with a strained cell of its own."""
    random = np.random.default_rng(seed)
    made = []
    for k in range(count):
        atoms = atoms_of(diamond(cells, seed=k), [6])
        strain = np.eye(3) + 0.02 * random.uniform(-1, 1, (3, 3))
        atoms.set_cell(atoms.cell.array @ (strain + strain.T) / 2, scale_atoms=True)
        made.append(atoms)
    return made


def error_of(forces: np.ndarray, exact: np.ndarray) -> float:
    """RMS(dF)/RMS(F)."""
    return float(np.sqrt(np.mean((forces - exact) ** 2) / np.mean(exact**2)))


def spread_of(values: list[float]) -> tuple[float, float]:
    """The median and the middle half."""
    cuts = statistics.quantiles(values, n=4)
    return statistics.median(values), cuts[2] - cuts[0]


def mace_m(folder: Path) -> tuple[Path, object]:
    """The file of the random model MACE-M and mace-torch's own; without mace-torch, a file made before and None."""
    try:
        import mace  # noqa: F401 - before e3nn
        from bench_mace import model_of

        from clebsch import export
    except ImportError as error:
        print(f"MACE-M: from {model_path('mace-M')}, without peers ({error})", flush=True)
        return model_path("mace-M"), None
    model, path = model_of("mace-M"), folder / "mace-M.pt"
    export.mace(model, path, verify=False)
    return path, model


class Dynamics:
    """Velocity Verlet at 300 K. A calculator can be timed in blocks of steps, whose atoms move on."""

    def __init__(self, atoms: Atoms, calculator: object, femtoseconds: float = 1.0) -> None:
        self.atoms = atoms.copy()
        self.atoms.calc = calculator
        MaxwellBoltzmannDistribution(self.atoms, temperature_K=300, rng=np.random.default_rng(0))
        self._run = VelocityVerlet(self.atoms, timestep=femtoseconds * units.fs, logfile=None)

    def block(self, steps: int) -> float:
        """Milliseconds a step."""
        begin = time.perf_counter()
        self._run.run(steps)
        return 1e3 * (time.perf_counter() - begin) / steps


def dynamics(
    atoms: Atoms, calculator: object, steps: int, repeats: int, check: Callable[[Atoms], None], warm: int = 12
) -> tuple[float, float, Dynamics]:
    """Milliseconds a step, spread; `check` is given the atoms before the first timed step and after the last."""
    run = Dynamics(atoms, calculator)
    run.block(warm)
    check(run.atoms)
    times = [run.block(steps) for _ in range(repeats)]
    check(run.atoms)
    return *spread_of(times), run


class Mace(Calculator):
    """mace-torch's model of carbon, or an accelerated form of it, as a calculator; for many structures too.

    Lists come from vesin in each call, faster than mace-torch's own, which needs packages that are not everywhere.
    """

    implemented_properties = ["energy", "forces", "stress"]  # noqa: RUF012

    def __init__(self, model: torch.nn.Module, device: str) -> None:
        super().__init__()
        self._model, self._device, self._dtype = model, device, next(model.parameters()).dtype
        self._finder = NeighbourFinder(6.0)

    def forces_of(self, structures: list[Atoms]) -> np.ndarray:
        """Forces of all, energies and stresses computed with them."""
        found, first = [], 0
        for atoms in structures:
            pairs = self._finder.find_pairs(atoms.positions, atoms.cell.array, atoms.pbc, 0.0)
            found.append((pairs.receivers + first, pairs.senders + first, pairs.shifts, atoms.cell.array))
            first += len(atoms)
        starts = np.cumsum([0, *map(len, structures)])
        shifts = torch.cat([pairs[2] for pairs in found]).double()
        vectors = torch.cat([pairs[2].double() @ torch.from_numpy(pairs[3]) for pairs in found])
        data = {
            # (sender, receiver), images on the receiver's side
            "edge_index": torch.stack([torch.cat([pairs[1] for pairs in found]), torch.cat([p[0] for p in found])]),
            "shifts": -vectors.to(self._dtype),
            "unit_shifts": -shifts.to(self._dtype),
            "positions": torch.from_numpy(np.concatenate([atoms.positions for atoms in structures])).to(self._dtype),
            "cell": torch.from_numpy(np.concatenate([pairs[3] for pairs in found])).to(self._dtype),
            "node_attrs": torch.ones(first, 1, dtype=self._dtype),
            "batch": torch.repeat_interleave(torch.arange(len(structures)), torch.from_numpy(np.diff(starts))),
            "ptr": torch.from_numpy(starts),
            "head": torch.zeros(len(structures), dtype=torch.int64),
            "pbc": torch.ones(len(structures), 3, dtype=torch.bool),
            "weight": torch.ones(len(structures), dtype=self._dtype),
        }
        data = {key: value.to(self._device) for key, value in data.items()}
        data["positions"].requires_grad_(True)
        before = torch.get_default_dtype()
        torch.set_default_dtype(self._dtype)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = self._model(data, training=False, compute_force=True, compute_stress=True)
        finally:
            torch.set_default_dtype(before)
        return out["forces"].detach().cpu().double().numpy()

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes) -> None:
        super().calculate(atoms, properties, system_changes)
        self.results = {"energy": 0.0, "forces": self.forces_of([self.atoms])}


def old_release(given: str | None) -> tuple[dict[str, str], Path] | None:
    """Environment of another release and its folder, a checkout with a build or one with lib and python; None without
    one."""
    for folder in filter(None, [given, os.environ.get("CLEBSCH_OLD"), common.ROOT / ".gpu/old"]):
        folder = Path(folder)
        libraries = [folder / "lib/libclebsch.so", folder / "build/lib/libclebsch.so"]
        packages = [folder / "python", folder / "src/python"]
        library = next((path for path in libraries if path.is_file()), None)
        package = next((path for path in packages if (path / "clebsch/ase.py").is_file()), None)
        if library and package:
            cache = str(Path(tempfile.gettempdir()) / f"clebsch-old-kernels-{os.getuid()}")
            environment = os.environ | {
                "CLEBSCH_LIBRARY": str(library.resolve()),
                "CLEBSCH_CACHE_DIR": cache,
                "PYTHONPATH": os.pathsep.join(filter(None, [str(package.resolve()), os.environ.get("PYTHONPATH")])),
            }
            return environment, folder
    return None
