"""Relaxes positions and cell of compressed water, 0.5 GPa."""

from pathlib import Path

from ase import units
from ase.filters import FrechetCellFilter
from ase.io import read
from ase.optimize import FIRE

from clebsch.ase import ClebschCalculator

ROOT = Path(__file__).resolve().parents[2]
water = read(ROOT / "examples/water_box/water.data", format="lammps-data", atom_style="atomic", Z_of_type={1: 8, 2: 1})
water.set_cell(0.98 * water.cell, scale_atoms=True)
water.calc = ClebschCalculator(ROOT / "models/water-nequip.pt")
FIRE(FrechetCellFilter(water, scalar_pressure=0.5 * units.GPa)).run(fmax=0.1, steps=60)
print(f"volume of a molecule: {3 * water.get_volume() / len(water):.2f} A^3")
