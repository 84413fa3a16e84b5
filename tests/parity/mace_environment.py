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


def run(program: str, *arguments: str) -> Any:
    """What tests/parity/<program> prints as JSON on its last line. Without mace-torch: skips, or fails where
    CLEBSCH_REQUIRE_MACE=1 says that it must be there."""
    if not (MACE / "mace").is_dir():
        missing = f"mace-torch is not in {MACE}: scripts/test installs it from scripts/requirements-mace.txt"
        if os.environ.get("CLEBSCH_REQUIRE_MACE") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(MACE), str(ROOT / "src" / "python")])}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name(program)), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
