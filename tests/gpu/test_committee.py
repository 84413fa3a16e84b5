"""A committee's deviations on a GPU against those on the CPU: the ASE class, and LAMMPS's compute in both styles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import test_md

from clebsch.committee import CommitteeCalculator

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "unit"), str(TESTS / "parity")]
from tiny_model import write  # noqa: E402

from graded_models import structures  # noqa: E402

LIMITS = {"float64": 1e-9, "float32": 1e-4}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    """Models of three seeds."""
    folder = tmp_path_factory.mktemp("committee")
    paths = [str(folder / f"{seed}.pt") for seed in (1, 2, 3)]
    for seed, path in enumerate(paths, 1):
        write(path, f"seed={seed}", "layers=2", "lmax=1", "dtype=float64")
    return paths


def expected(files: list[str], atoms) -> np.ndarray:
    return CommitteeCalculator(files, "cpu", "float64").get_property("force_deviation", atoms)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_calculator(files, dtype: str, within) -> None:
    atoms = structures(1, seed=4, atoms=40, side=8.0)[0]
    there = CommitteeCalculator(files, "cuda", dtype, always=True)
    for step in range(4):  # recorded from the second step on
        atoms.positions += 0.01 * np.random.default_rng(step).normal(size=atoms.positions.shape)
        there.calculate(atoms, ["energy", "forces"])
        right = expected(files, atoms)
        assert right.max() > 0
        error = np.abs(there.results["force_deviation"] - right).max() / right.max()
        within({"deviation": float(error)}, {"deviation": LIMITS[dtype]})


@pytest.mark.parametrize("style", ["cuda", "kk"])
def test_compute(files, tmp_path: Path, style: str, within) -> None:
    """The step that is read evaluates all models, the run is that of the first."""
    if reason := test_md.missing(style, 1):
        pytest.skip(reason)
    atoms = structures(1, seed=4, atoms=40, side=8.0)[0]
    atoms.write(tmp_path / "box.data", format="lammps-data", atom_style="atomic", specorder=["O", "H"])
    chosen = test_md.styles()[style]
    (tmp_path / "in.md").write_text(f"""units metal
atom_style atomic
plugin load "{chosen.program.plugin}"
read_data box.data
mass 1 16.0
mass 2 1.0
pair_style clebsch {chosen.keywords} dtype float64
pair_coeff * * {files[0]} O H
compute d all clebsch/committee {" ".join(files[1:])}
dump last all custom 1 last.dump id c_d
dump_modify last sort id format float %.15g
thermo_style custom step pe c_d[1] c_d[2] c_d[3]
run 0
print "RESULT $(c_d[1]:%.15g) $(c_d[2]:%.15g) $(c_d[3]:%.15g)"
""")
    command = [chosen.program.lmp, *chosen.flags, "-in", "in.md", "-log", "log.md"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=test_md.SECONDS)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    right = expected(files, atoms)
    table = np.loadtxt((tmp_path / "last.dump").read_text().splitlines()[9:])
    summary = next(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("RESULT "))
    errors = {
        "atoms": float(np.abs(table[:, 1] - right).max() / right.max()),
        "summary": float(np.abs(np.array(summary, float) - [right.max(), right.min(), right.mean()]).max()),
    }
    within(errors, dict.fromkeys(errors, LIMITS["float64"]))
