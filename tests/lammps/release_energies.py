"""A LAMMPS built from source against the usual one, PyPI's, with the water model: pytest through with_release.py alone.

Prints a table: energy, largest difference of energies (eV) and of forces (eV/Angstrom), at the first and the last step.
"""

import os

import numpy as np
import pytest
from lammps_runs import Lammps

from conftest import ROOT

WATER = """
plugin load "{plugin}"
units metal
atom_style atomic
boundary p p p
read_data {data}
pair_style clebsch dtype float64 {comm}
pair_coeff * * {model} O H
neighbor 0.8 bin
neigh_modify every 1 delay 0 check yes
timestep 0.0005
thermo_style custom step pe press
fix 1 all nve
dump atoms all custom 5 atoms.dump id fx fy fz
dump_modify atoms sort id format float %.17g
run 0
print "RESULT first = $(pe:%.17g)"
run 5
print "RESULT last = $(pe:%.17g)"
"""


def evaluate(lammps: Lammps, ranks: int, comm: str):
    data, model = ROOT / "examples/water_box/water.data", ROOT / "models/water-nequip.pt"
    run = lammps(WATER.format(plugin=lammps.plugin, data=data, model=model, comm=comm), ranks=ranks)
    forces = [np.stack([frame[key] for key in ("fx", "fy", "fz")]) for frame in run.frames()]
    return np.array([run.values["first"], run.values["last"]]), [forces[0], forces[-1]]


def test_same_as_the_usual_lammps(lammps, tmp_path):
    usual = os.environ.get("CLEBSCH_USUAL_LMP", "")
    if not usual:
        pytest.skip("no usual LAMMPS to compare with: CLEBSCH_USUAL_LMP is not set; with_release.py sets it")
    (tmp_path / "usual").mkdir()
    usual = Lammps(usual, os.environ["CLEBSCH_USUAL_PLUGIN"], tmp_path / "usual")
    energies, forces = evaluate(usual, 1, "comm auto")
    assert np.abs(forces[0]).max() > 0.5
    for ranks, comm in ((1, "comm auto"), (4, "comm halo"), (4, "comm ghost")):
        for name, host in (("usual", usual), ("this one", lammps)):
            energy, force = evaluate(host, ranks, comm)
            gaps = [float(np.abs(a - b).max()) for a, b in zip(force, forces, strict=True)]
            print(f"{name:9} {ranks} {comm:10} {energy[0]:.10f} {np.abs(energy - energies).max():.0e} {gaps}")
            assert np.abs(energy - energies).max() < 1e-9 and max(gaps) < 1e-11
