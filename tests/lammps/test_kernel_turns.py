"""GPU kernels are compiled once a node: the first rank compiles, the others find its files, and errors reach all."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from lammps_runs import MPI_ENVIRONMENT, several

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r'rank (\d+) compiled (\d+) found (\d+) error "(.*)" notice "(.*)"')


@pytest.fixture
def turns(tmp_path):
    """turns(case, ranks, folder, ranks_a_node) -> [(compiled, found, error, notice)], by rank."""
    folder = Path(os.environ.get("CLEBSCH_TEST_BINARIES", ROOT / "build/tests/lammps/bin"))
    program = folder / "kernel_turns"
    if not program.exists():
        pytest.skip("built without the GPU backend or without MPI")

    def run(case, ranks, cache=tmp_path / "cache", ranks_a_node=0):
        environment = {**os.environ, **MPI_ENVIRONMENT}
        command = [*several(ranks), program, case, cache, str(ranks_a_node)]
        # Nobody may wait for ever.
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        found = [LINE.match(line) for line in done.stdout.splitlines()]
        assert [int(m[1]) for m in found] == list(range(ranks)), done.stdout
        return [(int(m[2]), int(m[3]), m[4], m[5]) for m in found]

    return run


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_one_rank_compiles(turns, ranks, tmp_path):
    assert turns("good", ranks) == [(2, 0, "", "")] + [(0, 2, "", "")] * (ranks - 1)
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert turns("good", ranks) == [(0, 2, "", "")] * ranks


def test_one_rank_a_node(turns):
    assert turns("good", 4, ranks_a_node=2) == [(2, 0, "", ""), (0, 2, "", "")] * 2


def test_without_a_cache_every_rank_compiles(turns):
    """And says so in one message, the same on all ranks."""
    done = turns("good", 3, cache="/dev/null/cache")
    assert [line[:3] for line in done] == [(2, 0, "")] * 3
    (notice,) = {line[3] for line in done}
    assert "/dev/null/cache cannot be made" in notice


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_cache_that_takes_no_file(turns, ranks, tmp_path):
    """Every rank compiles for itself and goes on; all know why, and no half of a file is left."""
    done = turns("refused", ranks)
    assert [line[:3] for line in done] == [(2, 0, "")] * ranks
    (notice,) = {line[3] for line in done}
    assert notice == f"the folder {tmp_path / 'cache'} did not take a file: Is a directory"
    assert all(path.is_dir() for path in (tmp_path / "cache").iterdir())


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("error", "1 of 2 GPU kernels could not be compiled: second of 'a problem'"),
        ("late", "ran out of something"),
        ("foreign", "unknown error"),
    ],
)
def test_errors_reach_every_rank(turns, case, message, ranks):
    done = turns(case, ranks)
    (error,) = {line[2] for line in done}
    assert message in error
    if case == "error":
        assert "undeclared_name" in error  # the compiler's log


def test_errors_without_a_cache(turns):
    """Every rank compiles for itself and fails; the error is told once."""
    (error,) = {line[2] for line in turns("error", 2, cache="/dev/null/cache")}
    assert error.count("could not be compiled:") == 1


def test_errors_of_another_node(turns):
    """The last rank of the last of two nodes fails: the first node hears of it."""
    done = turns("late", 4, ranks_a_node=2)
    assert {line[2] for line in done} == {"rank 3 ran out of something"}
