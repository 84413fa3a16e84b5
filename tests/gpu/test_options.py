"""The table of tests/lammps/options on a GPU: `device cuda` and clebsch/kk, 1 and 2 ranks, against its fp64 reference.

A test is a row on a back end and a number of ranks; the first of them runs all rows of both, in a few processes of
LAMMPS. Programs and plugins are those of test_md.py. CLEBSCH_OPTIONS_RECORD is what the names of files begin with that
get the outcomes for tests/lammps/options/options_matrix.py, a file from each process of pytest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import test_md

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lammps"), str(HERE.parent / "lammps/options")]

import options_matrix  # noqa: E402
from option_row import Row  # noqa: E402
from option_rows import ROWS  # noqa: E402
from option_runs import BackEnd, Done, jobs_of, judge, run_jobs  # noqa: E402

LIMIT = 1e-10
RANKS = (1, 2)
#: Seconds that one process of LAMMPS may take; a test's own limit is 240.
SECONDS = 150


def back_end_of(name: str) -> BackEnd:
    style = test_md.styles()[{"cuda": "cuda", "kk-device": "kk"}[name]]

    def launcher(ranks: int) -> list[str]:
        return test_md.engine.launcher(style.program, ranks, os.environ.get("CLEBSCH_MPIRUN", ""))

    program = style.program
    more = (("OMP_PROC_BIND", "false"), *test_md.engine.MPI_ENVIRONMENT.items())
    return BackEnd(
        name, program.lmp, program.plugin, style.keywords, style.flags, gpu=True, launcher=launcher, environment=more,
        seconds=SECONDS,
    )  # fmt: skip


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    """outcomes(back end, ranks): row -> what its runs left behind. Of one rank two of the
    three jobs of a row, in turn."""
    known: dict[tuple[str, int], tuple[BackEnd, dict[str, list[Done]]]] = {}

    def of(name: str, ranks: int) -> tuple[BackEnd, dict[str, list[Done]]]:
        if (name, ranks) not in known:
            back_end = back_end_of(name)
            jobs = []
            for turn, row in enumerate(ROWS):
                if ranks in row.ranks and not back_end.missing(row):
                    every = jobs_of(row, ranks, turn)
                    jobs += every if ranks > 1 else every[:1] + every[1:][turn % 2 :][:1]
            found: dict[str, list[Done]] = {}
            for done in run_jobs(jobs, back_end, ranks, tmp_path_factory.mktemp("options")):
                found.setdefault(done.job.row.name, []).append(done)
            known[name, ranks] = back_end, found
        return known[name, ranks]

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
        name = "+".join(f"{name}-{ranks}" for name, ranks in sorted(known))
        cells.write(Path(f"{path}.{name}.json"), {name: back_end for (name, _), back_end in known.items()})


def cases() -> list:
    """`variant`, not `name` and `ranks`: tests of one variant stay in one process (conftest.py, TOGETHER)."""
    return [
        pytest.param((name, ranks), row, id=f"{name}-{ranks}-{row.name}")
        for name in ("cuda", "kk-device")
        for ranks in RANKS
        for row in ROWS
        if ranks in row.ranks
    ]


@pytest.mark.parametrize(("variant", "row"), cases())
def test_option(outcomes, record, within, variant, row: Row):
    name, ranks = variant
    if reason := test_md.missing({"cuda": "cuda", "kk-device": "kk"}[name], ranks):
        pytest.skip(reason)
    back_end, found = outcomes(name, ranks)
    if missing := back_end.missing(row):
        record(back_end, ranks, row.name, {"lacks": missing})
        pytest.skip(f"this LAMMPS lacks {missing}")
    cell, problems = judge(row, found[row.name], LIMIT)
    record(back_end, ranks, row.name, cell)
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
    if "worst" in cell:
        within({"option float64": cell["worst"]}, LIMIT)
