"""Whole models on a GPU: against the CPU, finite differences, replayed steps, the ASE calculator."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from model_cases import diamond, difference, evaluate, gas, largest, limits, load, model_path, needs, rms, water

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
PER_ATOM = {"atom_virial": True, "centroid_virial": True}
CARBON = {
    "1 atom": lambda: gas(1),
    "none": lambda: gas(0),
    "64 atoms": lambda: diamond(2),
    "216 atoms": lambda: diamond(3),
}
WATER = {"1 atom": lambda: gas(1), "none": lambda: gas(0), "81 atoms": lambda: water(3), "375 atoms": lambda: water(5)}
LARGE = [
    ("water-nequip", "float32", "8232 atoms", lambda: water(14)),
    ("nequip-S", "float32", "8000 atoms", lambda: diamond(10)),
    ("nequip-M", "float64", "1000 atoms", lambda: diamond(5)),
    ("nequip-M", "float32", "8000 atoms", lambda: diamond(10)),
]


@functools.lru_cache(maxsize=2)
def on_the_cpu(model, dtype, radial):
    return load(model, "cpu", dtype, radial=radial)


def compare_with_the_cpu(model, dtype, structure, within, radial="table", **options):
    """Three steps: as they come, recorded, replayed. Errors of all."""
    expected = evaluate(on_the_cpu(needs(model), dtype, radial), structure, **PER_ATOM)
    on_gpu = load(model, "cuda", dtype, radial=radial, **options)
    errors = {}
    for _ in range(3):
        errors = largest(errors, difference(evaluate(on_gpu, structure, **PER_ATOM), expected))
    within(errors, limits(errors, TOLERANCE[dtype]))
    assert on_gpu.last_run["replayed"]


def parameters():
    """(model, dtype, structure)"""
    made = []
    for model in ("nequip-L", "nequip-M", "nequip-S", "water-nequip"):
        for dtype in TOLERANCE:
            for label, structure in (WATER if model.startswith("water") else CARBON).items():
                if (model, dtype, label) != ("nequip-L", "float64", "216 atoms"):
                    made.append((model, dtype, label, structure))
    return [pytest.param(m, d, s, id=f"{m}-{d}-{label}") for m, d, label, s in [*made, *LARGE]]


@pytest.mark.parametrize(("model", "dtype", "structure"), parameters())
def test_as_on_the_cpu(model, dtype, structure, within):
    compare_with_the_cpu(model, dtype, structure(), within)


def test_exact_radial_functions(within):
    compare_with_the_cpu("nequip-S", "float64", diamond(2), within, radial="exact")


@pytest.mark.parametrize("model", ["water-nequip", "nequip-S"])
def test_finite_differences(model, within):
    check_finite_differences(model, water(4) if model.startswith("water") else diamond(2), within)


def check_finite_differences(model, structure, within):
    on_gpu = load(needs(model), "cuda", "float64")
    forces = evaluate(on_gpu, structure)["forces"]
    worst = 0.0
    step = 1e-4
    for atom, axis in ((0, 0), (5, 1), (17, 2)):
        x = structure.positions[atom, axis]
        energies = []
        for sign in (1, -1):
            structure.positions[atom, axis] = x + sign * step
            energies.append(float(evaluate(on_gpu, structure, forces=False, virial=False)["energy"]))
        structure.positions[atom, axis] = x
        slope = -(energies[0] - energies[1]) / (2 * step)
        worst = max(worst, abs(slope - float(forces[atom, axis])) / rms(forces))
    within({"forces": worst}, 1e-6)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_graphs_that_change(dtype, within):
    check_changing_graphs("nequip-S", dtype, within)


def check_changing_graphs(model, dtype, within):
    """The graph shrinks, grows and empties; every step against one that is not recorded, with padding that is NaN."""
    replayed, eager = load(needs(model), "cuda", dtype), load(model, "cuda", dtype, cuda_graph=False)
    errors, replays = {}, 0
    structures = [diamond(2, s) for s in range(4)] + [gas(n, n) for n in (70, 80, 30, 1, 0, 2)]
    structures += [diamond(3, s) for s in range(3)] + [gas(3), diamond(2), diamond(3), diamond(4), diamond(4, 1)]
    structures += [diamond(2, s) for s in range(12)]
    for structure in structures:
        for _ in range(2):
            errors = largest(errors, difference(evaluate(replayed, structure), evaluate(eager, structure)))
            replays += replayed.last_run["replayed"]
    within(errors, 5 * TOLERANCE[dtype])
    assert replays > len(structures) and not eager.last_run["replayed"], f"{replays} of {2 * len(structures)} replayed"


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_lists_of_pairs(dtype, within):
    structures = [diamond(2), gas(70, 1), gas(0), gas(1), diamond(3), diamond(3, 1), diamond(2, 2)]
    assert check_lists_of_pairs("nequip-S", dtype, structures, 6, within) >= 2 * len(structures)


@pytest.mark.sanitize
def test_lists_of_pairs_without_recording(within):
    """Small and not recorded, for compute-sanitizer: recording needs torch's cache of memory, in which the borders of
    an array are not those of an allocation, so that nobody would see a kernel run over them."""
    structures = [gas(20, 1), gas(0), gas(1), diamond(1)]
    assert check_lists_of_pairs("nequip-S", "float64", structures, 2, within, cuda_graph=False) == 0


def check_lists_of_pairs(model, dtype, structures, steps, within, **options):
    """Edges found on the GPU among the pairs of a list, while atoms move and lists change, against sorted edges."""
    listed, edges = (load(needs(model), "cuda", dtype, **options) for _ in range(2))
    random = np.random.default_rng(5)
    errors, replays = {}, 0
    for structure in structures:
        listed.set_neighbours(structure.types, *structure.pairs(listed.r_max + 1.0))
        for step in range(steps):
            got = listed.compute_positions(*structure.points(), atom_virial=True)
            expected = evaluate(edges, structure, atom_virial=True)
            errors = largest(errors, difference(got, expected, ("forces", "virial", "atom_virial")))
            replays += listed.last_run["replayed"]
            structure.positions += 0.03 * random.standard_normal(structure.positions.shape)
            if step == steps // 2:  # denser: more edges than there is room for
                structure.positions *= 0.97
                structure.length *= 0.97
    within(errors, 10 * TOLERANCE[dtype])
    return replays


def test_no_allocations():
    """Steps from positions and from edges that fit their buffers ask torch's allocator for nothing."""
    on_gpu, structure = load(needs("nequip-S"), "cuda", "float32"), diamond(3)
    on_gpu.set_neighbours(structure.types, *structure.pairs(on_gpu.r_max + 1.0))
    graph, points = structure.graph(on_gpu.r_max), structure.points()
    counts = []
    for step in (lambda: on_gpu.compute_positions(*points), lambda: on_gpu.compute(*graph)):
        for _ in range(4):
            step()
        before = torch.cuda.memory_stats()
        for _ in range(10):
            step()
        after = torch.cuda.memory_stats()
        keys = ("allocation.all.allocated", "segment.all.allocated", "num_device_alloc")
        counts.append([after.get(key, 0) - before.get(key, 0) for key in keys])
    # Edges: scratch of the transpose, once a step from the allocator's cache; the driver is never asked.
    assert counts[0] == [0, 0, 0] and counts[1][1:] == [0, 0], f"from positions {counts[0]}, from edges {counts[1]}"


def check_same_bits(model):
    on_gpu, structure = load(needs(model), "cuda", "float32"), diamond(3)
    results = [evaluate(on_gpu, structure)["forces"] for _ in range(6)]
    assert all(torch.equal(r, results[2]) for r in results[3:]), "a replayed step differs"


def test_same_bits():
    check_same_bits("nequip-S")


def check_energy_alone(model, within):
    wanted = {"forces": False, "virial": False}
    on_gpu, on_cpu = (evaluate(load(needs(model), d, "float64"), diamond(2), **wanted) for d in ("cuda", "cpu"))
    within(difference(on_gpu, on_cpu), 1e-10)


def test_energy_alone(within):
    check_energy_alone("nequip-S", within)


def test_not_deterministic(within):
    got = evaluate(load(needs("nequip-S"), "cuda", "float32", deterministic=False), diamond(3))
    errors = difference(got, evaluate(load("nequip-S", "cpu", "float32"), diamond(3)))
    within(errors, limits(errors, 1e-5))


def test_ase_calculator(within):
    Atoms = pytest.importorskip("ase").Atoms
    from clebsch.ase import ClebschCalculator

    structure = water(5)
    symbols = ["OH"[int(t)] for t in structure.types]
    values = []
    for device in ("cuda", "cpu"):
        atoms = Atoms(symbols, structure.positions, cell=[structure.length] * 3, pbc=True)
        atoms.calc = ClebschCalculator(model_path("water-nequip"), device=device, dtype="float64")
        values.append((atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress(), atoms.get_stresses()))
    names = ("energy", "forces", "stress", "stresses")
    errors = {n: np.max(np.abs(a - b)) / np.max(np.abs(b)) for n, a, b in zip(names, *values, strict=True)}
    within({name: float(error) for name, error in errors.items()}, 1e-10)
    assert ClebschCalculator(model_path("water-nequip")).model.device == "cuda:0"


@pytest.mark.parametrize("name", ["cuda:77", "cuda:x"])
def test_unknown_devices_are_refused(name):
    with pytest.raises(Exception, match="device|cuda"):
        load("water-nequip", name, "float32")
