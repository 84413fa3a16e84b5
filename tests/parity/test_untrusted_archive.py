"""Damaged and disguised archives: a model file is refused before torch reads it, or means what it meant."""

from __future__ import annotations

import random
import warnings
import zipfile
from pathlib import Path

import pytest
import torch

from untrusted import good_file, load, pack, records, refused

pytestmark = pytest.mark.usefixtures("needs_library")


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    return good_file(tmp_path_factory.mktemp("good"))


ARCHIVE = {
    "compressed": (lambda e: pack(e, zipfile.ZIP_DEFLATED), r"to be stored, got compression method 8"),
    "twice": (lambda e: pack([*e, e[0]]), r"appears twice"),
    "unknown record": (
        lambda e: pack([*e, ("attributes.pkl", b"")]),
        r"'attributes.pkl' is none that a Clebsch model has",
    ),
    "code elsewhere": (lambda e: pack([*e, ("code/evil.py", b"")]), r"'code/evil.py' is none"),
    "path": (lambda e: pack([*e, ("data/../../x", b"")]), r"is none that a Clebsch model has"),
    "no metadata": (
        lambda e: pack([x for x in e if x[0] != "extra/clebsch.json"]),
        r"expected a record 'extra/clebsch.json'",
    ),
    "byte order": (
        lambda e: pack([(n, b"big" if n == "byteorder" else c) for n, c in e]),
        r"expected byte order 'little'",
    ),
    "newer torch": (lambda e: pack([(n, b"99" if n == "version" else c) for n, c in e]), r"archive version of 1 to"),
    "trailing bytes": (lambda e: pack(e) + b"x", r"the end of the directory is missing"),
    "leading bytes": (lambda e: b"x" + pack(e), r"does not begin like a zip archive"),
    "flatbuffer": (lambda e: b"\0\0\0\0PTMF" + bytes(100), r"does not begin like a zip archive"),
    "empty": (lambda e: b"", r"expected at least 22 bytes, got 0"),
    "pickle": (lambda e: b"\x80\x02}q\x00." * 20, r"does not begin like a zip archive"),
}


@pytest.mark.parametrize("name", ARCHIVE)
def test_archive(good: Path, tmp_path: Path, name: str) -> None:
    make, match = ARCHIVE[name]
    path = tmp_path / "bad.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path.write_bytes(make(list(records(good).items())))
    refused(path, match)


def test_truncated_anywhere(good: Path, tmp_path: Path) -> None:
    whole = good.read_bytes()
    path = tmp_path / "short.pt"
    for size in sorted({*range(0, len(whole), 97), *range(len(whole) - 200, len(whole))}):
        path.write_bytes(whole[:size])
        refused(path, r"archive|truncated")


def test_flipped_bits(good: Path, tmp_path: Path) -> None:
    """A flipped bit is refused with one error, or lies where it changes nothing (padding, dates)."""
    whole = bytearray(good.read_bytes())
    reference = load(good)
    path = tmp_path / "flipped.pt"
    random.seed(3)
    harmless = 0
    for _ in range(400):
        at, bit = random.randrange(len(whole)), 1 << random.randrange(8)
        whole[at] ^= bit
        path.write_bytes(whole)
        whole[at] ^= bit
        try:
            result = load(path)
        except RuntimeError as error:
            assert "flipped.pt" in str(error) and len(str(error)) < 600
        else:
            harmless += 1
            assert torch.equal(result["forces"], reference["forces"])
    assert harmless < 380
