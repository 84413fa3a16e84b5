"""Carbon structures for training and tests: crystals, defects, random packings, clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ase import Atoms
from ase.build import bulk, surface

A_DIAMOND = 3.567  # A
A_GRAPHITE, C_GRAPHITE = 2.459, 3.35  # A: in the sheet, between sheets
MASS = 12.011  # amu
GRAM = 0.602214076  # amu / A^3 in 1 g / cm^3
VACUUM = 20.0  # A: further than any cutoff


def graphite(stacking: str, size: tuple[int, int, int]) -> Atoms:
    """Graphite in a hexagonal cell with two sheets, `ab` (every second atom over a hexagon) or `aa`; `a` for one
    sheet in vacuum."""
    a, c = A_GRAPHITE, C_GRAPHITE
    cell = [[a, 0, 0], [-a / 2, a * np.sqrt(3) / 2, 0], [0, 0, 2 * c]]
    sheet = np.array([[0.0, 0.0, 0.0], [1 / 3, 2 / 3, 0.0]])
    if stacking == "a":
        cell[2][2] = VACUUM
        return Atoms("C2", scaled_positions=sheet, cell=cell, pbc=True).repeat((size[0], size[1], 1))
    shift = np.array([1 / 3, 2 / 3, 0.5]) if stacking == "ab" else np.array([0.0, 0.0, 0.5])
    return Atoms("C4", scaled_positions=np.vstack([sheet, sheet + shift]), cell=cell, pbc=True).repeat(size)


def lonsdaleite(size: tuple[int, int, int]) -> Atoms:
    """Hexagonal diamond with diamond's bond length."""
    bond = A_DIAMOND * np.sqrt(3) / 4
    a, c = bond * np.sqrt(8 / 3), bond * 8 / 3
    cell = [[a, 0, 0], [-a / 2, a * np.sqrt(3) / 2, 0], [0, 0, c]]
    u = 3 / 8
    sites = [[1 / 3, 2 / 3, 0.0], [1 / 3, 2 / 3, u], [2 / 3, 1 / 3, 0.5], [2 / 3, 1 / 3, 0.5 + u]]
    return Atoms("C4", scaled_positions=sites, cell=cell, pbc=True).repeat(size)


def crystal(name: str, small: bool) -> Atoms:
    """diamond, lonsdaleite, graphene, graphite-ab or graphite-aa: 8 to 16 atoms (small) or 64 to 72."""
    if name == "diamond":
        return bulk("C", "diamond", A_DIAMOND, cubic=True) * ((1, 1, 1) if small else (2, 2, 2))
    if name == "lonsdaleite":
        return lonsdaleite((2, 2, 1) if small else (4, 2, 2))
    if name == "graphene":
        return graphite("a", (2, 2, 1) if small else (6, 6, 1))
    return graphite(name.removeprefix("graphite-"), (2, 2, 1) if small else (4, 4, 1))


def strained(atoms: Atoms, rng: np.random.Generator, largest: float) -> Atoms:
    """The same with a random symmetric strain, every component at most `largest` in size."""
    strain = rng.uniform(-largest, largest, (3, 3))
    out = atoms.copy()
    out.set_cell(atoms.cell.array @ (np.eye(3) + (strain + strain.T) / 2), scale_atoms=True)
    return out


def nearest(atoms: Atoms, index: int) -> int:
    """The nearest other atom."""
    others = [k for k in range(len(atoms)) if k != index]
    return others[int(np.argmin(atoms.get_distances(index, others, mic=True)))]


def vacancy(atoms: Atoms, rng: np.random.Generator) -> Atoms:
    """One atom less."""
    out = atoms.copy()
    del out[int(rng.integers(len(out)))]
    return out


def divacancy(atoms: Atoms, rng: np.random.Generator) -> Atoms:
    """Two neighbours less."""
    out = atoms.copy()
    first = int(rng.integers(len(out)))
    del out[[first, nearest(out, first)]]
    return out


def interstitial(atoms: Atoms, rng: np.random.Generator) -> Atoms:
    """One atom more, at a random place at least 1.15 A from every other."""
    out = atoms.copy()
    for _ in range(1000):
        trial = out + Atoms("C", positions=[rng.uniform(size=3) @ out.cell.array])
        if trial.get_distances(-1, range(len(out)), mic=True).min() > 1.15:
            return trial
    return out


def turned(atoms: Atoms, rng: np.random.Generator) -> Atoms:
    """One bond turned by a right angle about its middle: Stone and Wales's defect in a sheet."""
    out = atoms.copy()
    first = int(rng.integers(len(out)))
    second = nearest(out, first)
    bond = out.get_distance(first, second, mic=True, vector=True)
    middle = out.positions[first] + bond / 2
    axis = np.array([0.0, 0.0, 1.0])
    if np.linalg.norm(np.cross(axis, bond)) < 0.1 * np.linalg.norm(bond):
        axis = np.array([1.0, 0.0, 0.0])
    turn = np.cross(axis, bond)
    turn *= np.linalg.norm(bond) / np.linalg.norm(turn) / 2
    out.positions[first], out.positions[second] = middle - turn, middle + turn
    return out


def frenkel(atoms: Atoms, rng: np.random.Generator) -> Atoms:
    """One atom taken from its site to a random place at least 1.15 A from every other."""
    trial = interstitial(vacancy(atoms, rng), rng)
    return trial if len(trial) == len(atoms) else atoms.copy()


defects: dict[str, Callable[[Atoms, np.random.Generator], Atoms]] = {
    "vacancy": vacancy,
    "divacancy": divacancy,
    "interstitial": interstitial,
    "turned": turned,
    "frenkel": frenkel,
}


def pulled(atoms: Atoms, rng: np.random.Generator, share: float) -> Atoms:
    """One atom `share` of the way from its site to a random place at least 1.3 A from every other: between the perfect
    crystal and a vacancy with an interstitial, so that forces along the way carry the energy of the defect."""
    out = atoms.copy()
    chosen = int(rng.integers(len(out)))
    others = [k for k in range(len(out)) if k != chosen]
    for _ in range(1000):
        way = rng.normal(size=3)
        way *= rng.uniform(1.5, 3.0) / np.linalg.norm(way)
        trial = atoms.copy()
        trial.positions[chosen] += way
        if trial.get_distances(chosen, others, mic=True).min() > 1.3:
            out.positions[chosen] += share * way
            return out
    return out


def cleaved(face: tuple[int, int, int], cut: float, gap: float) -> Atoms:
    """24 atoms of diamond cut along the plane `face` at `cut` (0 to 1) of their height, the sides `gap` (A) further
    apart than in the crystal; periodic."""
    atoms = surface(bulk("C", "diamond", A_DIAMOND, cubic=True), face, 3, periodic=True)
    atoms.positions += cut * atoms.cell.array[2]
    atoms.wrap()
    cell = atoms.cell.array.copy()
    normal = np.cross(cell[0], cell[1])
    cell[2] += gap * normal / np.linalg.norm(normal)
    atoms.set_cell(cell)
    return atoms


def amorphous_start(rng: np.random.Generator, count: int, density: float) -> Atoms:
    """`count` atoms at random in a cube of `density` (g/cm^3), no two closer than 1.2 A."""
    edge = (count * MASS / (density * GRAM)) ** (1 / 3)
    positions: list[np.ndarray] = []
    while len(positions) < count:
        trial = rng.uniform(0.0, edge, 3)
        apart = np.array(positions).reshape(-1, 3) - trial
        apart -= edge * np.round(apart / edge)
        if not positions or np.linalg.norm(apart, axis=1).min() > 1.2:
            positions.append(trial)
    return Atoms(f"C{count}", positions=positions, cell=[edge] * 3, pbc=True)


def cluster(rng: np.random.Generator) -> Atoms:
    """Two to five atoms, each 0.9 to 5.5 A from the nearest earlier one."""
    positions = [np.zeros(3)]
    for _ in range(int(rng.integers(1, 5))):
        while True:
            way = rng.normal(size=3)
            start = positions[int(rng.integers(len(positions)))]
            trial = start + (0.9 + 4.6 * rng.uniform() ** 1.5) * way / np.linalg.norm(way)
            if np.linalg.norm(np.array(positions) - trial, axis=1).min() > 0.9:
                break
        positions.append(trial)
    return Atoms(f"C{len(positions)}", positions=np.array(positions) + VACUUM / 2, cell=[VACUUM] * 3, pbc=True)
