"""GPUs of ranks, made up: every rank hears what the others see, also when looking fails on one of them.

The rules themselves are tested without MPI (tests/unit/plugin_device_choice_test.cpp)."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from lammps_runs import MPI_ENVIRONMENT, several

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r'rank (\d+) device (\S+) warning "(.*)" error "(.*)"')


@pytest.fixture
def choose():
    """choose(wanted, views, ranks_a_node) -> ([device], warning, error); the last two are the same on all ranks."""
    folder = Path(os.environ.get("CLEBSCH_TEST_BINARIES", ROOT / "build/tests/lammps/bin"))
    program = folder / "device_choices"
    if not program.exists():
        pytest.skip("built without MPI")

    def run(wanted, views, ranks_a_node):
        environment = {**os.environ, **MPI_ENVIRONMENT}
        command = [*several(len(views)), program, wanted, str(ranks_a_node), *views]
        # Nobody may wait for ever.
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = sorted(LINE.findall(done.stdout), key=lambda line: int(line[0]))
        assert len(lines) == len(views), done.stdout
        ((warning, error),) = {line[2:] for line in lines}
        return [line[1] for line in lines], warning, error

    return run


def test_two_nodes(choose):
    devices, warning, error = choose("cuda", ["a,b", "a,b", "c,d", "c,d"], 2)
    assert devices == ["cuda:0", "cuda:1"] * 2 and warning == error == ""


def test_a_gpu_for_each_rank(choose):
    """All are cuda:0 and none is shared."""
    assert choose("cuda", ["a", "b"], 2) == (["cuda:0", "cuda:0"], "", "")
    devices, warning, _ = choose("cuda", ["a", "a"], 2)
    assert devices == ["cuda:0", "cuda:0"] and "2 ranks share a GPU (a" in warning


@pytest.mark.parametrize("views", [["a", "none"], ["none", "a"]])
def test_a_rank_without_a_gpu(choose, views):
    devices, warning, error = choose("auto", views, 1)
    assert devices == ["cpu", "cpu"] and error == ""
    assert re.search(rf"because rank {views.index('none')} \(\S+\) sees no GPU: device cuda: the NVIDIA", warning)


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
@pytest.mark.parametrize("views", [["throws", "a"], ["a", "throws"], ["none", "throws"]])
def test_looking_fails_on_one_rank(choose, wanted, views):
    """The other ranks do not wait for it: all end with its message."""
    _, _, error = choose(wanted, views, 2)
    assert re.search(rf"cannot on rank {views.index('throws')} \(\S+\): CUDA error: out of memory", error)
