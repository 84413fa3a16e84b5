"""Small random models with a grade of extrapolation, and the structures of their training set."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from ase import Atoms

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "unit"), str(Path(__file__).resolve().parent)]

import tiny_allegro  # noqa: E402
import tiny_mace  # noqa: E402
import tiny_model  # noqa: E402

from clebsch.export import backend  # noqa: E402
from clebsch.export.extrapolation import Extrapolation, graded  # noqa: E402


def structures(count: int, seed: int = 0, symbols: str = "OH", atoms: int = 12, side: float = 5.0) -> list[Atoms]:
    """Random atoms in periodic boxes, the closest pairs no closer than 0.9 Angstrom."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        places: list[np.ndarray] = []
        while len(places) < atoms:
            trial = rng.random(3) * side
            gaps = np.array(places).reshape(-1, 3) - trial
            gaps -= side * np.round(gaps / side)
            if len(places) == 0 or np.linalg.norm(gaps, axis=1).min() > 0.9:
                places.append(trial)
        names = [symbols[k % len(symbols)] for k in range(atoms)]
        result.append(Atoms(names, positions=places, cell=[side] * 3, pbc=True))
    return result


def describe(family: str):
    if family == "allegro":
        return tiny_allegro.describe(dtype="float64")
    return tiny_mace.describe() if family == "mace" else tiny_model.describe(dtype="float64", layers=2, lmax=1)


def write_graded(path: Path, family: str = "nequip", dtype: str = "float64", training=None, **options) -> Path:
    training = structures(20) if training is None else training
    backend.write(graded(describe(family), dtype, Extrapolation(training, **options)), path, dtype)
    return path


if __name__ == "__main__":
    write_graded(Path(sys.argv[1]), *sys.argv[2:])
