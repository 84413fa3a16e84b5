"""A quarter of a picosecond of liquid water at constant energy.

usage: water_md.py [STEPS]
"""

import sys
from pathlib import Path

from ase import units
from ase.io import read
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from ase.md.verlet import VelocityVerlet

from clebsch.ase import ClebschCalculator

ROOT = Path(__file__).resolve().parents[2]
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500

water = read(ROOT / "examples/water_box/water.data", format="lammps-data", atom_style="atomic", Z_of_type={1: 8, 2: 1})
water.calc = ClebschCalculator(ROOT / "models/water-nequip.pt")
MaxwellBoltzmannDistribution(water, temperature_K=300)
dynamics = VelocityVerlet(water, timestep=0.5 * units.fs)
start = water.get_total_energy()


def show() -> None:
    drift = (water.get_total_energy() - start) / len(water)
    print(f"{dynamics.get_time() / units.fs:8.1f} fs  {water.get_temperature():7.1f} K  drift {drift:+.2e} eV an atom")


dynamics.attach(show, interval=50)
dynamics.run(steps)
