"""Features between ranks by every transport, without LAMMPS: every number to the bit.

GPUs are the CUDA emulator, and NCCL is MPI (emulated_nccl.cpp); tests/gpu/test_transports.py has the real ones."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from lammps_runs import MPI_ENVIRONMENT, ROOT, several

BINARIES = Path(os.environ.get("CLEBSCH_TEST_BINARIES", ROOT / "build/tests/lammps/bin"))
EMULATED_NCCL = BINARIES / "libemulated_nccl.so"
NAMES = {
    "host": "MPI on the host",
    "pinned": "pinned memory and MPI",
    "nccl": "NCCL 2.27.5",
    "aware": "MPI from GPU to GPU",
}


@pytest.fixture
def transports():
    """transports(ranks, *arguments, **environment) -> (exit status, what all ranks print)."""
    program = BINARIES / "transports"
    if not program.exists():
        pytest.skip("built without MPI or without CUDA")

    def run(ranks, *arguments, nccl=EMULATED_NCCL, **environment):
        environment = {**os.environ, **MPI_ENVIRONMENT, "CLEBSCH_NCCL": str(nccl), **environment}
        command = [*several(ranks), program, *map(str, arguments)]
        # Nobody may wait for ever.
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run


def check(transports, ranks, owners, way, transport, *, atoms=60, width=3, name=None, reason=None, **rest):
    """All ranks are fine, through the transport of that name, and say why it is not NCCL where there is a reason."""
    status, text = transports(ranks, "check", 7, atoms, owners, width, way, transport, **rest)
    lines = re.findall(r"rank \d+ fine through (.*?), rows (\d+), remote (\d+)(.*)", text)
    assert status == 0 and len(lines) == ranks, text
    assert {line[0] for line in lines} == {NAMES[name or transport]}
    for line in lines:
        assert (reason is None) == (line[3] == "") and (reason or "") in line[3], line
    return [(int(line[1]), int(line[2])) for line in lines]


@pytest.mark.parametrize("transport", NAMES)
@pytest.mark.parametrize("way", ["halo", "gather"])
@pytest.mark.parametrize("ranks, owners", [(1, 1), (2, 2), (2, 1), (3, 3), (4, 4), (4, 2)])
def test_every_bit(transports, ranks, owners, way, transport):
    """Both directions and number types, plans that grow and shrink, ranks without atoms, no memory in steady rounds."""
    rows = check(transports, ranks, owners, way, transport)
    assert sum(row for row, _ in rows) > 40


@pytest.mark.parametrize("way", ["halo", "gather"])
@pytest.mark.parametrize("atoms", [0, 1, 2])
def test_few_atoms(transports, way, atoms):
    check(transports, 3, 3, way, "pinned", atoms=atoms)
    check(transports, 3, 3, way, "nccl", atoms=atoms)


def test_messages_of_several_pieces(transports):
    """Pinned copies are cut into pieces of 4 MiB; rows of 48 kB."""
    check(transports, 2, 2, "halo", "pinned", atoms=300, width=1500)


def test_auto_takes_nccl(transports):
    check(transports, 2, 2, "halo", "auto", name="nccl")


def test_a_shared_gpu(transports):
    """NCCL needs a GPU a rank: `auto` takes pinned memory and says so, `nccl` is an error."""
    reason = "ranks 0 and 1 share GPU-00112233-4455-6677-8899-aabbccddeeff, and NCCL needs a GPU a rank"
    check(transports, 2, 2, "halo", "auto", name="pinned", reason=reason, CLEBSCH_TEST_SHARED="1")
    status, text = transports(2, "check", 7, 60, 2, 3, "halo", "nccl", CLEBSCH_TEST_SHARED="1")
    assert status != 0 and f"transport nccl: {reason}" in text


def test_no_nccl(transports):
    check(transports, 2, 2, "halo", "auto", name="pinned", reason="Tried /none", nccl="/none")


def test_ncclless_library(transports):
    reason = "has no function ncclGetVersion"
    check(transports, 2, 2, "halo", "auto", name="pinned", reason=reason, nccl="libdl.so.2")


def test_a_rank_cannot_connect(transports):
    """All ranks go the other way together."""
    reason = "rank 1: ncclCommInitRankConfig failed: invalid usage"
    check(transports, 3, 3, "halo", "auto", name="pinned", reason=reason, EMULATED_NCCL_FAULT="init")


def test_connecting_takes_too_long(transports):
    """A wait for ranks that never join ends, and the reason is told."""
    status, text = transports(2, "fault", 0.5, EMULATED_NCCL_FAULT="late")
    reason = "rank 0: ncclCommInitRankConfig has not ended within 0.5 s: another rank has stopped or hangs"
    assert status != 0 and reason in text, text


def test_torchs_nccl(transports):
    """The library of torch's wheel has all functions; without a GPU it does not connect, and the reason is told."""
    torch = pytest.importorskip("torch")
    library = Path(torch.__file__).parents[1] / "nvidia/nccl/lib/libnccl.so.2"
    if not library.exists():
        pytest.skip(f"this torch brings no NCCL: {library}")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: tests/gpu/test_transports.py")
    check(transports, 2, 2, "halo", "auto", name="pinned", reason="ncclCommInitRankConfig failed", nccl=library)


@pytest.mark.parametrize(
    "fault, reason",
    [
        ("async", "NCCL reports an error of the exchange of features between GPUs: remote process exited"),
        ("hang", "has not ended within 0.5 s: another rank has stopped or hangs"),
    ],
)
def test_faults_end_the_wait(transports, fault, reason):
    """What the host waits for ends, and the reason is told."""
    _, text = transports(2, "fault", 0.5, EMULATED_NCCL_FAULT=fault)
    assert reason in text and "not ended\n" not in text, text


def test_what_a_late_rank_writes_into():
    """A rank that gave up a plan has not freed what MPI still receives into while it says why."""
    program = BINARIES / "late_rank"
    if not program.exists():
        pytest.skip("built without MPI")
    command = [*several(2), program]
    done = subprocess.run(command, env={**os.environ, **MPI_ENVIRONMENT}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "fine" in done.stdout, done


def test_measure(transports, tmp_path):
    """The program of the benchmark compares all transports with each other."""
    status, text = transports(2, "measure", tmp_path / "times.jsonl")
    assert status == 0 and text.count("fine") == 2, text
    assert len((tmp_path / "times.jsonl").read_text().splitlines()) == 3 * 3 * 2
