"""MACE: exported models against mace-torch, refusals, the command line, the ASE calculator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from e3nn import o3

import mace_environment
from clebsch import coupling_sign

pytestmark = pytest.mark.usefixtures("needs_library")

#: Of docs/export.md: exact radial functions in fp64, tables in fp64, fp32.
LIMITS = {"float64 exact": 1e-10, "float64 table": 1e-6, "float32 exact": 1e-5, "float32 table": 1e-5}


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> tuple[Path, dict]:
    """A folder with the `.model` file of a training, and what mace_export.py says (for_tests)."""
    folder = tmp_path_factory.mktemp("models")
    return folder, mace_environment.run("mace_export.py", "tests", str(folder))


def test_errors(asked) -> None:
    """Energies, forces and virial of random models over random sheared cells with images."""
    for case, rows in asked[1]["errors"].items():
        for kind, errors in rows.items():
            for key, value in errors.items():
                limit = LIMITS[kind] * (10 if key == "forces_max" else 1)
                assert value <= limit, f"{case}, {kind}: {key} {value:.1e}, expected at most {limit:g}"


def test_refused(asked) -> None:
    """Options that Clebsch lacks are named, and nothing is written."""
    for option, message in asked[1]["refused"].items():
        words = {
            "no head": "head",
            "wrong head": "expected one of a, b",
            "wrong element": "elements",
            "element text": "got the text 'HO'",
        }.get(option, option)
        assert words in message, f"{option}: {message!r}"


@pytest.mark.nightly
def test_cuequivariance(tmp_path) -> None:
    """A model saved in cuEquivariance's layout: exported where that package is, refused by name where it is not."""
    for key, value in mace_environment.run("mace_export.py", "cueq", str(tmp_path), cueq=True).items():
        assert value <= LIMITS["float64 exact"] * (10 if key == "forces_max" else 1), f"{key} {value:.1e}"
    message = mace_environment.run("mace_export.py", "load", str(tmp_path / "converted.model"))
    assert "cuequivariance" in message and "convert_cueq_e3nn" in message, message


@pytest.fixture(scope="module")
def exported(asked) -> tuple[Path, dict, dict[str, str]]:
    """A model exported by the command line from the `.model` file of a training, and upstream's answer."""
    folder, answer = asked[0], asked[1]["file"]
    root = mace_environment.ROOT
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(mace_environment.MACE), str(root / "src/python")])}
    command = [sys.executable, "-W", "ignore", "-m", "clebsch"]
    done = subprocess.run(
        [*command, "export", "mace", "tiny.model", "tiny.pt", "--trust"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "compared with upstream" in done.stdout
    return folder / "tiny.pt", answer, environment


def test_command_line(exported) -> None:
    """`clebsch check --against` passes; without --trust nothing is unpickled."""
    path, _, environment = exported
    command = [sys.executable, "-W", "ignore", "-m", "clebsch"]
    against = [*command, "check", "tiny.pt", "--against", "tiny.model"]
    done = subprocess.run([*against, "--trust"], cwd=path.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    empty = [*command, "export", "mace", "tiny.model", "none.pt", "--trust", "--elements", ""]
    done = subprocess.run(empty, cwd=path.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "elements: expected some of H O, got none" in done.stderr
    assert not (path.parent / "none.pt").exists()
    done = subprocess.run(against, cwd=path.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "--trust" in done.stderr


def test_ase(exported) -> None:
    """The calculator, in a process that cannot import mace-torch, gives upstream's energy, forces and stress."""
    from clebsch.ase import ClebschCalculator

    path, answer, _ = exported
    atoms = Atoms(answer["numbers"], positions=answer["positions"], cell=answer["cell"], pbc=True)
    atoms.calc = ClebschCalculator(str(path))
    scale = np.sqrt(np.mean(np.square(answer["forces"])))
    assert atoms.get_potential_energy() == pytest.approx(answer["energy"], rel=1e-10)
    assert np.abs(atoms.get_forces() - answer["forces"]).max() < 1e-5 * scale
    virial = -atoms.get_stress(voigt=False) * atoms.get_volume()
    assert np.abs(virial - answer["virial"]).max() < 1e-5 * np.abs(answer["virial"]).max()


def test_coupling_sign() -> None:
    """The couplings that exporters compare with are those of the e3nn this library follows."""
    low = [(l1, l2, l3) for l1 in range(5) for l2 in range(5) for l3 in range(abs(l1 - l2), min(l1 + l2, 4) + 1)]
    for degrees in [*low, (7, 7, 7), (5, 6, 7), (7, 1, 6)]:
        tensor = o3.wigner_3j(*degrees, dtype=torch.float64)
        assert coupling_sign.sign_of(tensor) == 1.0
        assert coupling_sign.sign_of(-tensor.float()) == -1.0
        with pytest.raises(ValueError, match="Wigner 3j"):
            coupling_sign.sign_of(2 * tensor)
    with pytest.raises(ValueError, match="Wigner 3j"):
        coupling_sign.sign_of(torch.ones(3, 3, 3))
    with pytest.raises(ValueError, match="up to 7"):
        coupling_sign.sign_of(torch.ones(3, 3, 15))


def test_couplings_are_the_library_s() -> None:
    """Python compares with the file that core_coupling_test.cpp holds against the library's formula; it has none."""
    packaged = Path(coupling_sign.__file__).with_name("coupling_signs.txt")
    core = mace_environment.ROOT / "src" / "core" / "math" / "coupling_signs.txt"
    assert packaged.read_text() == core.read_text()
