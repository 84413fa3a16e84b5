"""Two ranks in LAMMPS, and the GPU of one of them fails: both end within 30 seconds, one message names the cause.

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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks/md"))
import engine  # noqa: E402
from test_md import Variant, input_of, missing, styles  # noqa: E402

from cases import BASES, CASES  # noqa: E402

LIMIT = 30
CXX = os.environ.get("CXX", "c++")


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory) -> Path:
    if shutil.which(CXX) is None:
        pytest.skip(f"no C++ compiler '{CXX}' (CXX)")
    library = tmp_path_factory.mktemp("faults") / "libgpufaults.so"
    source = Path(__file__).with_name("gpu_faults.cpp")
    subprocess.run([CXX, "-std=c++17", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("way", ["halo", "ghost"])
@pytest.mark.parametrize("name", ["cuda", "kk"])
@pytest.mark.parametrize(
    "fault, before, said",
    [
        ("memory:1", "", "out of memory"),  # when the first step makes its arrays
        ("copy:20", "run 0\n", "illegal memory access"),
    ],
    ids=["memory", "copy"],
)
def test_one_rank(preloaded, tmp_path, name, way, fault, before, said):
    if why := missing(name, 2):
        pytest.skip(why)
    style = styles()[name]
    steps = f"fix motion all nve\n{before}shell putenv CLEBSCH_GPU_FAULT=1:{fault}\nshell date +begun%s\nrun 2000"
    variant = Variant("a fault", "water", run=steps, keywords=f"comm {way}", copies="2 2 2")
    case = CASES[variant.case]
    (tmp_path / "base.data").write_text(BASES[case.base]().data())
    (tmp_path / "in.md").write_text(input_of(variant, case, style, "float32"))
    program = ["env", f"LD_PRELOAD={preloaded}", style.program.lmp, *style.flags, "-in", "in.md", "-log", "log.md"]
    command = engine.launcher(style.program, 2, os.environ.get("CLEBSCH_MPIRUN", "")) + program
    environment = os.environ | engine.MPI_ENVIRONMENT | {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150
    )
    end = time.time()
    begun = re.search(r"begun(\d+)", done.stdout)
    assert begun and done.returncode != 0, done.stdout
    assert end - int(begun[1]) < LIMIT, done.stdout
    errors = re.findall(r"^ERROR.*(?:\n(?!ERROR).+)*", done.stdout, re.MULTILINE)
    assert len(errors) == 1 and errors[0].startswith("ERROR on proc 1: Pair style clebsch"), done.stdout
    assert said in " ".join(errors[0].split()), errors[0]
