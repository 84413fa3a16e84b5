"""Atoms of the rows of option_rows.py."""

from __future__ import annotations

import numpy as np
from lammps_runs import System, random_system


def with_argon() -> System:
    """A third type that is not the model's."""
    system = random_system(atoms=48, spacing=1.4, seed=11, type_names=("O", "H", "Ar"))
    system.types[::5] = 3
    return system


def corner() -> System:
    """All atoms in one corner of a long box: other ranks own none."""
    system = random_system(atoms=24, lengths=(7.0, 7.0, 7.0), spacing=1.4, boundary="f p p", seed=3)
    system.cell[0, 0] = 40.0
    system.positions[:, 0] = 0.5 + 0.8 * system.positions[:, 0]
    return system


def wide(**rest) -> System:
    return random_system(**{"atoms": 70, "lengths": (18.0, 9.0, 9.0), "spacing": 1.4, "seed": 8, **rest})


def bonds(system: System, reach: float = 1.9) -> list[tuple[int, int]]:
    """Ids of close pairs, each atom in one at most."""
    delta = system.positions[:, None] - system.positions
    delta -= np.round(delta / np.diag(system.cell)) * np.diag(system.cell)
    free, found = set(range(len(delta))), []
    for i, j in np.argwhere(np.linalg.norm(delta, axis=2) < reach):
        if i < j and {i, j} <= free:
            found.append((int(i) + 1, int(j) + 1))
            free -= {i, j}
    return found
