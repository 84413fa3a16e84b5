"""Lattice constant and elastic constants of diamond through the ASE calculator.

usage: elastic_constants.py [MODEL]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from ase import Atoms, units
from ase.build import bulk
from ase.optimize import BFGS

ROOT = Path(__file__).resolve().parents[2]


def relaxed_lattice(calculator, structure: str = "diamond", guess: float = 3.567) -> float:
    """The lattice constant (A) at which a cubic crystal of carbon has no pressure."""

    def pressure(a: float) -> float:
        atoms = bulk("C", structure, a, cubic=True)
        atoms.calc = calculator
        return -atoms.get_stress()[:3].mean()

    before, now = 1.005 * guess, guess
    p_before, p_now = pressure(before), pressure(now)
    for _ in range(20):
        if abs(p_now) < 1e-4 * units.GPa or p_now == p_before:
            break
        before, now, p_before = now, now - p_now * (now - before) / (p_now - p_before), p_now
        p_now = pressure(now)
    return now


def stress_at(atoms: Atoms, strain: np.ndarray) -> np.ndarray:
    """Stress (eV/A^3, xx yy zz yz xz xy) of `atoms` with its cell strained and the atoms in it relaxed."""
    bent = atoms.copy()
    bent.calc = atoms.calc
    bent.set_cell(atoms.cell.array @ (np.eye(3) + strain), scale_atoms=True)
    BFGS(bent, logfile=None).run(fmax=1e-4, steps=100)
    return bent.get_stress()


def elastic_constants(atoms: Atoms, step: float = 0.004) -> tuple[float, float, float]:
    """C11, C12, C44 (GPa) of a relaxed cubic crystal: central differences of the stress over strains of `step`."""
    stretch, shear = np.zeros((3, 3)), np.zeros((3, 3))
    stretch[0, 0] = step
    shear[1, 2] = shear[2, 1] = step / 2
    along = (stress_at(atoms, stretch) - stress_at(atoms, -stretch)) / (2 * step * units.GPa)
    across = (stress_at(atoms, shear) - stress_at(atoms, -shear)) / (2 * step * units.GPa)
    return float(along[0]), float(along[1:3].mean()), float(across[3])


def main() -> None:
    """Command line."""
    from clebsch.ase import ClebschCalculator

    model = sys.argv[1] if len(sys.argv) > 1 else ROOT / "models/carbon-mace.pt"
    calculator = ClebschCalculator(model, dtype="float64")
    a = relaxed_lattice(calculator)
    diamond = bulk("C", "diamond", a, cubic=True)
    diamond.calc = calculator
    print(f"lattice constant {a:.4f} A, energy {diamond.get_potential_energy() / len(diamond):.4f} eV an atom")
    c11, c12, c44 = elastic_constants(diamond)
    print(f"C11 {c11:.1f} GPa, C12 {c12:.1f} GPa, C44 {c44:.1f} GPa; bulk modulus {(c11 + 2 * c12) / 3:.1f} GPa")


if __name__ == "__main__":
    main()
