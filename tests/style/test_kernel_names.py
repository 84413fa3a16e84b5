"""tests/gpu/kernel_names.py names every kernel of src/cuda and src/multilinear, and no other."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "scripts")]

import sanitizer_record  # noqa: E402
from kernel_names import NAMES, named_in  # noqa: E402

#: Where a kernel's name stands: what is loaded from compiled code, a generated kernel's name, its definition in a file,
#: the passes of one op.
LOADED = re.compile(r"load_(?:module|fixed)\([^;{]*\{(\"[^}]*)\}")
GENERATED = re.compile(
    r"KernelSource kernel\{\s*\"(\w+)\"|std::string name = density \? \"(\w+)\" : \"(\w+)\"|\) name = \"(\w+)\""
)
WRITTEN = re.compile(r"__global__\s+void\s+(?:(?:__\w+__\s*\((?:[^()]|\([^()]*\))*\)|[A-Z_]+)\s+)*(\w+)\s*\(")
PASSES = re.compile(r"const char\* symmetric_entry\(.*?\n\}", re.DOTALL)


def in_sources() -> set[str]:
    found: set[str] = set()
    for path in sorted([*(ROOT / "src/cuda").rglob("*.cu*"), *(ROOT / "src/multilinear").rglob("*.cu*")]):
        found.update(WRITTEN.findall(path.read_text()))
    for path in sorted([*(ROOT / "src/cuda").rglob("*.cpp"), *(ROOT / "src/multilinear").rglob("*.cpp")]):
        text = path.read_text()
        for inside in [*LOADED.findall(text), *PASSES.findall(text)]:
            found.update(re.findall(r'"(\w+)"', inside))
        for names in GENERATED.findall(text):
            found.update(filter(None, names))
    return found


def test_every_kernel_is_named() -> None:
    assert sorted(in_sources()) == sorted(NAMES)


def test_a_line_of_a_tool() -> None:
    assert named_in("=========     at interaction_backward+0x1c0 in kernel.cu:7") == "interaction_backward"
    assert named_in("=========     at void at::native::vectorized_elementwise_kernel<4>(int)+0x10") == ""


LOG = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at conv_forward+0x150 in conv.cu:12
=========     by thread (3,0,0) in block (0,0,0)
=========
========= Uninitialized __global__ memory read of size 8 bytes
=========     at void at::native::kernel<4>(int)+0x10
=========
========= ERROR SUMMARY: 2 errors
"""


def test_the_table_of_a_run(tmp_path: Path) -> None:
    """A kernel's row says what each tool reported and how many of its tests ended; what was not reached is named."""

    def process(tool: str, name: str, lines: list[dict], log: str) -> sanitizer_record.Process:
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"test": "cut o')
        (tmp_path / f"{name}.txt").write_text(log)
        return sanitizer_record.Process(tool, name, tmp_path)

    def done(test: str, **more: object) -> dict:
        return {"test": test, "outcome": "passed", "text": "", "seconds": 1.0, **more}

    all_tests = {"collected": ["a", "b"]}
    kernels = {"conv_forward": 2, "gate_forward": 1, "void at::native::kernel<4>(int)": 9}
    plain = process("", "plain", [all_tests, done("a", kernels=kernels), done("b", kernels={"gate_forward": 1})], "")
    memcheck = process("memcheck", "memcheck-0", [all_tests, done("a")], LOG)
    where = {key: "x" for key in ("machine", "driver", "torch", "sanitizer", "commit", "date", "command")}
    found = sanitizer_record.summary([memcheck], [plain], where)
    assert found["kernels"]["conv_forward"]["memcheck"] == "1 findings"
    assert found["kernels"]["gate_forward"]["memcheck"] == "clean (1 of 2)"
    assert found["kernels"]["gate_forward"]["racecheck"] == "not run"
    assert found["kernels"]["gate_backward"]["memcheck"] == "not reached" and "gate_backward" in found["not_reached"]
    assert [one["kernel"] for one in found["tools"]["memcheck"]["findings"]] == ["conv_forward", ""]
    text = sanitizer_record.page(found)
    assert "| `gate_forward` | gate | clean (1 of 2) | not run |" in text and "Invalid __global__ read" in text
    assert not sanitizer_record.clean(found)
