"""clebsch doctor in the tests' LAMMPS: the plugin, one of another LAMMPS, one that LAMMPS loads by itself."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src/python"))

from clebsch.cli import lammps_probe  # noqa: E402


@pytest.fixture
def plugin_finding(lmp, monkeypatch):
    """plugin_finding(CLEBSCH_PLUGIN=..., ...): what the doctor says of the plugin in an environment."""

    def look(**environment: str):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        found = {finding.check: finding for finding in lammps_probe.look(lmp)}
        assert found["LAMMPS"].status == "ok", found["LAMMPS"]
        return found["plugin"]

    return look


def test_the_plugin(plugin_finding, plugin):
    finding = plugin_finding(CLEBSCH_PLUGIN=plugin)
    assert finding.status == "ok" and "plugin load" in finding.found, finding


def test_the_plugin_of_another_lammps(plugin_finding):
    other = Path(os.environ["CLEBSCH_TEST_BINARIES"]) / "otherplugin.so"
    finding = plugin_finding(CLEBSCH_PLUGIN=str(other))
    assert finding.status == "fail" and "compiled for LAMMPS 2 Aug 2023, got LAMMPS " in finding.found, finding


def test_a_plugin_that_lammps_finds(plugin_finding, plugin):
    finding = plugin_finding(LAMMPS_PLUGIN_PATH=str(Path(plugin).parent))
    assert finding.status == "ok" and "without plugin load" in finding.found, finding
