"""The table of tests/lammps/options on GPUs: `device cuda` and clebsch/kk on 1, 2, 4 ranks, against its fp64 reference.

A test is a row on a back end and a number of ranks. The rows of both are cut into parts; the first test of a part runs
its rows, in a few processes of LAMMPS. Ranks take all GPUs there are, several a GPU where there are fewer of them.
Programs and plugins are those of test_md.py. CLEBSCH_OPTIONS_RECORD is what the names of files begin with that get the
outcomes for tests/lammps/options/options_matrix.py, a file from each process of pytest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import test_md
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lammps"), str(HERE.parent / "lammps/options")]

import options_matrix  # noqa: E402
from option_row import Row  # noqa: E402
from option_rows import ROWS  # noqa: E402
from option_runs import BackEnd, Done, jobs_of, judge, run_jobs  # noqa: E402

LIMIT = 1e-10
RANKS = (1, 2, 4)
#: Of the rows of a back end and a number of ranks: processes run them side by side.
PARTS = 6
#: Seconds that one process of LAMMPS may take; a test's own limit is 240.
SECONDS = 150
STYLES = {"cuda": "cuda", "kk-device": "kk"}
#: Where LAMMPS has a module of Python too, which the two LAMMPS in one process are: folder of site/ and lib/.
IN_PYTHON = os.environ.get("CLEBSCH_LAMMPS_IN_PYTHON", "")


def back_end_of(name: str, ranks: int) -> BackEnd:
    style = test_md.styles(min(ranks, max(1, torch.cuda.device_count())))[STYLES[name]]

    def launcher(count: int) -> list[str]:
        mpirun, *_ = test_md.engine.launcher(style.program, 2, os.environ.get("CLEBSCH_MPIRUN", ""))
        return [mpirun, "-n", str(count)]

    # On GPUs Kokkos has newton off by itself and refuses the command with which rows turn it on.
    flags = (*style.flags, *test_md.NEWTON_ON) if name == "kk-device" else style.flags
    program = style.program
    more = {"OMP_PROC_BIND": "false"} | test_md.engine.MPI_ENVIRONMENT
    in_python = bool(IN_PYTHON) and name == "cuda"
    if in_python:
        libraries = [f"{IN_PYTHON}/lib", os.environ.get("TORCH_LIBS", ""), os.environ.get("LD_LIBRARY_PATH", "")]
        more["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
        more["PYTHONPATH"] = os.pathsep.join(filter(None, [f"{IN_PYTHON}/site", os.environ.get("PYTHONPATH", "")]))
    return BackEnd(
        name, program.lmp, program.plugin, style.keywords, flags, gpu=True, launcher=launcher,
        environment=tuple(more.items()), seconds=SECONDS, python=in_python, launched=ranks > 1,
    )  # fmt: skip


def rows_of(ranks: int, part: int) -> list[tuple[int, Row]]:
    """The rows of a part, each with its place in the table."""
    return [(turn, row) for turn, row in enumerate(ROWS) if ranks in row.ranks][part::PARTS]


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    """outcomes(back end, ranks, part): row -> what its runs left behind. Of one rank two of the three jobs of a row,
    in turn."""
    known: dict[tuple[str, int, int], tuple[BackEnd, dict[str, list[Done]]]] = {}

    def of(name: str, ranks: int, part: int) -> tuple[BackEnd, dict[str, list[Done]]]:
        if (name, ranks, part) not in known:
            back_end = back_end_of(name, ranks)
            jobs = []
            for turn, row in rows_of(ranks, part):
                if not back_end.missing(row):
                    every = jobs_of(row, ranks, turn)
                    jobs += every if ranks > 1 else every[:1] + every[1:][turn % 2 :][:1]
            found: dict[str, list[Done]] = {}
            for done in run_jobs(jobs, back_end, ranks, tmp_path_factory.mktemp("options")):
                found.setdefault(done.job.row.name, []).append(done)
            known[name, ranks, part] = back_end, found
        return known[name, ranks, part]

    return of


@pytest.fixture(scope="session")
def record():
    """record(back end, ranks, row, cell): what options_matrix.Cells takes."""
    cells, known = options_matrix.Cells(), {}

    def add(back_end: BackEnd, ranks: int, row: str, cell: dict) -> None:
        known[back_end.name, ranks] = back_end
        cells.add(back_end.name, ranks, row, cell)

    yield add
    if (path := os.environ.get("CLEBSCH_OPTIONS_RECORD")) and known:
        name = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        cells.write(Path(f"{path}.{name}.json"), {name: back_end for (name, _), back_end in known.items()})


def cases() -> list:
    """`variant`, not `name` and `ranks`: tests of one variant stay in one process (conftest.py, TOGETHER)."""
    return [
        pytest.param((name, ranks, part), row, id=f"{name}-{ranks}-{row.name}")
        for name in STYLES
        for ranks in RANKS
        for part in range(PARTS)
        for _, row in rows_of(ranks, part)
    ]


@pytest.mark.parametrize(("variant", "row"), cases())
def test_option(outcomes, record, within, variant, row: Row):
    name, ranks, _ = variant
    if reason := test_md.missing(STYLES[name], max(2, ranks)):
        pytest.skip(reason)
    back_end, found = outcomes(*variant)
    if missing := back_end.missing(row):
        record(back_end, ranks, row.name, {"lacks": missing})
        pytest.skip(f"this LAMMPS lacks {missing}")
    cell, problems = judge(row, found[row.name], LIMIT)
    record(back_end, ranks, row.name, cell)
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
    if "worst" in cell:
        within({"option float64": cell["worst"]}, LIMIT)
