"""The command line in a process of its own, and a Python without packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def clebsch_program(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "clebsch", *map(str, arguments)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def plain_python(folder: Path) -> Path:
    """A Python without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "plain"], check=True)
    return folder / "plain/bin/python"
