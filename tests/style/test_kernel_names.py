"""tests/gpu/kernel_names.py names every kernel of src/cuda, and no other."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))

from kernel_names import NAMES, named_in  # noqa: E402

#: Where a kernel's name stands: what is loaded from compiled code, a generated kernel's name, the passes of one op.
LOADED = re.compile(r"load_(?:module|fixed)\([^;{]*\{(\"[^}]*)\}")
GENERATED = re.compile(r"KernelSource kernel\{\s*\"(\w+)\"|std::string name = density \? \"(\w+)\" : \"(\w+)\"")
PASSES = re.compile(r"const char\* symmetric_entry\(.*?\n\}", re.DOTALL)


def in_sources() -> set[str]:
    found: set[str] = set()
    for path in sorted((ROOT / "src/cuda").rglob("*.cpp")):
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
