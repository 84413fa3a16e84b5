"""Energy, forces and stress with the ASE calculator."""

from pathlib import Path

from ase import Atoms
from ase.io import read

from clebsch.ase import ClebschCalculator

ROOT = Path(__file__).resolve().parents[2]
calculator = ClebschCalculator(ROOT / "models/water-nequip.pt")

dimer = Atoms(
    "OH2OH2",
    positions=[[0, 0, 0], [0.757, 0.586, 0], [-0.757, 0.586, 0], [0, -2.9, 0], [0, -1.94, 0], [0.927, -3.15, 0]],
    calculator=calculator,
)
print(f"dimer: {dimer.get_potential_energy():.4f} eV, largest force {abs(dimer.get_forces()).max():.3f} eV/A")

box = read(ROOT / "examples/water_box/water.data", format="lammps-data", atom_style="atomic", Z_of_type={1: 8, 2: 1})
box.calc = calculator
print(f"box of {len(box)} atoms: {box.get_potential_energy() / len(box):.4f} eV an atom")
print("stress xx yy zz yz xz xy in eV/A^3:", " ".join(f"{s:.5f}" for s in box.get_stress()))
