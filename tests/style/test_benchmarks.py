"""benchmarks/run and its records: nothing is measured here."""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: str):
    """A program without an ending as a module."""
    name = path.replace("/", "_").replace("-", "_")
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module  # dataclasses look there
    loader.exec_module(module)
    return module


run, report = load("benchmarks/run"), load("scripts/report")
common = run.common
RECORD = {
    "name": "a_ms", "value": 1.23456789, "unit": "ms", "spread": 0.1, "dtype": "float32", "deterministic": True,
    "error": 1e-7, "peer": {"name": "p", "version": "1", "value": 2.0, "more": 3}, "machine": "m", "torch": "2.11.0",
    "driver": "", "commit": "abc", "date": "2026-01-01", "command": "c", "atoms": 8,
}  # fmt: skip


@pytest.mark.parametrize("name", run.BENCHMARKS)
def test_every_program_is_there(name, tmp_path):
    options = argparse.Namespace(device="cpu")
    filled = run.values({"CLEBSCH_LIBRARY": "libclebsch.so"}, options, tmp_path)
    benchmark = run.BENCHMARKS[name]
    for step in (*benchmark.steps, *benchmark.before):
        command = run.command_of(step, filled, benchmark.under)
        program = Path(command[command.index("ignore") + 1])
        assert program.is_file() or (program / "__main__.py").is_file(), program
        assert not any("{" in word or "%20" in word for word in command)
    assert 0 < benchmark.limit <= 1800 and benchmark.what


def test_a_list_and_an_unknown_name():
    listed = subprocess.run([sys.executable, ROOT / "benchmarks/run", "--list"], capture_output=True, text=True)
    assert listed.returncode == 0 and all(name in listed.stdout for name in run.BENCHMARKS)
    unknown = subprocess.run([sys.executable, ROOT / "benchmarks/run", "no-such"], capture_output=True, text=True)
    assert unknown.returncode == 2 and "no-such" in unknown.stderr


def test_records_replace_those_of_the_same_name(tmp_path):
    path = tmp_path / "summary.json"
    common.merge([RECORD, RECORD | {"name": "b_ms"}], path)
    common.merge([RECORD | {"value": 5.0, "commit": "def", "dirty": True}], path)
    first, second = json.loads(path.read_text())
    assert (first["name"], first["value"], first["commit"]) == ("a_ms", 5.0, "def-dirty")
    assert second["value"] == 1.23457 and set(second["peer"]) == {"name", "version", "value"}
    assert report.damage([first, second]) == []


def test_a_record_without_a_commit_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a_ms: expected commit"):
        common.merge([RECORD | {"commit": ""}], tmp_path / "summary.json")


def test_a_target_must_be_reached():
    target = {"name": "a_ms", "unit": "ms", "sense": "max", "must": 1.0, "goal": 0.5}
    record = common.kept_part(RECORD)
    assert report.problems_of([target], [record]) == ["a_ms: expected 1 ms, got 1.235"]
    assert report.problems_of([target | {"must": 2.0}], [record]) == []
    assert report.problems_of([target | {"name": "other"}], [record]) == ["no record for other"]
    missed = target | {"missed": "the host waits", "what": "a"}
    assert report.problems_of([missed], [record]) == []
    assert "**below must**: the host waits" in report.table([missed], {"a_ms": record})
    assert report.problems_of([missed | {"must": 2.0}], [record]) == [
        "a_ms: reached now; 'missed' can leave targets.json"
    ]
    assert report.damage([record, record]) == ["a_ms: two records"]
    assert report.damage([{"name": "x"}]) != []
