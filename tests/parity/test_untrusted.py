"""Model files are programs and not trusted: every bad one gives one clear error, and nothing of it runs.

Attacks start from a good file and change one thing. A file that would write `canary` when code of it ran is checked to
leave none.
"""

from __future__ import annotations

import json
import pickletools
import random
import re
import struct
from pathlib import Path

import pytest
import torch

from untrusted import SHIPPED, Edit, argument_changes, changed, good_file, load, records, refused

pytestmark = pytest.mark.usefixtures("needs_library")
MAIN = "code/__torch__/clebsch/export/backend.py"


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    return good_file(tmp_path_factory.mktemp("good"))


def metadata(**changes: object) -> Edit:
    def edit(content: dict[str, bytes]) -> None:
        values = json.loads(content["extra/clebsch.json"])
        for key, value in changes.items():
            if value is ...:
                del values[key]
            else:
                values[key] = value
        content["extra/clebsch.json"] = json.dumps(values).encode()

    return edit


def code(old: str, new: str, record: str = MAIN) -> Edit:
    def edit(content: dict[str, bytes]) -> None:
        text = content[record].decode()
        assert old in text
        content[record] = text.replace(old, new, 1).encode()

    return edit


def pickle(old: bytes, new: bytes) -> Edit:
    def edit(content: dict[str, bytes]) -> None:
        assert old in content["data.pkl"]
        content["data.pkl"] = content["data.pkl"].replace(old, new, 1)

    return edit


def test_repacked_good_file_loads(good: Path, tmp_path: Path) -> None:
    """The edits below are refused for what they change, not for how they are packed."""
    before, after = load(good), load(changed(good, tmp_path, lambda content: None))
    assert torch.equal(before["forces"], after["forces"]) and before["energy"] == after["energy"]


METADATA = {
    "version": (metadata(version=2), r"expected format version 1, got 2"),
    "version text": (metadata(version="1"), r"version to be an integer"),
    "family": (metadata(family="schnet"), r"family to be 'allegro', 'mace' or 'nequip'.*got \"schnet\""),
    "format": (metadata(format="other"), r"format to be 'clebsch-model'"),
    "missing": (metadata(r_max=...), r"expected a key 'r_max'"),
    "layers": (metadata(layers=3), r"radial to be a list of 3 to 3"),
    "many layers": (metadata(layers=10**9), r"layers to be an integer from 1 to"),
    "dtype": (metadata(dtype="float16"), r"dtype to be 'float32' or 'float64'"),
    "other dtype": (metadata(dtype="float64"), r"of dtype Double, got Float"),
    "r_max": (metadata(r_max=-1.0), r"r_max to be a number above 0"),
    "r_max infinite": (metadata(r_max=float("inf")), r"clebsch.json is not valid JSON"),
    "cutoffs": (metadata(pair_cutoffs=[[4.0, 3.6], [3.5, 4.5]]), r"pair_cutoffs to be a number"),
    "other cutoffs": (metadata(pair_cutoffs=[[4.0, 3.6], [3.5, 3.3]]), r"expected the cutoffs of clebsch.json"),
    "types": (metadata(type_names=["O"]), r"pair_cutoffs to be a list of 1 to 1"),
    "same types": (metadata(type_names=["O", "O"]), r"type_names to be different strings"),
    "units": (metadata(units={"energy": "kcal/mol", "length": "Angstrom"}), r"units.energy to be 'eV'"),
    "parameters": (metadata(parameters={"compute": [], "fp64": []}), r"a tensor '.*' that clebsch.json does not list"),
    "radial problem": (
        metadata(radial=[{"module": "layer0.interaction", "problem": "conv in1=x"}] * 2),
        r"layer 0: .*in1",
    ),
    "radial module": (
        metadata(radial=[{"module": "nothing", "problem": "conv"}] * 2),
        r"layer 0",
    ),
    "escape codes": (metadata(training_note="\x1b[2J"), r"without control characters"),
    "type name": (metadata(type_names=["O", "H\x1b"]), r"type_names to be short words"),
    "not JSON": (lambda c: c.update({"extra/clebsch.json": b"{"}), r"not valid JSON"),
    "deep JSON": (lambda c: c.update({"extra/clebsch.json": b"[" * 100000}), r"nested too deeply"),
    "binary JSON": (lambda c: c.update({"extra/clebsch.json": bytes(range(256))}), r"not valid JSON"),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata(good: Path, tmp_path: Path, name: str) -> None:
    edit, match = METADATA[name]
    path = changed(good, tmp_path, edit)
    with pytest.raises(RuntimeError, match=match) as error:
        load(path)
    assert "bad.pt" in str(error.value)


BODY = "    x = (self).embed(types, )\n"
CODE = {
    "foreign op": (code(BODY, BODY + '    torch.save(x, "canary")\n'), r"an assignment or a return.*got 'torch'"),
    "assigned foreign op": (
        code(BODY, BODY + '    _9 = torch.from_file("canary", True, 4)\n'),
        r"allow-list.*'from_file'",
    ),
    "in place": (code(BODY, BODY + "    _9 = torch.add_(x, 1)\n"), r"allow-list.*'add_'"),
    "in place method": (code(BODY, BODY + "    _9 = x.add_(x)\n"), r"allow-list.*'aten::add_'"),
    "allocation": (code(BODY, BODY + "    _9 = torch.zeros([1000000000000])\n"), r"allow-list.*'zeros'"),
    "prim op": (code(BODY, BODY + "    _9 = ops.prim.device(x)\n"), r"expected 'clebsch', got 'prim'"),
    "other library": (code(BODY, BODY + "    _9 = ops.aten.save(x)\n"), r"expected 'clebsch', got 'aten'"),
    "backward op": (code(BODY, BODY + "    _9 = ops.clebsch.interaction_backward(x)\n"), r"allow-list"),
    "while": (code(BODY, "    while True:\n      pass\n" + BODY), r"no loops.*got 'while'"),
    "for": (code(BODY, "    for i in range(9):\n      pass\n" + BODY), r"no loops.*got 'for'"),
    "if": (code(BODY, "    if True:\n      pass\n" + BODY), r"got 'if'"),
    "print": (code(BODY, BODY + '    print("x")\n'), r"got 'print'"),
    "import": (code("class Model", "import os\nclass Model"), r"expected 'class', got 'import'"),
    "function": (
        code("class Model", "def f(x: Tensor) -> Tensor:\n  return x\nclass Model"),
        r"expected 'class', got 'def'",
    ),
    "setstate": (
        code(
            "  def embed",
            "  def __setstate__(self: __torch__.clebsch.export.backend.Model,\n    x: int) -> NoneType:\n"
            '    _0 = torch.from_file("canary", True, 4)\n    return None\n  def embed',
        ),
        r"a plain method.*got '__setstate__'",
    ),
    "getstate": (
        code("  def embed", "  def __getstate__(self: int) -> int:\n    return 1\n  def embed"),
        r"a plain method.*got '__getstate__'",
    ),
    "hooks": (
        code("  training : bool", '  __forward_hooks__ = ["embed", ]\n  training : bool'),
        r"got '__forward_hooks__'",
    ),
    "base class": (code("class Model(Module)", "class Model(NamedTuple)"), r"expected 'Module', got 'NamedTuple'"),
    "torch class": (
        code(
            "embedding : __torch__.clebsch.export.modules.Embedding",
            "embedding : __torch__.torch.classes.clebsch.Model",
        ),
        r"a class of the file itself",
    ),
    "recursion": (
        code(
            "    x = (self).embed(types, )\n",
            "    x = (self).embed(types, )\n    _9 = (self).forward(edge_vec, types, graph, )\n",
        ),
        r"recursi",
    ),
    "deep": (code("(self).embed(types, )", "(" * 100 + "self" + ")" * 100), r"less deeply nested"),
    "very deep": (code("(self).embed(types, )", "(" * 200000 + "self" + ")" * 200000), r"less deeply nested"),
    "long chain": (code("(self).embed(types, )", "self" + ".a" * 100000), r"shorter chain"),
    "dunder": (code("(self).embed(types, )", "self.__class__"), r"an attribute or method"),
    "comment": (code(BODY, BODY + "    # x\n"), r"TorchScript code"),
    "backslash": (code('"atomic_energy"', '"\\x61"'), r"plain characters"),
    "unended string": (code('"atomic_energy"', '"atomic'), r"plain characters|end of a string"),
    "lambda": (code("(self).embed(types, )", "lambda: 1"), r"got 'lambda'"),
    "unknown method": (code("(self).embed(types, )", "(self).nothing(types, )"), r"refused"),
    "no forward": (code("  def forward(", "  def fvrward("), r"expected a method 'forward'"),
    "other signature": (
        code("types: Tensor) -> Tensor:\n    embedding", "types: Tensor) -> List[Tensor]:\n    embedding"),
        r"refused",
    ),
    "not text": (lambda c: c.update({MAIN: bytes(range(256)) * 10}), r"refused"),
    "empty": (lambda c: c.update({MAIN: b""}), r"a class of the file"),
}


@pytest.mark.parametrize("name", CODE)
def test_code(good: Path, tmp_path: Path, name: str, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    edit, match = CODE[name]
    refused(changed(good, tmp_path, edit), match)
    assert not (tmp_path / "canary").exists()


def test_exponential_calls(good: Path, tmp_path: Path) -> None:
    """Straight-line code can still run for ever, by calls of calls."""
    methods = "  def m0(self: __torch__.clebsch.export.backend.Model,\n    x: Tensor) -> Tensor:\n    return x\n"
    for k in range(1, 60):
        methods += (
            f"  def m{k}(self: __torch__.clebsch.export.backend.Model,\n    x: Tensor) -> Tensor:\n"
            f"    y = (self).m{k - 1}(x, )\n    return (self).m{k - 1}(y, )\n"
        )
    refused(changed(good, tmp_path, code("  def embed", methods + "  def embed")), r"at most 1000000 operations")


def big(size: int) -> bytes:
    return b"J" + struct.pack("<i", size)


PICKLE = {
    "global": (pickle(b"ctorch._utils\n_rebuild_tensor_v2\n", b"cos\nsystem\n"), r"global 'os system'"),
    "torch class": (
        pickle(b"c__torch__.clebsch.export.modules\nEmbedding\n", b"c__torch__.torch.classes.clebsch\nModel\n"),
        r"global '__torch__.torch.classes",
    ),
    "other class": (
        pickle(b"c__torch__.clebsch.export.modules\nEmbedding\n", b"c__torch__.clebsch.export.modules\nReadout\n"),
        r"attributes that the class declares",
    ),
    "huge tensor": (pickle(b"(K\x02K\x08t(", b"(" + big(2**31 - 1) + b"K\x08t("), r"a tensor within its storage"),
    "negative size": (pickle(b"(K\x02K\x08t(", b"(" + big(-2) + b"K\x08t("), r"not negative"),
    "huge stride": (pickle(b"(K\x08K\x01t", b"(" + big(2**31 - 1) + b"K\x01t"), r"a tensor within its storage"),
    "offset": (pickle(b"K\x00(K\x08K\x05t", big(38) + b"(K\x08K\x05t"), r"a tensor within its storage"),
    "device": (pickle(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"), r"a storage on the CPU"),
    "storage": (pickle(b"X\x01\x00\x00\x000q", b"X\x01\x00\x00\x001q"), r"refused"),
    "half": (pickle(b"ctorch\nFloatStorage\n", b"ctorch\nHalfStorage\n"), r"global 'torch HalfStorage'"),
    "opcode": (pickle(b"N", b"I1\n"), r"opcode 0x49"),
    "protocol": (pickle(b"\x80\x02", b"\x80\x04"), r"pickle protocol 2"),
}


@pytest.mark.parametrize("name", PICKLE)
def test_pickle(good: Path, tmp_path: Path, name: str) -> None:
    edit, match = PICKLE[name]
    refused(changed(good, tmp_path, edit), match)


def test_storage_smaller_than_its_tensor(good: Path, tmp_path: Path) -> None:
    def edit(content: dict[str, bytes]) -> None:
        content["data/0"] = content["data/0"][:-4]

    refused(changed(good, tmp_path, edit), r"expected 15 items in data/0, got 16")


def test_constants(good: Path, tmp_path: Path) -> None:
    refused(changed(good, tmp_path, lambda c: c.update({"constants.pkl": b"\x80\x02K\x01\x85."})), r"refused")
    refused(changed(good, tmp_path, lambda c: c.update({"constants.pkl": b"\x80\x02cos\nsystem\n."})), r"os system")


def test_flipped_content(good: Path, tmp_path: Path) -> None:
    """The same inside code and pickle with right checksums: never a crash, whatever the outcome."""
    random.seed(4)
    for record in ("data.pkl", MAIN, "extra/clebsch.json"):
        for _ in range(120):

            def edit(content: dict[str, bytes], record=record) -> None:
                data = bytearray(content[record])
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
                content[record] = bytes(data)

            path = changed(good, tmp_path, edit)
            try:
                load(path)
            except RuntimeError as error:
                assert "bad.pt" in str(error)


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.stem)
def test_refused_without_a_word(shipped: Path, tmp_path: Path, capfd) -> None:
    """Ops of a shipped file called with what they do not take: an exception, and nothing on the terminal."""
    refusals = 0
    edits = argument_changes(shipped)
    assert len(edits) >= 4
    for edit in edits:
        path = changed(shipped, tmp_path, edit)
        try:
            torch.classes.clebsch.Model(str(path), {"table_pieces": "16"})
        except RuntimeError as error:
            assert path.name in str(error)
            refusals += 1
    assert refusals >= len(edits) // 2
    assert tuple(capfd.readouterr()) == ("", "")


def test_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "nothing.pt", r"not found")
    refused(tmp_path, r"expected a file")


def test_allow_list_covers_the_exporter(good: Path) -> None:
    """Every operator in exported code is on the list, and nothing is listed without a reason."""
    listed = {
        line
        for line in (Path(__file__).parents[2] / "src/model/file/allowed_ops.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    text = "".join(c.decode() for n, c in records(good).items() if n.endswith(".py"))
    used = {f"aten::{n}" for n in re.findall(r"\btorch\.(\w+)\(", text)} | {
        f"clebsch::{n}" for n in re.findall(r"ops\.clebsch\.(\w+)", text)
    }
    assert used <= listed
    assert not any(name.endswith(("_", "_backward")) for name in listed if "__" not in name)
    assert {op.name for op, *_ in pickletools.genops(records(good)["data.pkl"])} <= {
        "PROTO",
        "GLOBAL",
        "BINPUT",
        "LONG_BINPUT",
        "EMPTY_TUPLE",
        "NEWOBJ",
        "EMPTY_DICT",
        "MARK",
        "BINUNICODE",
        "NEWFALSE",
        "NEWTRUE",
        "NONE",
        "BININT1",
        "BININT2",
        "BININT",
        "LONG1",
        "TUPLE",
        "BINPERSID",
        "BINGET",
        "LONG_BINGET",
        "REDUCE",
        "SETITEMS",
        "BUILD",
        "STOP",
    }
