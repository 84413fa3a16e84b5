"""Allegro models on a GPU: against the CPU, both paths of its matrix products, chunks, replayed steps."""

from __future__ import annotations

import pytest
import torch
from model_cases import diamond, difference, evaluate, gas, largest, limits, load, needs, rms, water
from test_model import (
    TOLERANCE,
    check_changing_graphs,
    check_energy_alone,
    check_finite_differences,
    check_same_bits,
    compare_with_the_cpu,
)

OPTION = "CLEBSCH_CUDA_ALLEGRO"
MODELS = ("allegro-l2", "allegro-l1", "water-allegro")
STRUCTURES = {
    "1 atom": lambda: gas(1),
    "none": lambda: gas(0),
    "gas": lambda: gas(40),
    "192 atoms of water": lambda: water(4),
    "64 atoms": lambda: diamond(2),
    "216 atoms": lambda: diamond(3),
}
LARGE = [("float32", "8000 atoms", lambda: diamond(10)), ("float64", "1000 atoms", lambda: diamond(5))]


def parameters():
    """(model, dtype, structure); the model of water for what it was trained on."""
    made = []
    for model in MODELS:
        for dtype in TOLERANCE:
            for label, structure in STRUCTURES.items():
                if model != "water-allegro" or not label[0].isdigit() or label in ("1 atom", "192 atoms of water"):
                    made.append((model, dtype, label, structure))
    made += [("allegro-l2", *large) for large in LARGE]
    return [pytest.param(m, d, s, id=f"{m}-{d}-{label}") for m, d, label, s in made]


PARAMETERS = parameters()
FP32 = [p for p in PARAMETERS if p.values[1] == "float32"]


@pytest.mark.parametrize(("model", "dtype", "structure"), PARAMETERS)
def test_as_on_the_cpu(model, dtype, structure, within):
    compare_with_the_cpu(model, dtype, structure(), within)


@pytest.mark.parametrize(("model", "dtype", "structure"), FP32)
def test_as_on_the_cpu_without_tensor_cores(model, dtype, structure, within, monkeypatch):
    monkeypatch.setenv(OPTION, "dense=fp32")
    compare_with_the_cpu(model, dtype, structure(), within)


@pytest.mark.sanitize
def test_step_without_recording(within):
    """Small and not recorded, for compute-sanitizer (test_model.py says why)."""
    structure = gas(20)
    for dtype in TOLERANCE:
        got = evaluate(load(needs("allegro-l2"), "cuda", dtype, cuda_graph=False), structure)
        errors = difference(got, evaluate(load("allegro-l2", "cpu", dtype), structure))
        within(errors, limits(errors, TOLERANCE[dtype]))


@pytest.mark.parametrize("model", MODELS)
def test_finite_differences(model, within):
    check_finite_differences(model, water(4) if model.startswith("water") else diamond(2), within)


def forces_and_energies(model, structure, dtype, option, monkeypatch):
    monkeypatch.setenv(OPTION, option)
    got = evaluate(load(needs(model), "cuda", dtype), structure)
    monkeypatch.delenv(OPTION)
    return got


@pytest.mark.parametrize("model", MODELS)
def test_tensor_cores_are_as_exact(model, monkeypatch, record_property):
    """Errors of energies and forces against fp64: those of 3xTF32 are at most twice those of plain fp32."""
    structure = water(6) if model == "water-allegro" else diamond(5)
    exact = evaluate(load(needs(model), "cuda", "float64"), structure)
    for key in ("atomic_energy", "forces"):
        errors = {}
        for dense in ("fp32", "tf32x3"):
            got = forces_and_energies(model, structure, "float32", f"dense={dense}", monkeypatch)
            errors[dense] = rms(got[key] - exact[key])
        record_property(f"{key}, error of tf32x3 over fp32", errors["tf32x3"] / errors["fp32"])
        assert errors["tf32x3"] <= 2.0 * errors["fp32"], (key, errors)


def test_the_option_chooses_another_path(monkeypatch):
    plain, tensor = (
        forces_and_energies("allegro-l2", diamond(2), "float32", f"dense={dense}", monkeypatch)["forces"]
        for dense in ("fp32", "tf32x3")
    )
    assert not torch.equal(plain, tensor)


@pytest.mark.parametrize(("dtype", "dense"), [("float32", "fp32"), ("float32", "tf32x3"), ("float64", "tf32x3")])
def test_any_chunks(dtype, dense, monkeypatch, within):
    """Chunks of a few receivers give what one chunk gives: an edge's row of a tile does not matter."""
    structure, errors = diamond(3), {}
    expected = forces_and_energies("allegro-l2", structure, dtype, f"dense={dense}", monkeypatch)
    for chunks in ("edges=64,longest=256", "edges=1000,longest=256", "edges=4096"):
        again = forces_and_energies("allegro-l2", structure, dtype, f"{chunks},dense={dense}", monkeypatch)
        errors = largest(errors, difference(again, expected))
    within(errors, limits(errors, 1e-6 if dtype == "float32" else 1e-12))


@pytest.mark.parametrize("dense", ["fp32", "tf32x3"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_graphs_that_change(dtype, dense, monkeypatch, within):
    if (dtype, dense) == ("float64", "fp32"):
        pytest.skip("float64 has one path")
    monkeypatch.setenv(OPTION, f"dense={dense}")
    check_changing_graphs("allegro-l2", dtype, within)


@pytest.mark.parametrize("dense", ["fp32", "tf32x3"])
def test_same_bits(dense, monkeypatch):
    monkeypatch.setenv(OPTION, f"dense={dense}")
    check_same_bits("allegro-l2")


def test_energy_alone(within):
    check_energy_alone("allegro-l2", within)


def test_too_long_a_row(monkeypatch):
    """A receiver for which the workspace has no room is refused."""
    monkeypatch.setenv(OPTION, "edges=64,longest=16")
    with pytest.raises(Exception, match="(?i)finite|nan"):
        evaluate(load(needs("allegro-l2"), "cuda", "float64"), diamond(3))


def test_exact_radial_functions_are_refused():
    with pytest.raises(Exception, match="radial"):
        load(needs("allegro-l2"), "cuda", "float64", radial="exact")
