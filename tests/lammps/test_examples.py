"""The LAMMPS examples run, shortened, and their pictures are drawn."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT


def run_example(lmp: str, plugin: str, folder: Path, example: str, script: str, model: str, **variables) -> str:
    """A copy of the example in `folder`, run and drawn; returns what plot.py prints."""
    for name in (example, "lammps_output.py"):
        source = ROOT / "examples" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    # Scripts of LAMMPS cannot take a path with a space from a variable; the checkout's may have one.
    (folder / "models").symlink_to(ROOT / "models")
    (folder / "plugin").symlink_to(Path(plugin).parent)
    words = [lmp, "-in", script]
    variables |= {"plugin": f"../plugin/{Path(plugin).name}", "model": f"../models/{model}"}
    for name, value in variables.items():
        words += ["-var", name, str(value)]
    place, environment = folder / example, os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:]
    drawn = subprocess.run([sys.executable, "plot.py"], cwd=place, capture_output=True, text=True, timeout=120)
    assert drawn.returncode == 0, drawn.stderr
    return drawn.stdout


def printed(text: str, name: str) -> float:
    """The number that plot.py prints after `name`."""
    return float(re.search(rf"^{re.escape(name)}\s+(-?[\d.]+)", text, re.MULTILINE)[1])


@pytest.mark.parametrize("model", ["water-nequip.pt", "water-allegro.pt"])
def test_water_box(lmp, plugin, tmp_path, model):
    """A few steps: the water stays at its temperature, roughly."""
    shown = run_example(lmp, plugin, tmp_path, "water_box", "in.water", model, nvt=20, nve=60)
    assert printed(shown, "mean temperature (NVE)") == pytest.approx(300, abs=60)
    assert (tmp_path / "water_box/water.png").stat().st_size > 10_000


def test_carbon_lattice(lmp, plugin, tmp_path):
    """64 atoms: after hot steps the lattice relaxes to the model's diamond."""
    variables = {"cells": 2, "heat": 60, "hold": 60, "relax": 60}
    shown = run_example(lmp, plugin, tmp_path, "carbon_lattice", "in.carbon", "carbon-mace.pt", **variables)
    assert printed(shown, "lattice constant (relaxed)") == pytest.approx(3.565, abs=0.02)
    assert printed(shown, "energy (relaxed)") == pytest.approx(-7.35, abs=0.03)
    assert printed(shown, "first peak of g(r)") == pytest.approx(1.55, abs=0.1)
    assert (tmp_path / "carbon_lattice/carbon.png").stat().st_size > 10_000
