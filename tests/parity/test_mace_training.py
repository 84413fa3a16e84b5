"""Training a MACE model on Clebsch's convolution gives upstream's losses.

mace-torch pins another e3nn than nequip, so it lives in a folder of its own (scripts/requirements-mace.txt, which
scripts/test installs into .deps/mace) and runs in a process of its own (mace_training.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACE = Path(os.environ.get("CLEBSCH_MACE_PATH", ROOT / ".deps" / "mace"))

pytestmark = pytest.mark.usefixtures("needs_library")


@pytest.fixture(scope="module")
def results() -> dict:
    if not (MACE / "mace").is_dir():
        pytest.skip(f"mace-torch is not in {MACE}: scripts/test installs it from scripts/requirements-mace.txt")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(MACE), str(ROOT / "src" / "python")])}
    program = Path(__file__).with_name("mace_training.py")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "block", ["RealAgnosticResidualInteractionBlock", "RealAgnosticDensityResidualInteractionBlock"]
)
def test_same_losses_as_upstream(results: dict, block: str) -> None:
    result = results[block]
    assert result["converted"] == 2
    assert result["same_state_dict"]
    assert result["expected"][0] != pytest.approx(result["expected"][-1], rel=1e-3)
    assert result["got"] == pytest.approx(result["expected"], rel=1e-9)


def test_refuses_other_models(results: dict) -> None:
    assert "expected a MACE model" in results["refused"]
