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
