"""Helpers of the tests of untrusted model files: a good file, ways to change it, and what a refusal looks like."""

from __future__ import annotations

import io
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


def changed(good: Path, folder: Path, edit: Edit) -> Path:
    content = records(good)
    edit(content)
    path = folder / "bad.pt"
    path.write_bytes(pack(list(content.items())))
    return path
