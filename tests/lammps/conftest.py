"""Fixtures of the LAMMPS run tests: where lmp, the plugin and the test models are.

Environment (ctest sets it; defaults suit a build in `build/`): CLEBSCH_LMP, CLEBSCH_PLUGIN, CLEBSCH_TEST_BINARIES.
"""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/unit"))
from make_models import shared  # noqa: E402


@pytest.fixture(scope="session")
def lmp() -> str:
    path = os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp"))
    if not Path(path).exists():
        pytest.fail(f"expected a LAMMPS executable, got {path}; set CLEBSCH_LMP or run scripts/quickstart")
    return path


@pytest.fixture(scope="session")
def plugin() -> str:
    path = os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so"))
    if not Path(path).exists():
        pytest.fail(f"expected the plugin, got {path}; build it or set CLEBSCH_PLUGIN")
    return path


@pytest.fixture
def lammps(lmp, plugin, tmp_path):
    """A callable that runs an input: `lammps(text, ranks=1, ...) -> Run` (see lammps_runs.py)."""
    from lammps_runs import Lammps

    return Lammps(lmp, plugin, tmp_path)


@pytest.fixture
def kokkos(tmp_path):
    """The like of `lammps` for clebsch/kk."""
    from kokkos_style import LMP, PLUGIN
    from lammps_runs import KokkosLammps

    folder = tmp_path / "kokkos"
    folder.mkdir()
    return KokkosLammps(LMP, PLUGIN, folder)


def tiny_model(folder: Path, *options: str, script="tiny_model.py") -> str:
    """The file of a small random model, not to be written to; made in `folder` if the build has none like it."""
    return shared(folder, script, *options)


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> str:
    """A small random-weight model of O and H in fp64: three layers, and a cutoff of its own for each ordered pair."""
    if "CLEBSCH_TEST_MODEL" in os.environ:
        return os.environ["CLEBSCH_TEST_MODEL"]
    return tiny_model(tmp_path_factory.mktemp("models"), "dtype=float64", "layers=3", "lmax=1")


@pytest.fixture(scope="session")
def mace_model(tmp_path_factory) -> str:
    """The like of family mace: two layers, densities."""
    return tiny_model(tmp_path_factory.mktemp("models"), script="tiny_mace.py")


@pytest.fixture(scope="session", params=["declared", "undeclared"])
def output_model(request, tmp_path_factory) -> str:
    """With further outputs: features (8 an atom), moment (8) and square (1) of the system, sums over atoms of energy x
    features and energy x energy. Older files do not declare which is which."""
    number = {"declared": 1, "undeclared": 2}[request.param]
    return tiny_model(tmp_path_factory.mktemp("models"), "dtype=float64", "layers=2", "lmax=1", f"outputs={number}")


@pytest.fixture(scope="session")
def repulsive_model(tmp_path_factory) -> str:
    """The like with a repulsive pair term, for dynamics: random weights alone may attract without end."""
    return tiny_model(tmp_path_factory.mktemp("models"), "dtype=float64", "layers=2", "lmax=1", "zbl=1")
