"""Two ranks in LAMMPS, and the GPU of one of them fails, or one rank hangs in an exchange of NCCL: both end within 30
seconds (and the time that a rank is waited for), one message names the cause.

Environment as for test_md.py, and a C++ compiler (CXX, by default c++). Faults on the CPU: tests/lammps/test_faults.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks/md"))
import engine  # noqa: E402
from model_cases import lacks  # noqa: E402
from test_md import Variant, input_of, missing, styles  # noqa: E402

from cases import BASES, CASES  # noqa: E402

LIMIT = 30
CXX = os.environ.get("CXX", "c++")


def compiled(source: str, folder: Path) -> Path:
    """A library of a source beside this file."""
    if shutil.which(CXX) is None:
        lacks(f"no C++ compiler '{CXX}' (CXX)")
    library = folder / f"lib{source}.so"
    words = [CXX, "-std=c++17", "-shared", "-fPIC", "-o", library, Path(__file__).with_name(f"{source}.cpp"), "-ldl"]
    subprocess.run(words, check=True)
    return library


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory) -> Path:
    return compiled("gpu_faults", tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def hung_nccl(tmp_path_factory) -> Path:
    return compiled("hung_nccl", tmp_path_factory.mktemp("hung"))


def started(folder: Path, style: engine.Style, way: str, before: str, head: list[str], more: dict[str, str]):
    """A run of 2000 steps on two ranks, begun after the commands `before`: (seconds that it took, what was said)."""
    steps = f"fix motion all nve\n{before}shell date +begun%s\nrun 2000"
    variant = Variant("a fault", "water", run=steps, keywords=f"comm {way}", copies="2 2 2")
    case = CASES[variant.case]
    (folder / "base.data").write_text(BASES[case.base]().data())
    (folder / "in.md").write_text(input_of(variant, case, style, "float32"))
    program = [*head, style.program.lmp, *style.flags, "-in", "in.md", "-log", "log.md"]
    command = engine.launcher(style.program, 2, os.environ.get("CLEBSCH_MPIRUN", "")) + program
    environment = os.environ | engine.MPI_ENVIRONMENT | {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"} | more
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150
    )
    end = time.time()
    begun = re.search(r"begun(\d+)", done.stdout)
    assert begun and done.returncode != 0, done.stdout
    return end - int(begun[1]), done.stdout


def only_error(said: str, rank: int) -> str:
    """The one message, which is the style's on that rank."""
    errors = re.findall(r"^ERROR.*(?:\n(?!ERROR).+)*", said, re.MULTILINE)
    assert len(errors) == 1 and errors[0].startswith(f"ERROR on proc {rank}: Pair style clebsch"), said
    return " ".join(errors[0].split())


MEMORY = ("memory:1", "", "out of memory")  # when the first step makes its arrays
COPY = ("copy:20", "run 0\n", "illegal memory access")


@pytest.mark.parametrize("way", ["halo", "ghost"])
@pytest.mark.parametrize(
    "name, fault, before, said",
    [
        pytest.param("cuda", *MEMORY, id="memory-cuda"),
        pytest.param("kk", *MEMORY, id="memory-kk"),
        # Not clebsch/kk: positions and forces stay on its GPU, torch copies nothing in a step that needs no new room.
        pytest.param("cuda", *COPY, id="copy-cuda"),
    ],
)
def test_one_rank(preloaded, tmp_path, name, way, fault, before, said):
    if why := missing(name, 2):
        lacks(why)
    before += f"shell putenv CLEBSCH_GPU_FAULT=1:{fault}\n"
    seconds, output = started(tmp_path, styles()[name], way, before, ["env", f"LD_PRELOAD={preloaded}"], {})
    assert seconds < LIMIT, output
    assert said in only_error(output, 1)


@pytest.mark.parametrize("way", ["halo", "gather"])
@pytest.mark.parametrize("name", ["cuda", "kk"])
def test_a_rank_that_hangs_in_nccl(hung_nccl, tmp_path, name, way):
    """Rank 1 lives and sends nothing. The other one's stream waits for it until its communicator is aborted; clebsch/kk
    also asks the ranks for a verdict on each step, and whichever wait is over first speaks."""
    if why := missing(name, 2):
        lacks(why)
    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL needs a GPU a rank, there is one GPU")
    nccl = Path(torch.__file__).parents[1] / "nvidia/nccl/lib/libnccl.so.2"
    more = {
        "CLEBSCH_NCCL": str(hung_nccl),
        "HUNG_NCCL": "1:40",
        "CLEBSCH_COMM_TIMEOUT": "15",
    }  # longer than NCCL takes to connect
    more |= {"HUNG_NCCL_REAL": str(nccl)} if nccl.exists() else {}
    seconds, output = started(tmp_path, styles(2)[name], way, "", [], more)
    assert f"comm {way} through NCCL" in output, output
    assert 14 < seconds < 15 + LIMIT, output
    reasons = ["the exchange of features between GPUs has not ended within 15 s: another rank has stopped or hangs"]
    reasons += ["within 15 s (CLEBSCH_COMM_TIMEOUT), got no answer"] if name == "kk" else []
    error = only_error(output, 0)
    assert any(reason in error for reason in reasons), error
