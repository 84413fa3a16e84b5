"""Running a program where mace-torch is: it pins another e3nn than nequip, so it lives in a folder of its own
(scripts/requirements-mace.txt, which scripts/test installs into .deps/mace) and runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACE = Path(os.environ.get("CLEBSCH_MACE_PATH", ROOT / ".deps" / "mace"))
#: cuEquivariance (scripts/requirements-cueq.txt): mace-torch builds other models with it, so tests have to ask for it.
CUEQ = Path(os.environ.get("CLEBSCH_CUEQ_PATH", ROOT / ".deps" / "cueq"))


def run(program: str, *arguments: str, cueq: bool = False) -> Any:
    """What tests/parity/<program> prints as JSON on its last line. Without mace-torch, or cuEquivariance if asked for:
    skips, or fails where CLEBSCH_REQUIRE_MACE=1 says that they must be there."""
    folders = [MACE, CUEQ] if cueq else [MACE]
    for folder, package in zip(folders, ("mace", "cuequivariance_torch"), strict=False):
        if not (folder / package).is_dir():
            missing = f"{package} is not in {folder}: scripts/test installs it from scripts/requirements-*.txt"
            if os.environ.get("CLEBSCH_REQUIRE_MACE") == "1":
                pytest.fail(missing)
            pytest.skip(missing)
    path = os.pathsep.join(map(str, [*folders, ROOT / "src" / "python"]))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name(program)), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
