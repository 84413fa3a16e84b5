"""libclebsch beside other libraries in one process: a foreign BLAS that captures torch's matrix products is noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clebsch import library

pytestmark = pytest.mark.usefixtures("needs_library")

ASK = """
import torch
torch.ops.load_library({path!r})
print(torch.classes.clebsch.Model.check_blas())
"""

# Products that are wrong: nothing is written. Any BLAS interface with other conventions behaves like this or worse.
FAKE = """
void sgemm_(void) {}
void dgemm_(void) {}
"""


def ask(**environment: str) -> str:
    script = ASK.format(path=str(library.require()))
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_torchs_own_blas_is_fine() -> None:
    assert ask() == ""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_foreign_blas_is_named(tmp_path: Path) -> None:
    (tmp_path / "fake.c").write_text(FAKE)
    fake = tmp_path / "libfakeblas.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", fake, tmp_path / "fake.c"], check=True)
    message = ask(LD_PRELOAD=str(fake))
    assert "libfakeblas.so" in message and "wrong" in message, message


def test_nothing_is_printed(tmp_path: Path) -> None:
    """Loading the library, and being refused, write nothing to the terminal."""
    script = (
        f"import torch\ntorch.ops.load_library({str(library.require())!r})\n"
        "try:\n    torch.classes.clebsch.Model('/nonexistent', {})\nexcept RuntimeError:\n    pass\n"
        "try:\n    torch.classes.clebsch.Model('/nonexistent', {'speed': 'high'})\nexcept RuntimeError:\n    pass\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
