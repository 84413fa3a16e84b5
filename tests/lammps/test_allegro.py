"""A strictly local model in LAMMPS: any number of ranks with one cutoff of ghosts, and energy is conserved."""

import subprocess
import sys

import numpy as np
import pytest
from lammps_runs import assert_same, random_system

from conftest import ROOT


@pytest.fixture(scope="module")
def allegro(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("models") / "allegro.pt"
    script = ROOT / "tests/unit/tiny_allegro.py"
    subprocess.run([sys.executable, script, path, "dtype=float64"], check=True)
    return str(path)


@pytest.mark.parametrize("boundary", ["p p p", "p f s"])
def test_ranks(lammps, allegro, boundary):
    """1, 2 and 4 ranks, newton on and off, folded ghosts or not: the same to 1e-10 in every quantity."""
    system = random_system(boundary=boundary, tilt=(2.0, -1.5, 1.0) if boundary == "p p p" else (0.0, 0.0, 0.0))
    reference = lammps.evaluate(system, allegro)
    assert np.abs(reference.forces()).max() > 1e-3
    assert_same(lammps.evaluate(system, allegro, style="comm ghost"), reference)
    for ranks, newton in ((2, "on"), (4, "on"), (4, "off")):
        run = lammps.evaluate(system, allegro, ranks=ranks, newton=newton)
        assert_same(run, reference)
        # A single cutoff of ghosts, whatever the number of layers of the network; the skin is 0.5.
        assert "communication cutoff set to 4.5 Angstrom = 1 layers x 4 + skin 0.5" in run.output, run.output


def test_energy_is_conserved(lammps, allegro):
    """100 steps with rebuilds on 2 ranks end at the energy of the start, to the order of the time step."""
    system = random_system(atoms=40, spacing=1.6, seed=4)
    dynamics = "velocity all create 300 4711 loop geom\nfix 1 all nve\ntimestep {step}\n"
    drifts = []
    for step, count in ((0.0002, 50), (0.0001, 100)):
        text = dynamics.format(step=step)
        start = lammps.evaluate(system, allegro, ranks=2, after=text).values["etotal"]
        end = lammps.evaluate(system, allegro, ranks=2, after=text, run=f"run {count}").values["etotal"]
        drifts.append(abs(end - start))
    assert drifts[1] < 0.5 * drifts[0] + 1e-8 and drifts[1] < 1e-3, drifts
