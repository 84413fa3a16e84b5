"""compute clebsch/committee: maximum, minimum, mean and per-atom deviation of several models' forces."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lammps_runs import random_system

UNIT = Path(__file__).resolve().parents[1] / "unit"


def _files(folder, program: str, *options: str) -> list[str]:
    """Models of three seeds, made in one process: most of its time goes into importing torch."""
    paths = [str(folder / f"{seed}.pt") for seed in (1, 2, 3)]
    write = f"from {program} import write\n"
    write += "".join(f"write({path!r}, 'seed={seed}', *{options!r})\n" for seed, path in enumerate(paths, 1))
    subprocess.run([sys.executable, "-W", "ignore", "-c", write], cwd=UNIT, check=True)
    return paths


@pytest.fixture(scope="module", params=["tiny_model", "tiny_allegro"])
def files(request, tmp_path_factory) -> list[str]:
    more = ("layers=2", "lmax=1") if request.param == "tiny_model" else ()
    return _files(tmp_path_factory.mktemp("committee"), request.param, "dtype=float64", *more)


def committee(files: list[str], group: str = "all") -> str:
    return (
        f"compute d {group} clebsch/committee {' '.join(files[1:])}\n"
        "dump d all custom 5 d.dump id c_d\ndump_modify d sort id format float %.17g\n"
        "thermo_style custom step pe c_d[1] c_d[2] c_d[3]\n"
    )


VALUES = "".join(f'print "RESULT d{k} = $(c_d[{k}]:%.16g)"\n' for k in (1, 2, 3))


def deviation(lammps, files: list[str]) -> np.ndarray:
    forces = np.stack([lammps.reference(random_system(), path).forces() for path in files])
    return np.sqrt(((forces - forces.mean(0)) ** 2).sum(2).mean(0))


@pytest.mark.parametrize(
    ("ranks", "comm", "newton"),
    [
        (1, "auto", "on"),
        (1, "ghost", "off"),
        (4, "ghost", "on"),
        (4, "ghost", "off"),
        (4, "auto", "on"),
        (2, "auto", "off"),
    ],
)
def test_formula(lammps, files, ranks, comm, newton):
    """Forces of single runs give the same; dump and thermo read one evaluation."""
    run = lammps.evaluate(
        random_system(), files[0], ranks=ranks, style=f"comm {comm}", newton=newton, after=committee(files),
        run="run 0\n" + VALUES,
    )  # fmt: skip
    expected = deviation(lammps, files)
    assert np.abs(run.table("d.dump")["c_d"] - expected).max() < 1e-10 * max(1, expected.max())
    most, least, mean = (run.values[f"d{k}"] for k in (1, 2, 3))
    assert most == pytest.approx(expected.max()) and least == pytest.approx(expected.min())
    assert mean == pytest.approx(expected.mean()) and least > 0


def test_group(lammps, files):
    after = "group some id 1:20\n" + committee(files, "some")
    run = lammps.evaluate(random_system(), files[0], ranks=2, after=after, run="run 0\n" + VALUES)
    expected, got = deviation(lammps, files), run.table("d.dump")["c_d"]
    assert np.abs(got[:20] - expected[:20]).max() < 1e-10 * max(1, expected.max()) and (got[20:] == 0).all()
    assert run.values["d1"] == pytest.approx(expected[:20].max()) and run.values["d3"] == pytest.approx(
        expected[:20].mean()
    )


def test_null_types_do_not_count(lammps, files):
    """An atom of another style has a deviation of 0, which is in no minimum and no mean."""
    system = random_system(type_names=("O", "H", "Ar"))
    system.types[::5] = 3
    pair = (
        f"pair_style hybrid clebsch lj/cut 4.0\npair_coeff * * clebsch {files[0]} O H NULL\n"
        "pair_coeff * 3 lj/cut 0.01 2.0\n"
    )
    after = "group some type 1 2\ncompute s some clebsch/committee " + " ".join(files[1:]) + "\n" + committee(files)
    values = VALUES + VALUES.replace("RESULT d", "RESULT s").replace("c_d", "c_s")
    run = lammps.evaluate(system, files[0], ranks=2, pair=pair, after=after, run="run 0\n" + values)
    assert (run.table("d.dump")["c_d"][::5] == 0).all() and run.values["d2"] > 0
    assert all(run.values[f"d{k}"] == run.values[f"s{k}"] for k in (1, 2, 3))


def test_during_a_run(lammps, files):
    """The trajectory is that of the first model; values change; steps that nobody reads evaluate one model."""
    motion = "velocity all create 300 3 loop geom\nfix 1 all nve\ntimestep 0.0002\nthermo 5\n"
    with_it = lammps.evaluate(random_system(), files[0], ranks=2, after=motion + committee(files), run="run 10")
    without = lammps.evaluate(random_system(), files[0], ranks=2, after=motion, run="run 10")
    assert np.abs(with_it.forces() - without.forces()).max() < 1e-12
    frames = with_it.frames("d.dump")
    assert len(frames) == 3 and np.abs(frames[2]["c_d"] - frames[0]["c_d"]).max() > 0


def test_refusals(lammps, files, tmp_path):
    def said(after: str) -> str:
        run = lammps.evaluate(random_system(), files[0], after=after, check=False)
        assert run.returncode != 0
        return " ".join(run.output.split())

    assert "expected one model file or more" in said("compute d all clebsch/committee\n")
    far = tmp_path / "far.pt"
    subprocess.run([sys.executable, "-W", "ignore", UNIT / "tiny_allegro.py", far, "tutorial=1"], check=True)
    assert "give the model that reaches farthest to pair_coeff" in said(f"compute d all clebsch/committee {far}\n")
    assert "none.pt" in said("compute d all clebsch/committee none.pt\n")
