"""Rattled structures of the parity tests: several species, all kinds of boundaries, forces well above 0.1 eV/A."""

from __future__ import annotations

import numpy as np
from ase import Atoms


def _rattled(symbols: list[str], atoms: Atoms, seed: int, amplitude: float = 0.25) -> Atoms:
    rng = np.random.default_rng(seed)
    atoms.set_chemical_symbols([symbols[i] for i in rng.integers(0, len(symbols), len(atoms))])
    atoms.positions += rng.normal(0.0, amplitude, atoms.positions.shape)
    return atoms


def periodic(symbols: list[str], seed: int = 0, repeat: int = 3) -> Atoms:
    a = 2.0
    grid = np.stack(np.meshgrid(*[np.arange(repeat)] * 3, indexing="ij"), -1).reshape(-1, 3)
    return _rattled(symbols, Atoms(f"H{len(grid)}", positions=a * grid, cell=[a * repeat] * 3, pbc=True), seed)


def triclinic(symbols: list[str], seed: int = 1) -> Atoms:
    atoms = periodic(symbols, seed, 2)
    atoms.set_cell([[4.1, 0.0, 0.0], [1.7, 3.9, 0.0], [-1.1, 0.9, 4.3]], scale_atoms=True)
    return atoms


def open_cluster(symbols: list[str], seed: int = 2) -> Atoms:
    atoms = periodic(symbols, seed)
    return Atoms(atoms.get_chemical_symbols(), positions=atoms.positions)


def slab(symbols: list[str], seed: int = 3) -> Atoms:
    atoms = periodic(symbols, seed, 2)
    atoms.pbc = (True, True, False)
    return atoms


def wire(symbols: list[str], seed: int = 4) -> Atoms:
    """Periodic along one direction, no cell vectors along the others."""
    atoms = periodic(symbols, seed, 2)
    return Atoms(atoms.get_chemical_symbols(), positions=atoms.positions, cell=[0, 4.0, 0], pbc=(False, True, False))


def tiny_cell(symbols: list[str], seed: int = 5) -> Atoms:
    """Two atoms in a cell far smaller than the cutoff: every atom neighbours its own images."""
    rng = np.random.default_rng(seed)
    cell = np.array([[2.1, 0.1, 0.0], [0.4, 2.3, -0.2], [0.1, 0.3, 1.9]])
    names = [symbols[0], symbols[-1]]
    return Atoms(names, scaled_positions=[[0, 0, 0], 0.5 + rng.normal(0, 0.06, 3)], cell=cell, pbc=True)


def one_atom(symbols: list[str]) -> Atoms:
    return Atoms([symbols[0]], positions=[[0.1, 0.2, 0.3]])


def one_atom_cell(symbols: list[str]) -> Atoms:
    return Atoms([symbols[0]], cell=[[2.2, 0, 0], [0.5, 2.4, 0], [0.1, 0.3, 2.0]], pbc=True)


ALL = {f.__name__: f for f in (periodic, triclinic, open_cluster, slab, wire, tiny_cell, one_atom, one_atom_cell)}
