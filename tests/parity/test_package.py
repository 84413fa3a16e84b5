"""The package around the models: import, finding the library, command line, reading files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from clebsch import cli, library
from clebsch.errors import ClebschError
from clebsch.model_file import read_metadata


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_works_without_a_library(tmp_path):
    """The ops are declared, so that export can script; running says what is missing."""
    code = (
        "import clebsch, torch; from clebsch import library; print(library.load().problem);"
        "print(torch.ops.clebsch.interaction.default._schema)"
    )
    out = python(code, CLEBSCH_LIBRARY=str(tmp_path / "libclebsch.so"))
    assert "was not found" in out and "CLEBSCH_LIBRARY" in out and "clebsch::interaction(" in out


def test_library_of_another_torch_is_not_loaded(tmp_path):
    path = tmp_path / "libclebsch.so"
    path.write_bytes(b"\x7fELFCLEBSCH_TORCH_VERSION=1.2.3\0")
    code = "import clebsch; from clebsch import library; print(library.load().problem)"
    out = python(code, CLEBSCH_LIBRARY=str(path))
    running = library.torch_release(torch.__version__)
    assert f"was built for torch 1.2.3, this Python has torch {running}" in out


def test_broken_library_does_not_break_the_import(tmp_path):
    (tmp_path / "libclebsch.so").write_bytes(b"\x7fELF nonsense")
    out = python(
        "import clebsch; from clebsch import library; print(library.load().problem)", CLEBSCH_LIBRARY=str(tmp_path)
    )
    assert "could not be loaded" in out


def test_library_says_which_torch_it_needs(needs_library):
    assert library.built_for(library.require()) == library.torch_release(torch.__version__)


def test_packaged_schemas_are_the_sources(needs_library):
    """Every schema of the packaged file is one the loaded library registered."""
    for line in library.schema_lines():
        name = line.split("(", 1)[0]
        schema = str(getattr(torch.ops.clebsch, name).default._schema)
        assert schema.removeprefix("clebsch::") == str(torch._C.parse_schema(line))


def test_metadata_refusals(tmp_path, exported):
    with pytest.raises(ClebschError, match="no such file"):
        read_metadata(tmp_path / "absent.pt")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ClebschError, match="not a Clebsch model"):
        read_metadata(tmp_path / "text.pt")
    torch.save({"a": 1}, tmp_path / "other.pt")
    with pytest.raises(ClebschError, match="no clebsch.json inside"):
        read_metadata(tmp_path / "other.pt")
    for text, message in (
        ("[]", "lacks format"),
        ("{", "damaged"),
        (Path(exported("zbl")).name, "damaged"),
    ):
        with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
            archive.writestr("archive/extra/clebsch.json", text)
        with pytest.raises(ClebschError, match=message):
            read_metadata(tmp_path / "bad.pt")


def test_info(exported, capsys):
    assert cli.main(["info", exported("zbl-cutoffs")]) == 0
    out = capsys.readouterr().out
    assert "nequip, 2 layers, types O H C" in out and "ZBL repulsion" in out and "2.600" in out
    if library.load().path is not None:
        assert "radial tables of" in out


@pytest.mark.parametrize("changed", [{"pair_cutoffs": 5}, {"radial": [{"problem": "conv nonsense"}]}, {"upstream": 1}])
@pytest.mark.parametrize("with_library", [True, False])
def test_info_of_changed_metadata_is_one_line(changed, with_library, exported, tmp_path, capsys, monkeypatch):
    if not with_library:
        monkeypatch.setattr(library, "load", lambda: library.State(None, "left out"))
    source, target = Path(exported("zbl")), tmp_path / "changed.pt"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            text = old.read(entry)
            if entry.filename.endswith("clebsch.json"):
                text = json.dumps(json.loads(text) | changed).encode()
            new.writestr(entry, text)
    assert cli.main(["info", str(target)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("clebsch: error: ") and err.count("\n") == 1


def test_info_of_a_damaged_file_is_one_line(tmp_path, capsys):
    path = tmp_path / "damaged.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/extra/clebsch.json", "{" + " " * 5000)
    data = bytearray(path.read_bytes())
    data[60:66] = b"\xff" * 6
    path.write_bytes(bytes(data))
    assert cli.main(["info", str(path)]) == 1
    err = capsys.readouterr().err
    assert "damaged" in err and err.count("\n") == 1


def test_check_and_bench(exported, capsys, needs_library):
    assert cli.main(["check", exported("lmax-2-parity")]) == 0
    out = capsys.readouterr().out
    assert "FAIL" not in out and out.count("ok ") >= 6
    assert cli.main(["bench", exported("preset-S", "float32"), "--side", "4", "--steps", "2", "--threads", "1"]) == 0
    assert "64 atoms" in capsys.readouterr().out


def test_errors_are_one_line(tmp_path, capsys):
    assert cli.main(["info", str(tmp_path / "absent.pt")]) == 1
    err = capsys.readouterr().err
    assert err.startswith("clebsch: error: ") and err.count("\n") == 1
    with pytest.raises(SystemExit) as caught:
        cli.main(["export", "vasp", "in", "out"])
    assert caught.value.code == 2


def test_module_is_a_program():
    done = subprocess.run([sys.executable, "-m", "clebsch", "--version"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("clebsch 0.")
