"""A MACE model in LAMMPS: the same on any number of ranks, and the same as in ASE."""

import sys
from pathlib import Path

import numpy as np
import pytest
from lammps_runs import assert_same, random_system

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
import mace_environment  # noqa: E402


@pytest.fixture(scope="module")
def mace_model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("mace")
    mace_environment.run("mace_export.py", "save", "residual", str(folder))
    return str(folder / "residual.pt")


@pytest.fixture(scope="module")
def mpa_model(tmp_path_factory) -> str:
    """Density blocks, Agnesi transform, ZBL, three elements."""
    folder = tmp_path_factory.mktemp("mpa")
    mace_environment.run("mace_export.py", "save", "mpa", str(folder))
    return str(folder / "mpa.pt")


def test_ranks(lammps, mace_model):
    """Two message passing layers: ghosts two cutoffs deep; newton on and off; tables and exact radial functions."""
    system = random_system(tilt=(2.0, -1.5, 1.0), seed=2)
    for style in ("", "radial exact"):
        reference = lammps.reference(system, mace_model, style=style)
        assert np.abs(reference.forces()).max() > 1e-3
        for ranks, newton in ((1, "off"), (2, "on"), (4, "off")):
            assert_same(lammps.evaluate(system, mace_model, style=style, ranks=ranks, newton=newton), reference)
        assert_same(lammps.evaluate(system, mace_model, style=f"{style} comm ghost"), reference)


def test_density_agnesi_zbl(lammps, mpa_model):
    """The options of MACE-MPA and OMAT together: pair-dependent tables for the elements in use, densities and ZBL."""
    system = random_system(seed=5, spacing=1.5, type_names=("Si", "O"))
    reference = lammps.reference(system, mpa_model)
    assert np.abs(reference.forces()).max() > 1e-2
    for ranks, newton in ((1, "off"), (2, "on"), (4, "off")):
        assert_same(lammps.evaluate(system, mpa_model, ranks=ranks, newton=newton), reference)
    exact = lammps.evaluate(system, mpa_model, style="radial exact", ranks=2)
    scale = np.sqrt(np.mean(exact.forces() ** 2))
    assert np.sqrt(np.mean((exact.forces() - reference.forces()) ** 2)) < 1e-6 * scale
    assert_ase_agrees(system, reference, mpa_model)


def test_ase(lammps, mace_model):
    """The calculator in the same environment gives the same numbers."""
    system = random_system(seed=8)
    assert_ase_agrees(system, lammps.evaluate(system, mace_model), mace_model)


def assert_ase_agrees(system, run, model):
    from ase import Atoms

    from clebsch.ase import ClebschCalculator

    symbols = [system.type_names[t - 1] for t in system.types]
    atoms = Atoms(symbols, positions=system.positions, cell=system.cell, pbc=True)
    atoms.calc = ClebschCalculator(model)
    assert atoms.get_potential_energy() == pytest.approx(run.values["pe"], rel=1e-10)
    assert np.abs(atoms.get_forces() - run.forces()).max() < 1e-9 * np.abs(run.forces()).max()
