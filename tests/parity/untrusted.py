"""Helpers of the tests of untrusted model files: a good file, ways to change it, and what a refusal looks like."""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))

import tiny_model  # noqa: E402

from clebsch.export import backend  # noqa: E402

Edit = Callable[[dict[str, bytes]], None]


def good_file(folder: Path) -> Path:
    """A file that is fine, for the attacks to start from."""
    path = folder / "model.pt"
    backend.write(tiny_model.describe(), path, "float32")
    return path


def records(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}


def pack(entries: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in entries:
            archive.writestr("archive/" + name, content)
    return buffer.getvalue()


def load(path: Path) -> dict[str, torch.Tensor]:
    """Loads a file and evaluates an O-H pair with it."""
    model = torch.classes.clebsch.Model(str(path), {})
    vectors = torch.tensor([[0.3, 0.5, 0.8], [-0.3, -0.5, -0.8]], dtype=torch.float64)
    ends = torch.tensor([0, 1])
    return model.compute(vectors, ends, ends, ends.flip(0), 2, 2, True, True, False, False, [])


def refused(path: Path, match: str) -> str:
    """Both ways in refuse the file with one line that names it."""
    messages = []
    for enter in (load, lambda p: torch.classes.clebsch.Model.inspect(str(p))):
        with pytest.raises(RuntimeError, match=match) as error:
            enter(path)
        messages.append(str(error.value))
    assert path.name in messages[0] and "Traceback" not in messages[0]
    return messages[0]


SHIPPED = sorted((Path(__file__).parents[2] / "models").glob("*.pt"))


def argument_changes(path: Path) -> list[Edit]:
    """Ops of a shipped file called with another problem text, or with tensors and text of one list in another order."""
    edits: list[Edit] = []

    def replaced(record: str, at: int, old: str, new: str) -> None:
        def edit(content: dict[str, bytes]) -> None:
            text = content[record].decode()
            assert text[at : at + len(old)] == old
            content[record] = (text[:at] + new + text[at + len(old) :]).encode()

        edits.append(edit)

    for record, content in sorted(records(path).items()):
        if not record.endswith(".py"):
            continue
        text = content.decode()
        for match in re.finditer(r'^    _\d+ = ("[^"]*")$', text, re.MULTILINE):
            for new in ('""', '"linear in=1x0e out=1x0e"', '"conv"', match[1][:-2] + '"'):
                replaced(record, match.start(1), match[1], new)
        for match in re.finditer(r"^    (radial|weights) = \[([^]]*)\]$", text, re.MULTILINE):
            names = match[2].split(", ")
            for new in (names[::-1], names[1:], names[:1], names[-1:] * len(names)):
                replaced(record, match.start(2), match[2], ", ".join(new))
    return edits


def changed(good: Path, folder: Path, edit: Edit) -> Path:
    content = records(good)
    edit(content)
    path = folder / "bad.pt"
    path.write_bytes(pack(list(content.items())))
    return path
