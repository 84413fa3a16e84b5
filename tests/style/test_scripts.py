"""Scripts refuse wrong arguments before they set anything up."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "words, said",
    [
        (["scripts/test", "--minutes", "1.5"], "--minutes: expected a whole number of minutes, got '1.5'"),
        (["scripts/test", "--minutes=08"], "--minutes: expected a whole number of minutes, got '08'"),
        (["scripts/quickstart", "--model", "gold"], "--model: expected water or carbon, got gold"),
        (["scripts/quickstart", "--fast"], "unknown option: --fast"),
    ],
)
def test_wrong_arguments(words, said):
    done = subprocess.run(["bash", *words], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and said in done.stderr
    assert "->" not in done.stdout and "already done" not in done.stdout
