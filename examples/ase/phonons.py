"""Phonon dispersion and density of states of diamond through the ASE calculator, by finite displacements.

usage: phonons.py [MODEL] [PICTURE]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display needed

import matplotlib.pyplot as plt
import numpy as np
from ase import Atoms, units
from ase.build import bulk
from elastic_constants import ROOT, relaxed_lattice

#: Frequency (THz) of an eigenvalue of 1 eV / (A^2 amu).
THZ = np.sqrt(units._e / (1e-20 * units._amu)) / (2e12 * np.pi)
PATH = "GXWKGL"


@dataclass
class Phonons:
    """Harmonic crystal: force constants between the atoms of one cell and those of a supercell."""

    cell: Atoms
    constants: np.ndarray  # (M, 3, 3), eV/A^2, an entry for each pair and, where several are nearest, each image
    vectors: np.ndarray  # (M, 3), A
    pairs: np.ndarray  # (M, 2), atoms of the cell

    def frequencies(self, q: np.ndarray) -> np.ndarray:
        """THz (Q, 3n), ascending, at wave vectors q (Q, 3) in 1/A (with 2 pi); imaginary ones are negative."""
        q, n, mass = np.atleast_2d(q), len(self.cell), self.cell.get_masses()
        matrix = np.zeros((len(q), n, 3, n, 3), complex)
        for i, j in product(range(n), repeat=2):
            some = (self.pairs == (i, j)).all(1)
            phase = np.exp(1j * q @ self.vectors[some].T)
            block = phase @ self.constants[some].reshape(-1, 9) / np.sqrt(mass[i] * mass[j])
            matrix[:, i, :, j] = block.reshape(-1, 3, 3)
        matrix = matrix.reshape(len(q), 3 * n, 3 * n)
        values = np.linalg.eigvalsh((matrix + matrix.conj().transpose(0, 2, 1)) / 2)
        return np.sign(values) * np.sqrt(np.abs(values)) * THZ

    def density(self, bins: np.ndarray, mesh: int = 20) -> np.ndarray:
        """Density of states (1/THz, its integral is 1) over bins of frequency (THz)."""
        fractions = (np.array(list(product(range(mesh), repeat=3))) + 0.5) / mesh
        values = self.frequencies(2 * np.pi * fractions @ self.cell.cell.reciprocal().array)
        return np.histogram(values, bins, density=True)[0]


def phonons(cell: Atoms, repeat: int, step: float = 0.01) -> Phonons:
    """Of a relaxed primitive cell with a calculator: central differences of forces in repeat^3 cells, `step` in A."""
    n, large = len(cell), cell.repeat(repeat)
    large.calc = cell.calc
    start = large.positions.copy()
    constants = np.zeros((n, 3, len(large), 3))
    for i, axis, sign in product(range(n), range(3), (1, -1)):
        large.positions = start
        large.positions[i, axis] += sign * step
        constants[i, axis] -= sign * large.get_forces() / (2 * step)
    for i in range(n):  # a crystal moved as a whole feels no force
        constants[i, :, i] -= constants[i].sum(1)
    shifts = np.array(list(product((-1, 0, 1), repeat=3))) @ large.cell.array
    entries = []
    for i, k in product(range(n), range(len(large))):
        images = start[k] - start[i] + shifts
        length = np.linalg.norm(images, axis=1)
        nearest = images[length < length.min() + 1e-3]
        entries += [(constants[i, :, k] / len(nearest), vector, (i, k % n)) for vector in nearest]
    return Phonons(cell, *(np.array(part) for part in zip(*entries, strict=True)))


def along_path(crystal: Phonons, points: int = 40) -> tuple[np.ndarray, np.ndarray, list[float], list[str]]:
    """Distance along the path (Q,), frequencies (Q, 3n), and where its corners are."""
    path = crystal.cell.cell.bandpath(PATH, npoints=points * (len(PATH) - 1))
    x, ticks, labels = path.get_linear_kpoint_axis()
    q = 2 * np.pi * path.kpts @ crystal.cell.cell.reciprocal().array
    return x, crystal.frequencies(q), list(ticks), ["Γ" if name == "G" else name for name in labels]


def draw(crystals: dict[str, tuple[Phonons, dict]], out: str | Path) -> None:
    """Dispersion and density of states of one or several crystals, each with the look of its lines."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), width_ratios=(3, 1), sharey=True, layout="constrained")
    bins = np.arange(0.0, 52.0, 0.5)
    for name, (crystal, look) in crystals.items():
        x, values, ticks, labels = along_path(crystal)
        left.plot(x, values, **look)
        left.plot([], [], label=name, **look)
        right.plot(crystal.density(bins), (bins[1:] + bins[:-1]) / 2, **look)
    left.set_xticks(ticks, labels)
    for tick in ticks:
        left.axvline(tick, color="#e5e7eb", linewidth=0.8, zorder=0)
    left.set_xlim(ticks[0], ticks[-1])
    left.set_ylim(bottom=min(0.0, left.get_ylim()[0]))
    left.set_ylabel("frequency / THz")
    left.legend(frameon=False, fontsize=8.5, loc="lower right")
    right.set_xlabel("density of states / (1/THz)")
    right.set_xlim(left=0)
    figure.savefig(out, dpi=160)
    plt.close(figure)


def diamond_phonons(calculator, repeat: int = 5) -> Phonons:
    """Phonons of diamond at the calculator's own lattice constant."""
    cell = bulk("C", "diamond", relaxed_lattice(calculator))
    cell.calc = calculator
    return phonons(cell, repeat)


def main() -> None:
    """Command line."""
    from clebsch.ase import ClebschCalculator

    model = sys.argv[1] if len(sys.argv) > 1 else ROOT / "models/carbon-mace.pt"
    out = sys.argv[2] if len(sys.argv) > 2 else "phonons.png"
    crystal = diamond_phonons(ClebschCalculator(model, dtype="float64"))
    special = crystal.cell.cell.bandpath().special_points
    for name, label in (("G", "Γ"), ("X", "X"), ("L", "L")):
        values = crystal.frequencies(2 * np.pi * special[name] @ crystal.cell.cell.reciprocal().array)[0]
        print(f"{label}: {' '.join(f'{v:.2f}' for v in values)} THz")
    draw({"model": (crystal, {"color": "#2563a8", "linewidth": 1.3})}, out)
    print(f"picture: {out}")


if __name__ == "__main__":
    main()
