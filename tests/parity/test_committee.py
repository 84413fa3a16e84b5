"""clebsch.committee: the deviation of several models' forces."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

from clebsch.ase import ClebschCalculator
from clebsch.committee import CommitteeCalculator, force_deviation
from clebsch.errors import ClebschError
from clebsch.export import backend
from graded_models import structures

pytestmark = pytest.mark.usefixtures("needs_library")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[Path]:
    import tiny_allegro
    import tiny_model

    folder = tmp_path_factory.mktemp("committee")
    made = [tiny_model.describe(dtype="float64", layers=2, lmax=1, seed=k) for k in (1, 2)]
    made.append(tiny_allegro.describe(dtype="float64"))
    for k, description in enumerate(made):
        backend.write(description, folder / f"{k}.pt", "float64")
    return [folder / f"{k}.pt" for k in range(3)]


def test_the_formula() -> None:
    rng = np.random.default_rng(0)
    forces = [1e6 + rng.normal(size=(5, 3)) for _ in range(4)]
    mean = sum(forces) / 4
    expected = np.sqrt(sum(((f - mean) ** 2).sum(1) for f in forces) / 4)
    assert np.abs(force_deviation(forces) - expected).max() < 1e-8
    assert (force_deviation([forces[0]] * 3) == 0).all()
    assert len(force_deviation([np.empty((0, 3))] * 2)) == 0
    for wrong in (forces[:1], [forces[0], forces[1][:4]]):
        with pytest.raises(ClebschError, match="two models or more"):
            force_deviation(wrong)


def test_calculator(files) -> None:
    atoms = structures(1, seed=3)[0]
    expected = []
    for path in files:
        atoms.calc = ClebschCalculator(path, "cpu")
        expected.append(atoms.get_forces())
    calc = atoms.calc = CommitteeCalculator(files, "cpu")
    assert np.array_equal(atoms.get_forces(), expected[0]) and "force_deviation" not in calc.results
    got = calc.get_property("force_deviation", atoms)
    assert np.abs(got - force_deviation(expected)).max() < 1e-12 and got.min() > 0
    atoms.positions[0] += 0.01
    assert np.abs(calc.get_property("force_deviation", atoms) - got).max() > 0
    always = CommitteeCalculator(files, "cpu", always=True)
    always.calculate(atoms, ["energy"])
    assert np.array_equal(always.results["force_deviation"], calc.results["force_deviation"])
    for twin in (copy.copy(calc), pickle.loads(pickle.dumps(calc))):
        assert np.array_equal(twin.get_property("force_deviation", atoms), calc.results["force_deviation"])


def test_refusals(files) -> None:
    for wrong in (files[:1], files[0], str(files[0])):
        with pytest.raises(ClebschError, match="two model files or more"):
            CommitteeCalculator(wrong, "cpu")
