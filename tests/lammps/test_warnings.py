"""What the style warns of at the start of a run: names in another order than types, heat fluxes, differences of float32
forces."""

import pytest
from lammps_runs import random_system

from conftest import tiny_model

SWAPPED = "the names in pair_coeff are in the order of LAMMPS's atom types"
STRESS, CENTROID = (
    f"compute ke all ke/atom\ncompute ea all pe/atom\ncompute st all {style} NULL virial\n"
    "compute flux all heat/flux ke ea st\nthermo_style custom step c_flux[1]\n"
    for style in ("stress/atom", "centroid/stress/atom")
)


@pytest.fixture(scope="module")
def allegro(tmp_path_factory) -> str:
    return tiny_model(tmp_path_factory.mktemp("models"), "dtype=float64", script="tiny_allegro.py")


def warnings(lammps, model, names="O H", more="run 0\n", ranks=1, **keywords) -> str:
    """What a run prints, on one line."""
    text = f"pair_style clebsch\npair_coeff * * {model} {names}\n{more}"
    system = random_system(**keywords)
    return " ".join(lammps(lammps.header(system) + text, files={"system.data": system}, ranks=ranks).output.split())


@pytest.mark.parametrize("ranks", [1, 2])
def test_swapped_names(lammps, model, ranks):
    twice = warnings(lammps, model, "H O", more="run 0\nrun 0\n", ranks=ranks)
    assert twice.count(SWAPPED) == 2  # one of each type
    assert SWAPPED not in warnings(lammps, model, ranks=ranks)


def test_isotopes_are_no_mistake(lammps, model):
    assert SWAPPED not in warnings(lammps, model, more="mass 1 17.999\nmass 2 3.024\nrun 0\n")


def test_heat_flux(lammps, model, allegro):
    """Of several layers no flux is right; of a strictly local model that of centroid virials is."""
    for flux in (STRESS, CENTROID):
        assert warnings(lammps, model, more=f"{flux}run 1\nrun 1\n").count("per-atom virials are not right") == 1
    assert "is exact for this model with compute centroid" in warnings(lammps, allegro, more=f"{STRESS}run 0\n")
    assert "heat/flux is exact" not in warnings(lammps, allegro, more=f"{CENTROID}run 0\n")
    alone = "compute st all stress/atom NULL virial\nthermo_style custom step c_st[1]\n".replace("c_st[1]", "pe")
    assert "heat flux" not in warnings(lammps, model, more=f"{alone}run 0\n")


def test_differences_of_float32_forces(lammps, model):
    """dynamical_matrix computes forces outside of any run, fix numdiff in one."""
    matrix, fix = "dynamical_matrix all eskm 0.000001\n", "fix n all numdiff 1 0.0001\nrun 1\n"
    for commands, dtype, times in ((matrix, 32, 1), (matrix, 64, 0), (fix, 32, 1), ("run 1\n", 32, 0)):
        text = f"pair_style clebsch dtype float{dtype}\npair_coeff * * {model} O H\n{commands}"
        system = random_system(atoms=6)
        before = "atom_modify map array"
        run = lammps(lammps.header(system, before=before) + text, files={"system.data": system})
        assert " ".join(run.output.split()).count("take differences of forces") == times, (commands, dtype)
