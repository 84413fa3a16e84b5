"""What tests/gpu/conftest.py and scripts/gpu-tests say of tests that do not run: no GPU is needed for that."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import time

import pytest

def test_quick(device, within):
    within({"sum": 1e-9}, 1e-6)

@pytest.mark.sanitize(tools=("memcheck",))
def test_slow(device):
    time.sleep(SLEEP)

def test_on_a_gpu():
    pass
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """run(options, environment): pytest on three tests with the conftest of tests/gpu; (exit status, output, lines).

    In this process, which has imported torch already: that takes longer than the tests."""
    shutil.copy(ROOT / "tests/gpu/conftest.py", pytester.path)
    monkeypatch.syspath_prepend(ROOT / "src/python")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def call(*options: str, sleep: float = 0.0, **environment: str):
        (pytester.path / "test_three.py").write_text(TESTS.replace("SLEEP", str(sleep)))
        results = pytester.path / "results.jsonl"
        results.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            done = pytester.runpytest_inprocess("-q", "-rs", "-p", "no:cacheprovider", f"--results={results}", *options)
        lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        outcomes = {line["test"].split("::")[1]: line for line in lines if "test" in line}
        return done.ret, done.stdout.str() + done.stderr.str(), outcomes

    return call


def test_without_a_gpu_all_are_skipped_with_the_reason(run):
    status, output, lines = run()
    assert status == 0 and "no CUDA GPU" in output
    assert [line["outcome"] for line in lines.values()] == ["skipped"] * 3


def test_a_gpu_can_be_required(run):
    status, output, _ = run(CLEBSCH_REQUIRE_GPU="1")
    assert status == 1 and "CLEBSCH_REQUIRE_GPU is set, but: no CUDA GPU" in output


def test_a_test_that_did_not_begin_failed(run):
    status, output, lines = run("--device=cpu", "--deadline=0")
    assert status == 1 and "2 failed" in output
    assert lines["test_quick"]["outcome"] == "failed" and lines["test_quick"]["text"].startswith("not begun")
    assert lines["test_on_a_gpu"]["outcome"] == "skipped"


def test_a_test_that_ran_out_of_time_failed(run):
    status, _, lines = run("--device=cpu", "--limit=1", sleep=30)
    assert status == 1 and "ran out of time" in lines["test_slow"]["text"]
    assert lines["test_quick"] | {"outcome": "passed", "error sum": 1e-9} == lines["test_quick"]


def test_shards_and_tools_choose(run):
    _, _, first = run("--device=cpu", "--shard=0/2")
    _, _, second = run("--device=cpu", "--shard=1/2")
    assert len(first) + len(second) == 3 and not set(first) & set(second)
    _, _, chosen = run("--device=cpu", "--tool=memcheck")
    assert list(chosen) == ["test_slow"]
    assert run("--device=cpu", "--tool=racecheck")[2] == {}


@pytest.fixture(scope="module")
def runner():
    loader = importlib.machinery.SourceFileLoader("gpu_tests", str(ROOT / "scripts/gpu-tests"))
    spec = importlib.util.spec_from_loader("gpu_tests", loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_tests"] = module  # dataclasses look there
    loader.exec_module(module)
    return module


def finished(runner, folder, script, seconds=60.0, sanitizer=False):
    one = runner.Run("part", [sys.executable, "-c", script], folder, seconds, sanitizer=sanitizer)
    one.start(dict(os.environ))
    one.wait()
    return {line["test"]: line for line in one.results()}


def test_a_process_that_is_ended_leaves_failures(runner, tmp_path):
    (tmp_path / "part.jsonl").write_text('{"collected": ["a.py::x", "a.py::y"]}\n{"test": "a.py::x", "outcome": '
                                         '"passed", "text": "", "seconds": 1.0}\n')  # fmt: skip
    lines = finished(runner, tmp_path, "import time; time.sleep(60)", seconds=0.5)
    assert lines["a.py::x"]["outcome"] == "passed"
    assert runner.kind_of(lines["a.py::y"]) == "not begun"
    assert " 1      0         1" in runner.table(list(lines.values()))


@pytest.mark.parametrize(
    ("said", "failures"),
    [
        ("========= ERROR SUMMARY: 0 errors", 0),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", 0),
        ("========= Invalid __global__ write of size 4 bytes\\n========= ERROR SUMMARY: 1 error", 1),
        ("nothing", 1),
    ],
)
def test_a_sanitizer_must_say_that_it_found_nothing(runner, tmp_path, said, failures):
    (tmp_path / "part.jsonl").write_text('{"collected": ["a.py::x"]}\n{"test": "a.py::x", "outcome": "passed", '
                                         '"text": "", "seconds": 1.0}\n')  # fmt: skip
    lines = finished(runner, tmp_path, f"print('{said}')", sanitizer=True)
    assert sum(line["outcome"] == "failed" for line in lines.values()) == failures


def test_no_tests_are_a_failure(runner, tmp_path):
    lines = finished(runner, tmp_path, "print('error in conftest')")
    assert [line["outcome"] for line in lines.values()] == ["failed"]


def test_records_and_commit_of_a_run(tmp_path):
    """Rows count and say the largest error of a file; a packed commit is dirty where a source is another."""
    loader = importlib.machinery.SourceFileLoader("gpu_tests_records", str(ROOT / "scripts/gpu-tests"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    lines = [
        {"test": "tests/gpu/test_md.py::a[float32]", "outcome": "passed", "error forces": 1e-6, "error energy": 3e-7},
        {"test": "tests/gpu/test_md.py::b[float32]", "outcome": "failed", "error forces": 1.0},
    ]
    rows = {row["name"]: row for row in module.records_of({"commit": "abc", "tests": lines})}
    assert rows["gpu_tests_md_passed"]["value"] == rows["gpu_tests_md_failed"]["value"] == 1
    assert rows["gpu_tests_md_fp32_error"]["value"] == 1e-6 and "gpu_tests_md_fp64_error" not in rows
    import bundle

    version = "100644 {} 0\tVERSION\n"
    data = (ROOT / "VERSION").read_bytes()
    sha = bundle.hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    for name, expected in ((sha, "abc"), ("0" * 40, "abc-dirty")):
        (tmp_path / "commit").write_text("abc\n" + version.format(name))
        assert bundle.commit_of(tmp_path) == expected
