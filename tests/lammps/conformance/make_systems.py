"""Writes the data files of the tests, data.*: make_systems.py. The same files every time."""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lammps_runs import System, random_system  # noqa: E402


def with_argon(system: System, atoms: int, spacing: float) -> System:
    """The system with further atoms of a third type, at least `spacing` from every atom."""
    rng = np.random.default_rng(9)
    positions = system.positions
    while len(positions) < len(system.types) + atoms:
        trial = rng.random(3) @ system.cell
        away = (positions - trial) @ np.linalg.inv(system.cell)
        away -= np.round(away)
        if np.linalg.norm(away @ system.cell, axis=1).min() > spacing:
            positions = np.vstack([positions, trial])
    types = np.concatenate([system.types, np.full(atoms, 3)])
    return System(system.cell, positions, types, type_names=("O", "H", "Ar"))


def main() -> None:
    small = dict(atoms=24, lengths=(6.2, 5.8, 6.6), spacing=1.35)
    random_system(**small, seed=3).write(HERE / "data.water")
    random_system(**small, tilt=(1.4, -1.1, 0.9), seed=4).write(HERE / "data.tilted")
    wide = random_system(atoms=24, lengths=(8.1, 7.9, 8.4), spacing=1.35, seed=5)
    with_argon(wide, 3, 2.5).write(HERE / "data.mixture")


if __name__ == "__main__":
    main()
