"""A model that finds each step's edges itself, as on a GPU, among the pairs of LAMMPS's list: `device cpu:padded`."""

import pytest
from lammps_runs import assert_same, random_system

PADDED = "device cpu:padded"
DYNAMICS = "velocity all create 900 4711 loop geom\nfix 1 all nve\ntimestep 0.0002\n"


def systems() -> dict:
    return {
        "triclinic": random_system(tilt=(2.0, -1.5, 1.0), seed=2),
        "small": random_system(atoms=5, lengths=(3.1, 3.3, 2.9), seed=6),
        "mixed": random_system(boundary="p f s", seed=4),
    }


@pytest.mark.parametrize("name", systems())
def test_one_step(lammps, model, name):
    """Folded ghosts on one rank, ghosts as nodes on one and on two, newton on and off."""
    system = systems()[name]
    reference = lammps.reference(system, model)
    assert_same(lammps.evaluate(system, model, style=PADDED), reference)
    assert_same(lammps.evaluate(system, model, style=f"{PADDED} comm ghost"), reference)
    assert_same(lammps.evaluate(system, model, style=PADDED, ranks=2, newton="off"), reference)


@pytest.mark.parametrize("ranks", [1, 2])
def test_many_steps(lammps, repulsive_model, ranks):
    """Lists that hold for some steps, then change; two runs, and types that have changed between them."""
    system = random_system(atoms=40, seed=9)
    after = DYNAMICS + "run 40\nset atom 3 type 1\n"
    reference = lammps.reference(system, repulsive_model, after=after, run="run 20")
    run = lammps.evaluate(system, repulsive_model, style=PADDED, ranks=ranks, after=after, run="run 20")
    assert_same(run, reference, tolerance=1e-6)
    lists = [int(line.split("=")[1]) for line in run.output.splitlines() if "Neighbor list builds" in line]
    assert len(lists) == 2 and 0 < lists[0] < 20


def test_some_types_belong_to_another_style(lammps, model):
    system = random_system(atoms=30, seed=8, type_names=("O", "H", "Ar"))
    system.types[::5] = 3

    def pair(style: str) -> str:
        return (
            f"pair_style hybrid/overlay clebsch {style} lj/cut 4.0\npair_coeff * * clebsch {model} O H NULL\n"
            "pair_coeff * 3 lj/cut 0.01 1.0\n"
        )

    reference = lammps.reference(system, model, pair=pair(""))
    assert_same(lammps.evaluate(system, model, pair=pair(PADDED)), reference)


def test_atoms_of_what_is_not_finite_are_named(lammps, model):
    system = random_system(atoms=6, lengths=(9.0, 9.0, 9.0), seed=1)
    system.positions[5] = system.positions[3]
    run = lammps.evaluate(system, model, style=PADDED, check=False)
    assert run.returncode and "where atom IDs 4 and 6 are the closest pair, 0 A" in run.output
    after = "velocity all set 1e308 0 0\nfix 1 all nve\ntimestep 10\nneigh_modify delay 100 every 100 check no\n"
    run = lammps.evaluate(random_system(atoms=8), model, style=PADDED, after=after, run="run 2", check=False)
    assert run.returncode
    for text in ("expected finite coordinates", "for atom ID", "at step 1"):
        assert text in run.output
