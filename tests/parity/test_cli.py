"""The command line as a program: what it answers without torch, exit statuses, messages, progress, completion."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from make_models import shared

import clebsch
from clebsch import cli, kernels, library
from clebsch.cli import bench as bench_command
from clebsch.cli import progress as progress_bars
from clebsch.errors import ClebschError
from clebsch.progress import watched
from clebsch.runtime import Model
from programs import clebsch_program, plain_python

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("export", "info", "check", "bench", "compile", "doctor")


@pytest.fixture
def no_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing torch, numpy or tqdm fails."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in ("torch", "numpy", "tqdm"):
        (folder / f"{name}.py").write_text("raise RuntimeError('imported')")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return shared(tmp_path_factory.mktemp("cli"), "tiny_model.py", "lmax=1")


# Without torch


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], *([command, "--help"] for command in COMMANDS)])
def test_answers_without_torch(arguments, no_torch):
    done = clebsch_program(*arguments, **no_torch)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("clebsch 0." if arguments == ["--version"] else "usage: clebsch")


def test_wrong_command_lines_without_torch(no_torch):
    for arguments in (
        [],
        ["fly"],
        ["bench", "m.pt", "--side", "0"],
        ["compile", "m.pt"],
        ["compile", "m.pt", "--arch", "90", "--threads", "-1"],
    ):
        done = clebsch_program(*arguments, **no_torch)
        assert done.returncode == 2 and "error: " in done.stderr, done.stderr
    assert clebsch_program("info", "absent.pt", **no_torch).returncode == 1


def test_import_of_the_package_is_light(no_torch):
    code = "import clebsch, sys; print(clebsch.__version__, clebsch.ClebschError.__name__, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **no_torch}, capture_output=True, text=True)
    assert done.stdout.split()[1:] == ["ClebschError", "False"], done.stderr


def test_names_of_the_package():
    assert clebsch.ClebschError is ClebschError and clebsch.library is library
    assert {"TensorProductConv", "edge_graph", "__version__"} <= set(dir(clebsch))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = clebsch.nonsense


def test_a_pickled_module_brings_the_library(needs_library, tmp_path):
    """Unpickling runs no __init__; the import of the module has to load the ops."""
    path = tmp_path / "conv.pt"
    torch.save(clebsch.TensorProductConv("1x0e", "1x0e", "1x0e", [(0, 0, 0, "uvu", True)]), path)
    code = (
        f"import torch; conv = torch.load({str(path)!r}, weights_only=False); i = torch.zeros(1, dtype=torch.int64);"
        "print(conv(*torch.ones(3, 1, 1), i, i).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "[1, 1]" in done.stdout, done.stderr


# Exit statuses and messages


def raising(monkeypatch, error: BaseException) -> None:
    """Makes clebsch bench raise it."""

    def run(options):
        raise error

    monkeypatch.setattr(bench_command, "run", run)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ClebschError("expected a cat, got a dog"), "expected a cat, got a dog"),
        (PermissionError(13, "Permission denied", "m.pt"), "m.pt: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ModuleNotFoundError("No module named 'ase'", name="ase.io"), "expected the Python package ase"),
        (MemoryError(), "out of memory"),
        (ValueError("a\nb"), "unexpected ValueError: a b. This should not happen"),
        (RuntimeError("bad\nException raised from here (most recent call first):\n#0"), "RuntimeError: bad. This"),
    ],
)
def test_a_failure_is_one_line(error, message, monkeypatch, capsys):
    raising(monkeypatch, error)
    assert cli.main(["bench", "m.pt"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("clebsch: error: ") and message in err and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--debug", "bench", "m.pt"], ["bench", "m.pt", "--debug"]])
def test_debug_shows_the_traceback(arguments, monkeypatch, capsys):
    raising(monkeypatch, ClebschError("expected a cat"))
    assert cli.main(arguments) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err and "test_cli.py" in err and err.endswith("clebsch: error: expected a cat\n")


def test_an_interrupt_is_130(monkeypatch, capsys):
    raising(monkeypatch, KeyboardInterrupt())
    assert cli.main(["bench", "m.pt"]) == 130
    assert capsys.readouterr().err == "clebsch: interrupted\n"


def test_options_of_a_grade_want_a_training_set(tmp_path, capsys):
    (tmp_path / "in.ckpt").touch()
    words = ["export", "nequip", str(tmp_path / "in.ckpt"), str(tmp_path / "out.pt"), "--trust"]
    assert cli.main([*words, "--ridge", "1e-3"]) == 1
    assert "--ridge: expected --extrapolation TRAIN.xyz with it, got none" in capsys.readouterr().err


def test_a_closed_pipe_is_silent(needs_library, model):
    command = f"{sys.executable} -W ignore -m clebsch info {model} | head -c 0; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_other_python_needs_little(model, tmp_path):
    """--python starts a Python that has neither this package nor tqdm: there the command says what is missing."""
    plain = plain_python(tmp_path)
    done = clebsch_program("export", "nequip", model, tmp_path / "out.pt", "--trust", "--python", plain)
    assert done.returncode == 1 and "expected the Python package torch" in done.stderr, done.stderr
    done = clebsch_program("export", "nequip", model, tmp_path / "out.pt", "--trust", "--python", tmp_path / "none")
    assert done.returncode == 1 and "expected a Python program" in done.stderr


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_are_for_terminals(monkeypatch):
    monkeypatch.setattr(progress_bars, "_PATIENCE", 0.0)

    def shown(stream: io.StringIO, quiet: bool = False) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bars.Bar(quiet) as bar:
            for done in range(4):
                bar("tables", done, 3)
            bar("kernels", 1, 2)
        return stream.getvalue()

    text = shown(Terminal())
    assert "tables" in text and "kernels" in text and text.endswith("\r")  # the line is left clean
    assert shown(io.StringIO()) == "" and shown(Terminal(), quiet=True) == ""
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert shown(Terminal()) == ""


def test_loading_tells_how_far_it_is(needs_library, model):
    seen: list[tuple[str, int, int]] = []
    threads = set()

    def progress(*state) -> None:
        seen.append(state)
        threads.add(threading.current_thread())

    tables = Model(model, progress=progress).report_tables(progress)
    assert threads == {threading.main_thread()}
    assert tables == Model(model).tables
    assert seen[-1][0] == "errors of radial tables" and any(what == "radial tables" for what, _, _ in seen)
    assert all(0 <= done <= total and total > 0 for _, done, total in seen) and seen[-1][1] == seen[-1][2]


def test_what_progress_raises_ends_the_work(needs_library, model, tmp_path):
    class Enough(Exception):
        pass

    def progress(what: str, done: int, total: int) -> None:
        raise Enough(what)

    with pytest.raises(Enough, match="radial"):
        Model(model, progress=progress)
    cache = tmp_path / "cache"
    try:
        with pytest.raises(Enough, match="kernels for sm_90"):
            kernels.compile_file(model, [90], cache=str(cache), radial="exact", threads=1, progress=progress)
    except ClebschError as error:
        if "libnvrtc" not in str(error) or os.environ.get("CLEBSCH_REQUIRE_NVRTC") == "1":
            raise
        pytest.skip(str(error))
    begun = len(list(cache.iterdir())) if cache.exists() else 0
    assert begun < len(kernels.compile_file(model, [90], radial="exact", dry_run=True).kernels)


def test_errors_of_watched_work_arrive(needs_library, tmp_path):
    with pytest.raises(ClebschError, match="absent.pt"):
        Model(tmp_path / "absent.pt", progress=lambda *state: None)
    assert watched(lambda handle: handle.state(), lambda *state: None) == ("", 0, 0)


def test_commands_show_progress(needs_library, exported, monkeypatch, capsys):
    """check, bench and info hand their bar to the work."""
    told: list[str] = []
    monkeypatch.setattr(progress_bars.Bar, "__call__", lambda self, what, done, total: told.append(what))
    path = exported("preset-S")
    for arguments, expected in (
        (["check", path], "checks"),
        (["bench", path, "--side", "2", "--steps", "1"], "steps"),
        (["info", path], "errors of radial tables"),
    ):
        told.clear()
        assert cli.main(arguments) == 0
        assert expected in told
    capsys.readouterr()


# Completion


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("clebsch co", ["compile"]),
        ("clebsch compile --d", ["--debug", "--dtype", "--deterministic", "--dry-run"]),
        ("clebsch export ", ["nequip", "mace", "allegro"]),
        ("clebsch bench m.pt --radial e", ["exact"]),
    ],
)
def test_completion(typed, expected, no_torch, tmp_path):
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": typed, "COMP_POINT": str(len(typed)), "_ARGCOMPLETE_IFS": "\n"}
    clebsch_program(_ARGCOMPLETE_STDOUT_FILENAME=str(answer), **asked, **no_torch)
    found = {word.strip() for word in answer.read_text().splitlines()} - {"-h", "--help", "-q", "--quiet"}
    assert set(expected) <= found and found <= {*expected, "--debug"}
