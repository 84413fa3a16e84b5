"""The same energies, forces, virials and per-atom quantities on any number of ranks."""

import numpy as np
import pytest
from lammps_runs import System, assert_same, random_system, usual


def slab() -> System:
    """All atoms in one corner of a long box with an open boundary: other ranks own none."""
    system = random_system(atoms=24, lengths=(7.0, 7.0, 7.0), boundary="f p p", seed=3)
    system.cell[0, 0] = 40.0
    system.positions[:, 0] = 0.5 + 0.8 * system.positions[:, 0]
    return system


SYSTEMS = {
    "orthogonal": lambda: random_system(),
    "triclinic": lambda: random_system(tilt=(2.0, -1.5, 1.0), seed=2),
    "mixed": lambda: random_system(boundary="p f s", seed=4),
    "open": lambda: random_system(boundary="f f f", seed=5),
    "small": lambda: random_system(atoms=5, lengths=(3.1, 3.3, 2.9), seed=6),
    "slab": slab,
}


WAYS = [(2, "on", "halo"), (2, "off", "ghost"), (3, "off", "halo"), (4, "on", "ghost"), (4, "off", "halo")]
#: The ways (places in WAYS) in which a system runs at every change; by night all systems run in all.
USUAL = {
    "orthogonal": (0, 3),
    "triclinic": (0, 1, 2, 3, 4),
    "mixed": (1, 4),
    "open": (1, 2),
    "small": (0, 3, 4),
    "slab": (2, 3, 4),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_one_rank(lammps, model, name):
    """It folds ghosts onto owners or, with `comm ghost`, expands them; newton on and off."""
    system = SYSTEMS[name]()
    reference = lammps.reference(system, model)
    assert np.abs(reference.forces()).max() > 1e-3
    assert_same(lammps.evaluate(system, model, style="comm ghost"), reference)
    assert_same(lammps.evaluate(system, model, newton="off"), reference)


@pytest.mark.parametrize(
    "name, ranks, newton, comm",
    usual(
        [(name, *way) for name in SYSTEMS for way in WAYS],
        *[(name, *WAYS[number]) for name in SYSTEMS for number in USUAL[name]],
    ),
)
def test_ranks(lammps, model, name, ranks, newton, comm, record_property):
    """They exchange features (to rounding) or expand ghosts."""
    system = SYSTEMS[name]()
    run = lammps.evaluate(system, model, ranks=ranks, newton=newton, style=f"comm {comm}")
    worst = assert_same(run, lammps.reference(system, model), 1e-12 if comm == "halo" else 1e-10)
    record_property("largest_relative_force_difference", worst)
    print(f"{name}: largest relative force difference {worst:.2e}")


@pytest.mark.parametrize("newton", ["on", "off"])
def test_tiled(lammps, model, newton):
    """comm_style tiled with a recursive bisection."""
    system = random_system(atoms=140, lengths=(17.0, 12.0, 12.0), boundary="p f f", seed=7)
    reference = lammps.reference(system, model)
    tiled = dict(before="comm_style tiled", after="fix balance all balance 1 1.0 rcb\n", newton=newton)
    for ranks in (1, 3):
        assert_same(lammps.evaluate(system, model, ranks=ranks, **tiled), reference)


def test_trajectory_with_balance(lammps, repulsive_model):
    """Rebuilds, migration and fix balance: 40 steps end at the same positions on 1 and 4 ranks."""
    system = slab()
    dynamics = "velocity all create 600 4711 loop geom\nfix 1 all nve\ntimestep 0.00005\n"
    reference = lammps.reference(system, repulsive_model, after=dynamics, run="run 40")
    balance = dynamics + "fix balance all balance 5 1.0 shift x 10 1.02\n"
    run = lammps.evaluate(system, repulsive_model, ranks=4, after=balance, run="run 40")
    assert_same(run, reference, tolerance=1e-8)
    for axis in "xyz":
        assert np.abs(run.table()[axis] - reference.table()[axis]).max() < 1e-9


def test_threads(lammps, model):
    """The same bits for any number of threads."""
    system = random_system()
    one = lammps.evaluate(system, model)
    two = lammps.evaluate(system, model, env={"OMP_NUM_THREADS": "2"})
    assert "2 thread(s) a rank" in two.output
    assert np.array_equal(one.forces(), two.forces()) and one.values["pe"] == two.values["pe"]


def test_default_is_one_thread_a_rank(lammps, model):
    """Without OMP_NUM_THREADS, LAMMPS and the model use one thread a rank, not all cores."""
    run = lammps.evaluate(random_system(), model, env={"OMP_NUM_THREADS": None})
    assert "1 thread(s) a rank" in run.output
