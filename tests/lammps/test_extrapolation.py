"""compute clebsch/atom extrapolation, its maximum for fix halt, and fix pair (docs/uncertainty.md)."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lammps_runs import random_system, usual

PARITY = Path(__file__).resolve().parents[1] / "parity"
GRADES = (
    "compute g all clebsch/atom extrapolation\ncompute most all reduce max c_g\n"
    "compute peak all clebsch extrapolation max\n"
    "dump grades all custom 1 grades.dump id c_g\ndump_modify grades sort id format float %.17g\n"
)


#: By leverage, as so few training atoms give it, and one by squares.
FAMILIES = ["nequip", "mace", "allegro", "nequip-squares"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With a model of each family, made in one process: most of its time goes into importing torch."""
    folder = tmp_path_factory.mktemp("graded")
    write = "import sys; from graded_models import write_graded\nfor name in sys.argv[2:]:\n  family, _, grade = "
    write += "name.partition('-'); write_graded(f'{sys.argv[1]}/{name}.pt', family, grade=grade or 'auto')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", write, folder, *FAMILIES], cwd=PARITY, check=True)
    return folder


@pytest.fixture(scope="module", params=FAMILIES)
def graded(request, folder) -> str:
    return str(folder / f"{request.param}.pt")


WAYS = [(1, "ghost"), (4, "ghost"), (4, "halo"), (4, "auto")]


@pytest.mark.parametrize(
    "graded, ranks, comm",
    usual(
        [(family, *way) for family in FAMILIES for way in WAYS],
        *[("nequip", *way) for way in WAYS[:3]],
        *[("mace", *way) for way in WAYS[1:3]],
        *[("allegro", *way) for way in (WAYS[0], WAYS[3])],
        ("nequip-squares", *WAYS[2]),
    ),
    indirect=["graded"],
)
def test_ranks_agree(lammps, graded, ranks, comm):
    """As one rank: one and four with ghosts as deep as the model, four with features exchanged."""
    values = "".join(f'print "RESULT {key} = $(c_{key}:%.16g)"\n' for key in ("most", "peak", "part", "empty"))
    groups = "group part id 5:20\ncompute part part clebsch extrapolation max\n"
    groups += "group empty empty\ncompute empty empty clebsch extrapolation max\n"
    rest = {"after": GRADES + groups, "run": "run 0\n" + values}
    one = lammps.reference(random_system(), graded, **rest).table("grades.dump")["c_g"]
    assert len(one) == 60 and (one > 0).all()
    run = lammps.evaluate(random_system(), graded, ranks=ranks, style=f"comm {comm}", **rest)
    assert np.abs(run.table("grades.dump")["c_g"] / one - 1).max() < 1e-10
    own = run.table("grades.dump")["c_g"]
    assert run.values["most"] == run.values["peak"] == pytest.approx(own.max(), rel=1e-14)
    assert run.values["part"] == pytest.approx(own[4:20].max(), rel=1e-14) and run.values["empty"] == 0


def test_ranks_agree_in_float32(lammps, graded):
    """Within 1e-3, as features round."""
    one, four = (
        lammps.evaluate(random_system(), graded, ranks=ranks, style=f"dtype float32 comm {comm}", after=GRADES)
        for ranks, comm in ((1, "auto"), (4, "halo"))
    )
    first, second = one.table("grades.dump")["c_g"], four.table("grades.dump")["c_g"]
    assert np.abs(second / first - 1).max() < 1e-3


def test_as_in_python(lammps, graded):
    """The grades of ASE's calculator, whatever LAMMPS's units."""
    sys.path.insert(0, str(PARITY.parents[1] / "src/python"))
    from ase import Atoms

    from clebsch.batch import Evaluator

    system = random_system()
    atoms = Atoms(["OH"[t - 1] for t in system.types], positions=system.positions, cell=system.cell, pbc=True)
    expected = Evaluator(graded, "cpu")([atoms], outputs=["extrapolation"]).outputs["extrapolation"][0]
    run = lammps.evaluate(system, graded, after=GRADES)
    assert np.abs(run.table("grades.dump")["c_g"] / expected - 1).max() < 1e-9


def test_during_a_run(lammps, graded):
    """Every fifth step is read; the trajectory is that of a run that reads none; fix pair gives the same values."""
    motion = "velocity all create 300 3 loop geom\nfix 1 all nve\ntimestep 0.0002\n"
    fix = "fix p all pair 5 clebsch extrapolation 0\ndump p all custom 5 pair.dump id f_p\n"
    fix += "dump_modify p sort id format float %.17g\n"
    seldom = GRADES.replace("custom 1", "custom 5")
    with_grades = lammps.evaluate(random_system(), graded, ranks=2, after=motion + seldom + fix, run="run 10")
    without = lammps.evaluate(random_system(), graded, ranks=2, after=motion, run="run 10")
    assert np.abs(with_grades.forces() - without.forces()).max() < 1e-12
    frames, pairs = with_grades.frames("grades.dump"), with_grades.frames("pair.dump")
    assert len(frames) == len(pairs) == 3
    assert np.abs(frames[2]["c_g"] - frames[0]["c_g"]).max() > 0
    assert np.abs(frames[2]["c_g"] / pairs[2]["f_p"] - 1).max() < 1e-12


@pytest.mark.parametrize("every", [1, 3])
def test_maximum_in_thermo(lammps, graded, every):
    """The maximum alone, without a compute of the atoms' grades, is that of every step that is written."""
    motion = "velocity all create 300 3 loop geom\nfix 1 all nve\ntimestep 0.0002\n"
    thermo = "thermo_style custom step {} pe pxx pyy pzz pxy pxz pyz vol temp etotal\n"
    thermo += "thermo_modify format float %.16g\n"

    def written(computes: str, columns: str) -> np.ndarray:
        run = f"thermo {every}\n{thermo.format(columns)}run 6"
        return lammps.evaluate(random_system(), graded, ranks=2, after=motion + computes, run=run).thermo()

    alone, both = written("compute peak all clebsch extrapolation max\n", "c_peak"), written(GRADES, "c_peak c_most")
    assert alone[:, 0].tolist() == list(range(0, 7, every)) and len(set(alone[:, 1])) == len(alone)
    assert np.array_equal(alone[:, :2], both[:, :2]) and np.array_equal(both[:, 1], both[:, 2])


@pytest.mark.parametrize("compute", ["most", "peak"])
def test_halt(lammps, graded, compute):
    """The largest grade stops a run."""
    halt = f"variable most equal c_{compute}\nfix stop all halt 1 v_most > 1e-6 error soft message yes\n"
    run = lammps.evaluate(random_system(), graded, ranks=2, after=GRADES + halt + "fix 1 all nve\n", run="run 20")
    assert len(run.frames("grades.dump")) < 5 and "fix halt" in run.output.lower()


def test_without_a_grade(lammps, model):
    run = lammps.evaluate(random_system(), model, after=GRADES, check=False)
    assert run.returncode != 0 and "expected an output out of atomic_energy" in " ".join(run.output.split())
