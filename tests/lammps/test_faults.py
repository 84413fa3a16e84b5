"""One rank of several fails in the middle of a run: all end within 30 seconds, one message names the cause, and no
process and no half of a file is left. (A full disk for compiled kernels: test_kernel_turns.py, test_compile.py.)"""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fault_runs import FAULTS, FaultyLammps
from lammps_runs import Lammps, random_system, usual

from conftest import tiny_model

LMP_KK, PLUGIN_KK = os.environ.get("CLEBSCH_KK_LMP", ""), os.environ.get("CLEBSCH_KK_PLUGIN", "")
WAYS = ("halo", "ghost", "allegro", "kk", "kk allegro")
every_way = pytest.mark.parametrize("way", WAYS)


def ways(*few):
    """By day each test meets some ways, and each way some tests."""
    return pytest.mark.parametrize("way", usual(WAYS, *few))


on_ranks = pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.nightly)])


@pytest.fixture(scope="module")
def allegro_model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("models"), "dtype=float64", script="tiny_allegro.py")


@pytest.fixture
def pair(model, allegro_model):
    """The commands of a way to compute."""

    def commands(way, before_coeff=""):
        style = {"halo": "comm halo device cpu", "ghost": "comm ghost"}.get(way, "device cpu")
        file = allegro_model if "allegro" in way else model
        return f"pair_style clebsch {style}\n{before_coeff}pair_coeff * * {file} O H\n"

    return commands


@pytest.fixture
def faulty(lammps, tmp_path):
    """faulty(way, ...): a run in which a rank fails."""
    if not FAULTS.exists():
        pytest.skip(f"built without MPI: there is no {FAULTS}")

    def run(way, system, *arguments, **rest):
        program = lammps
        if way.startswith("kk"):
            if not (Path(LMP_KK).is_file() and Path(PLUGIN_KK).is_file()):
                pytest.skip(
                    f"no LAMMPS with Kokkos and plugin for it in '{LMP_KK}' and '{PLUGIN_KK}' (CLEBSCH_KK_LMP, ...)"
                )
            program = Lammps(LMP_KK, PLUGIN_KK, tmp_path)
            rest["arguments"] = ["-k", "on", "t", "1", "-sf", "kk"]
        return FaultyLammps(program)(system, *arguments, **rest)

    return run


def box():
    return random_system(atoms=120, lengths=(20.0, 8.0, 10.0), spacing=1.2)


@pytest.mark.nightly
@on_ranks
@every_way
def test_memory(faulty, pair, way, ranks):
    """Allocations of 20 kB and more fail on one rank, torch's and the style's."""
    run = faulty(way, box(), pair(way), ranks, f"{ranks - 1}:memory:20000:20")
    run.assert_stopped("Pair style clebsch", "step", "out of memory on the host", rank=ranks - 1)


@on_ranks
@ways("halo", "kk allegro")
def test_exception(faulty, pair, way, ranks):
    run = faulty(way, box(), pair(way), ranks, f"{ranks - 1}:throw:512:40")
    run.assert_stopped("Pair style clebsch", "an exception of the test", rank=ranks - 1)


@on_ranks
def test_exception_while_others_wait(faulty, pair, ranks):
    """In the exchange of features, after some of its messages."""
    run = faulty("halo", box(), pair("halo"), ranks, f"1:throw:send:{5 * ranks}")
    run.assert_stopped("Pair style clebsch", "an exception of the test", rank=1)


@on_ranks
@ways("ghost", "kk")
def test_numbers_that_are_none(faulty, pair, way, ranks):
    """Two atoms at one place, next to several ranks: all that see them fail, and one says where it began."""
    system = box()
    system.positions[3] = system.positions[5] = [10.01, 4.01, 5.01]
    run = faulty(way, system, pair(way), ranks, before="", run="run 5")
    run.assert_stopped("expected a finite", "where atom IDs 4 and 6 are the closest pair, 0 Angstrom apart")


@on_ranks
@ways("allegro", "kk")
def test_positions_that_are_no_numbers(faulty, pair, way, ranks):
    """Between two neighbour lists LAMMPS does not look."""
    away = "group first id 7\nvelocity first set 1e308 0 0\nneigh_modify delay 100 every 100 check no\n"
    run = faulty(way, box(), pair(way), ranks, before="", after=away, run="timestep 10\nrun 5")
    run.assert_stopped("expected finite coordinates", "for atom ID 7 at step 1")


@on_ranks
@ways("ghost", "allegro")
def test_killed(faulty, pair, way, ranks):
    """By the system for want of memory, say: the launcher ends the others and says which signal it was."""
    run = faulty(way, box(), pair(way), ranks, f"{ranks - 1}:kill:20000:20")
    run.assert_gone()
    assert run.errors == [] and "Killed (signal 9)" in run.output, run.output


@on_ranks
@pytest.mark.parametrize("who", ["launcher", "rank"])
def test_interrupted(faulty, pair, who, ranks):
    """Ctrl-C in the terminal; the signal to one process."""
    if who == "launcher":
        run = faulty("halo", box(), pair("halo"), ranks, run="run 10000000", interrupt=True)
    else:
        run = faulty("halo", box(), pair("halo"), ranks, "1:interrupt:20000:20")
    run.assert_gone()
    # MPICH's launcher joins the ranks' signals bit by bit: 2, and the 9 that it ended the others with, may become 11.
    numbers = {int(number) for number in re.findall(r"\(signal (\d+)\)", run.output)}
    assert run.errors == [] and len(numbers) == 1 and numbers <= {2, 2 | 9}, run.output


SOON = {"CLEBSCH_COMM_TIMEOUT": "3"}


def side_by_side(run, cases) -> list:
    """What run(case) returns for each, at a time: most of it is waiting."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(run, cases))


@on_ranks
def test_a_rank_that_does_not_come(faulty, pair, ranks):
    """It hangs in the exchange, or between two of them: the others' wait has a deadline. The launcher ends it."""

    def run_with(where):
        return faulty("halo", box(), pair("halo"), ranks, f"1:stop:{where}:20", env=SOON)

    cases = ("send", "20000")
    for where, run in zip(cases, side_by_side(run_with, cases), strict=True):
        run.assert_stopped("within 3 s (CLEBSCH_COMM_TIMEOUT), got no answer")
        assert not run.errors[0].startswith("ERROR on proc 1")
        assert where != "send" or re.search(r"the exchange of \w+ behind layer \d with rank", run.errors[0])
        assert run.seconds > 3


def test_a_dead_rank_that_nobody_noticed(faulty, pair):
    """The launcher leaves the others alone."""
    run = faulty("halo", box(), pair("halo"), 2, "1:kill:send:20", env=SOON, unnoticed=True)
    run.assert_stopped("with rank 1 within 3 s", rank=0)


def test_a_late_rank(faulty, pair):
    """Four seconds are not too late for a deadline of 20, nor for none."""

    def run_with(seconds):
        env = {"CLEBSCH_COMM_TIMEOUT": seconds}
        return faulty("halo", box(), pair("halo"), 2, "1:sleep:send:9", env=env, run="run 4")

    for run in side_by_side(run_with, ("20", "0")):
        assert run.returncode == 0 and "all steps done" in run.output, run.output
        assert run.seconds > 3.5


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "5 minutes"])
def test_a_deadline_that_is_none(faulty, pair, text):
    run = faulty("halo", box(), pair("halo"), 2, env={"CLEBSCH_COMM_TIMEOUT": text})
    run.assert_stopped(f"expected a number of seconds (0: no limit) in CLEBSCH_COMM_TIMEOUT, got '{text}'")


@pytest.mark.nightly
@on_ranks
@pytest.mark.parametrize("way", ["halo", "allegro", "kk"])
def test_memory_at_load(faulty, pair, way, ranks):
    """For the bytes of the file, and later on: all ranks stop together. (`device cpu`: to ask for GPUs, MPI itself
    takes memory, and ends the process without any.)"""
    size = os.path.getsize(pair(way).split()[-3])
    for fault in (f"{size}:1", "20000:10"):
        command = f"shell putenv CLEBSCH_FAULT={ranks - 1}:memory:{fault}\n"
        run = faulty(way, box(), pair(way, command), ranks, before="")
        run.assert_stopped("Pair style clebsch: ", "out of memory on the host")
