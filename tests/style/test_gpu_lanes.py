"""Order, limits and messages of scripts/gpu-lanes; its jobs are lines of the shell, and no GPU is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/gpu-lanes"


def lanes(tmp_path, plan: str, *options: str) -> subprocess.CompletedProcess:
    (tmp_path / "plan").write_text(plan)
    words = [sys.executable, SCRIPT, tmp_path / "plan", tmp_path / "out", "--bundle", tmp_path / "none"]
    words += ["--work", tmp_path / "work", *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env=os.environ | {"MARKS": str(tmp_path)})


def states(tmp_path) -> dict[str, str]:
    return {row["name"]: row["state"] for row in json.loads((tmp_path / "out/summary.json").read_text())}


def test_order_and_environment(tmp_path):
    plan = """
# A comment.
0 first 20 sleep 1; touch $MARKS/first
0a second 20 test -e $MARKS/first && echo $CUDA_VISIBLE_DEVICES >$OUTDIR/gpus
0b third 20 test -e $MARKS/first && test ! -e $OUT/second/done
0,1 both 20 test -e $OUT/second/gpus && echo $CUDA_VISIBLE_DEVICES $SECONDS_LEFT >$OUTDIR/gpus
cpu last 20 after=both test -e $OUT/both/gpus
"""
    done = lanes(tmp_path, plan)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(states(tmp_path).values()) == {"status 0"}
    assert (tmp_path / "out/second/gpus").read_text() == "0\n"
    assert (tmp_path / "out/both/gpus").read_text() == "0,1 20\n"


def test_side_by_side(tmp_path):
    """Each waits for the other's mark."""
    wait = "touch $MARKS/{0}; until test -e $MARKS/{1}; do sleep 0.05; done"
    plan = f"0 one 20 {wait.format('a', 'b')}\n1 two 20 {wait.format('b', 'a')}\n"
    assert lanes(tmp_path, plan).returncode == 0


def test_limits(tmp_path):
    plan = """
0 slow 9 echo before; sleep 50
0 wrong 20 exit 3
1 waits 20 after=wrong touch $MARKS/begun
cpu late 20 after=slow true
"""
    done = lanes(tmp_path, plan, "--seconds", "30")
    assert done.returncode == 1
    assert states(tmp_path) == {"slow": "out of time", "wrong": "status 3", "waits": "not begun", "late": "not begun"}
    assert (tmp_path / "out/slow/log.txt").read_text() == "before\n"
    assert not (tmp_path / "begun").exists()
    assert "waits: not begun, since wrong did not end with status 0" in done.stdout


def test_no_time(tmp_path):
    done = lanes(tmp_path, "0 one 20 true\n", "--seconds", "5")
    assert done.returncode == 1 and states(tmp_path) == {"one": "no time"}


@pytest.mark.parametrize(
    "line, said",
    [
        ("gpu one 20 true", "line 1: expected GPUS NAME SECONDS [after=JOB,...] COMMAND, got 'gpu one 20 true'"),
        ("0 one 20", "line 1: expected GPUS NAME SECONDS"),
        ("0 one 20 after=two true", "line 1: after=two, which is no job of a line above"),
        ("0 one 20 true\n1 one 20 true", "line 2: the name 'one' is taken"),
    ],
)
def test_wrong_lines(tmp_path, line, said):
    done = lanes(tmp_path, line)
    assert done.returncode == 1 and said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("plan", sorted((ROOT / "benchmarks/device/plans").glob("*.plan")), ids=lambda path: path.name)
def test_plans_of_the_tree(plan):
    words = [sys.executable, SCRIPT, plan, "/none", "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
