"""MACE models of every kind on a GPU: against the CPU, replayed, finite differences."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from model_cases import Structure, diamond, difference, evaluate, gas, largest, limits, load, needs, rms

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
#: Per-atom virials are compared where energies and forces are.
EXTRA = {"atom_virial": True, "centroid_virial": True}
#: The files of benchmarks/models/make_mace_models.py: every radial function, interaction and kind of output.
CASES = (
    "residual", "agnostic-first", "density-first", "density-residual", "mpa", "agnesi", "soft", "zbl", "gaussian",
    "late-cutoff", "nonlinear", "heads-three", "five-elements", "so3", "three-layers", "correlation-4-vectors",
)  # fmt: skip
SMALL = {
    "1 atom": lambda: gas(1),
    "12 atoms": lambda: gas(12),
    "64 atoms": lambda: diamond(2),
    "none": lambda: gas(0),
    "216 atoms": lambda: diamond(3),
}
LARGER = {"64 atoms": lambda: diamond(2), "512 atoms": lambda: diamond(4)}


def mixed(structure: Structure, types: int, seed: int = 0) -> Structure:
    """The same with types at random, all of them if there are atoms enough."""
    drawn = np.random.default_rng(seed).integers(0, types, len(structure))
    drawn[: min(types, len(structure))] = np.arange(min(types, len(structure)))
    structure.types = torch.as_tensor(drawn)
    return structure


@functools.lru_cache(maxsize=2)
def models(name: str, dtype: str, device: str):
    """The model on the CPU and on the device."""
    return load(needs(name), "cpu", dtype), load(name, device, dtype)


def parameters():
    """(model, dtype, structure); the structures of one model follow each other, so that its buffers have to grow."""
    of = {f"mace-test-{case}": SMALL for case in CASES} | {"mace-M": LARGER, "mace-M-5el": LARGER}
    made = [(m, d, s) for m, structures in of.items() for d in TOLERANCE for s in structures]
    return [pytest.param(m, d, of[m][s], id=f"{m}-{d}-{s}") for m, d, s in made]


@pytest.mark.parametrize(("model", "dtype", "structure"), parameters())
def test_as_on_the_cpu(model, dtype, structure, device, within):
    """Three steps: as they come, recorded, replayed."""
    on_cpu, on_device = models(model, dtype, device)
    made = mixed(structure(), len(on_cpu.type_names))
    expected, errors = evaluate(on_cpu, made, **EXTRA), {}
    for _ in range(3):
        errors = largest(errors, difference(evaluate(on_device, made, **EXTRA), expected))
    within(errors, limits(errors, TOLERANCE[dtype]))
    assert device != "cuda" or on_device.last_run["replayed"]


@pytest.mark.parametrize("model", [f"mace-test-{case}" for case in CASES])
def test_forces_are_worth_comparing(model, device):
    """Random weights could leave forces so small that any would agree."""
    on_cpu = load(needs(model), "cpu", "float64")
    structures = (mixed(made(), len(on_cpu.type_names)) for made in SMALL.values())
    assert max(rms(evaluate(on_cpu, structure)["forces"]) for structure in structures) > 0.1


@pytest.mark.parametrize("model", [f"mace-test-{case}" for case in ("mpa", "nonlinear", "five-elements")])
def test_finite_differences(model, device, within):
    """Forces against differences of the energy; virial against those of a strain."""
    model, step = load(needs(model), device, "float64"), 1e-4
    structure = mixed(diamond(2), len(model.type_names))
    got = evaluate(model, structure)
    worst = 0.0
    for atom, axis in ((0, 0), (5, 1), (17, 2)):
        energies = []
        x = structure.positions[atom, axis]
        for sign in (1, -1):
            structure.positions[atom, axis] = x + sign * step
            energies.append(float(evaluate(model, structure, forces=False, virial=False)["energy"]))
        structure.positions[atom, axis] = x
        slope = -(energies[0] - energies[1]) / (2 * step)
        worst = max(worst, abs(slope - float(got["forces"][atom, axis])) / rms(got["forces"]))
    kept, length = structure.positions.copy(), structure.length

    def slope_of_strain(size: float) -> float:
        energies = []
        for strain in (size, -size):
            structure.positions, structure.length = kept * (1 + strain), length * (1 + strain)
            energies.append(float(evaluate(model, structure, forces=False, virial=False)["energy"]))
        return -(energies[0] - energies[1]) / (2 * size)

    # The trace is what is left of large terms: the error of a difference, which falls with the square, is taken out.
    trace = (4 * slope_of_strain(step / 2) - slope_of_strain(step)) / 3
    error = abs(trace - float(got["virial"].diagonal().sum())) / max(abs(trace), 1.0)
    within({"forces": worst, "trace of the virial": error}, 2e-6)
