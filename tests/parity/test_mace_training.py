"""Training a MACE model on Clebsch's convolution and symmetric contraction gives upstream's losses."""

from __future__ import annotations

import pytest

import mace_environment

pytestmark = pytest.mark.usefixtures("needs_library")


@pytest.fixture(scope="module")
def results() -> dict:
    return mace_environment.run("mace_training.py")


@pytest.mark.parametrize("case", ["residual", "density", "use_so3", "both-parities"])
def test_same_losses_as_upstream(results: dict, case: str) -> None:
    result = results[case]
    assert result["converted"] == 2
    assert result["products"] == 2
    assert result["same_state_dict"]
    assert result["expected"][0] != pytest.approx(result["expected"][-1], rel=1e-3)
    assert result["got"] == pytest.approx(result["expected"], rel=1e-9)


@pytest.mark.parametrize("case", ["residual", "use_so3"])
def test_model_file(results: dict, case: str) -> None:
    """A whole model is saved and read as mace_run_train does, trains on, and is exported."""
    result = results["saved"][case]
    assert result["same_state_dict"] and result["trained"]
    expected = result["energies"][0]
    assert all(energies == expected for energies in result["energies"])
    assert expected == pytest.approx(result["plain"], rel=1e-12)
    assert max(result["export"].values()) < 1e-10


def test_refuses_other_models(results: dict) -> None:
    assert "expected a MACE model" in results["refused"]


def test_modes_leave_nothing_behind(results: dict) -> None:
    modes = results["modes"]
    assert modes["inference"] == pytest.approx(modes["none"], rel=1e-5)
    assert modes["export"] == pytest.approx(modes["none"], rel=1e-5)
    assert modes["training"] == [True, False, True]


def test_a_state_dict_brings_its_basis_of_paths(results: dict) -> None:
    for energies in results["loaded"]["got"]:
        assert energies == pytest.approx(results["loaded"]["expected"], rel=1e-10)


def test_hooks_are_refused(results: dict) -> None:
    interaction, product = results["hooked"]
    assert "interaction 1" in interaction and "expected no hooks" in interaction
    assert "product 1" in product and "expected no hooks" in product
