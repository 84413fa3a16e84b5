"""Writes the fuzzers' first inputs, seeds/READER/NAME, from the tests' small model files and from texts in here.

Usage: make_seeds.py MODELS [SEEDS]    MODELS: a folder with plain.pt, parity.pt, outputs.pt, allegro.pt and mace.pt,
which building the tests leaves in build/tests/unit/models.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import zipfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = ("plain", "parity", "outputs", "allegro", "mace")
#: Limits that the readers know: one beyond each is a seed, so that no fuzzer must find a number of four digits.
NESTED = 34


def records_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}


def packed(records: dict[str, bytes], *, big: bool = False, extra: bytes = b"", comment: bytes = b"") -> bytes:
    """A zip archive of stored records. big: 64-bit sizes and directory, as torch writes for large files."""
    body, directory = b"", b""
    for name, content in records.items():
        full, crc, size, offset = b"m/" + name.encode(), zlib.crc32(content), len(content), len(body)
        body += struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 0, 0, 0, crc, size, size, len(full), len(extra)) + full
        body += extra + content
        more = struct.pack("<HHQQQ", 1, 24, size, size, offset) if big else extra
        shown = (0xFFFFFFFF,) * 3 if big else (size, size, offset)
        directory += struct.pack("<IHHHHHHI", 0x02014B50, 20, 20, 0, 0, 0, 0, crc) + struct.pack("<II", *shown[:2])
        directory += (
            struct.pack("<HHHHHII", len(full), len(more), len(comment), 0, 0, 0, shown[2]) + full + more + comment
        )
    begin, end = len(body), b""
    if big:
        count = len(records)
        end = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, len(directory), begin)
        end += struct.pack("<IIQI", 0x07064B50, 0, begin + len(directory), 1)
    end += struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, len(records), len(records), len(directory), begin, 0)
    return body + directory + end


def archives(models: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    small = {"version": b"3", "data.pkl": b"\x80\x02N.", "constants.pkl": b"\x80\x02).", "extra/clebsch.json": b"{}"}
    small |= {
        "byteorder": b"little",
        "data/0": bytes(4),
        "code/__torch__/a/b.py": b"",
        "code/__torch__/a.py.debug_pkl": b"",
    }
    few = dict(list(small.items())[:4])
    return {
        "small": packed(small),
        "big": packed(small, big=True),
        "extra": packed(few, extra=struct.pack("<HH", 0x4246, 6) + b"Z" * 6, comment=b"comment"),
        "missing": packed({"version": b"3"}),
        "names": packed(few | {name: b"" for name in (".data/version", ".format_version", "data/12345678")}),
    }


def metadata(models: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    made = {name: records["extra/clebsch.json"] for name, records in models.items()}
    plain = json.loads(made["plain"])
    made["numbers"] = json.dumps({**plain, "r_max": 1e308, "layers": -0, "version": 18446744073709551615}).encode()
    made["escapes"] = json.dumps({**plain, "training_note": '\x01\u20ac\U0001f600\\"'}).encode()
    made["nested"] = b"[" * 17 + b"]" * 17
    made["lists"] = b"[" + b",".join([b"{}"] * 40) + b"]"
    return made


CODE = """class A(Module):
  __parameters__ = ["w", ]
  __buffers__ = ["b", ]
  w : Tensor
  b : Optional[Tensor]
  n : Final[int] = 3
  c : __torch__.r1.___torch_mangle_1.B
  __annotations__["layer.0"] = Dict[str, List[Tensor]]
  def forward(self: __torch__.r0.A,
    x: Tensor) -> Dict[str, Tensor]:
    _0 = torch.add(x, -1.5e-3, )
    _1 = (self.c).__len__()
    _2 = ops.clebsch.linear(_0, [x, x], "linear in=1x0e out=1x0e")
    _3 = getattr(self, "layer.0")
    return {"atomic_energy": _2[0], "b": (_3), "c": None, "d": True}
"""
PICKLES = {
    "opcodes": b"\x80\x02(K\x01M\x02\x01J\xff\xff\xff\xff\x8a\x01\x05\x88\x89N"
    b"X\x01\x00\x00\x00aq\x00h\x00tq\x01r\x02\x00\x00\x00.",
    "dictionary": b"\x80\x02}(X\x01\x00\x00\x00aK\x01u.",
    "ordered": b"\x80\x02ccollections\nOrderedDict\nq\x00)R.",
}


def code(models: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    made = {}
    for name in ("parity", "allegro", "mace"):
        texts = [content for record, content in sorted(models[name].items()) if record.endswith(".py")]
        made[name] = b"\f".join(texts)
    return made | {"grammar": CODE.encode() + b"\fclass B(Module):\n  __parameters__ = []\n  x : int\n"}


def one_name(module: str, name: str) -> str:
    """What the class `name` of a model's record `module` is called where all classes are in one record."""
    return f"{module.rpartition('.')[2].replace('___torch_mangle', 'mangle')}_{name}"


def one_record(records: dict[str, bytes]) -> bytes:
    """The classes of a model's code as one record `m`, without their methods: what a pickle is checked against."""
    texts = []
    for record, content in sorted(records.items()):
        if not record.endswith(".py"):
            continue
        module = record.removeprefix("code/").removesuffix(".py").replace("/", ".")
        text = re.sub(r"(?m)^  def .*\n(?:^    .*\n)*", "", content.decode())
        texts.append(re.sub(r"(?m)^class (\w+)", lambda m, module=module: f"class {one_name(module, m[1])}", text))
    text = "".join(texts)
    return re.sub(r"(__torch__[.\w]*)\.(\w+)", lambda m: f"__torch__.m.{one_name(m[1], m[2])}", text).encode()


def pickles(models: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    made = {}
    for name in ("plain", "allegro", "mace"):
        records = models[name]
        sizes = []
        while f"data/{len(sizes)}" in records:
            sizes.append(str(len(records[f"data/{len(sizes)}"])))
        state = re.sub(
            rb"c(__torch__[.\w]*)\n(\w+)\n",
            lambda m: f"c__torch__.m\n{one_name(m[1].decode(), m[2].decode())}\n".encode(),
            records["data.pkl"],
        )
        made[name] = b"\0".join([" ".join(sizes).encode(), one_record(records), state])
    nested = b"\x80\x02" + b"(" * NESTED + b"t" * NESTED + b"."
    for name, state in (PICKLES | {"nested": nested}).items():
        made[name] = b"\0".join([b"8 16", b"class A(Module):\n  x : int\n", state])
    return made


def problems(models: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    made, seen = {}, set()
    for name, records in models.items():
        texts = {
            m[1]
            for r, c in sorted(records.items())
            if r.endswith(".py")
            for m in re.finditer(rb'"([a-z]+ [^"]*=[^"]*)"', c)
        }
        texts |= {layer["problem"].encode() for layer in json.loads(records["extra/clebsch.json"])["radial"]}
        for text in sorted(texts):
            kind = (text.split()[0], re.sub(rb"[0-9.]+", b"#", text))
            if kind not in seen:
                seen.add(kind)
                made[f"{name}_{len(made)}"] = text
    return made


def main(models_folder: Path, seeds: Path) -> int:
    models = {name: records_of(models_folder / f"{name}.pt") for name in MODELS}
    total = 0
    makers = {"archive": archives, "metadata": metadata, "code": code, "pickle": pickles, "problem": problems}
    for reader, make in makers.items():
        folder = seeds / reader
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, content in make(models).items():
            (folder / name).write_bytes(content)
            total += len(content)
        print(f"{reader}: {len(list(folder.iterdir()))} files")
    print(f"{total} bytes in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "seeds"))
