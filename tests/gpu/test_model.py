"""Whole models on a GPU: against the CPU, finite differences, replayed steps, the ASE calculator.

python3 tests/gpu/test_model.py [--quick]     with CLEBSCH_LIBRARY, on a machine with a GPU
Prints one line a check and ends with status 1 when one failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

import numpy as np
import torch
from model_cases import Structure, diamond, evaluate, gas, load, model_path, water

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
failures: list[str] = []
only = ""


def report(name: str, good: bool, text: str) -> None:
    print(f"{'ok  ' if good else 'FAIL'} {name}: {text}", flush=True)
    if not good:
        failures.append(name)


def check(name: str, work, *args) -> None:
    if only not in name:
        return
    start = time.perf_counter()
    try:
        good, text = work(*args)
        report(name, good, f"{text} ({time.perf_counter() - start:.1f} s)")
    except Exception:
        report(name, False, traceback.format_exc(limit=4))


def rms(x: torch.Tensor) -> float:
    return float(x.double().square().mean().sqrt()) if x.numel() else 0.0


def difference(got: dict, expected: dict, keys=("forces", "virial", "atom_virial", "centroid_virial")):
    """Energy error per atom against max(|E|/N, 1 eV), and relative RMS of the rest."""
    n = max(len(expected["atomic_energy"]), 1)
    energy, reference = float(got["energy"]), float(expected["energy"])
    errors = {"energy": abs(energy - reference) / n / max(abs(reference) / n, 1.0)}
    for key in keys:
        if key in expected:
            scale = max(rms(expected[key]), 1e-6)
            errors[key] = rms(got[key] - expected[key]) / scale
    return errors


def judged(errors: dict[str, float], tolerance: float) -> tuple[bool, str]:
    # Virials are sums with cancellation: ten times looser.
    good = all(e <= tolerance * (10 if "virial" in key else 1) for key, e in errors.items())
    return good, " ".join(f"{key} {e:.1e}" for key, e in errors.items())


references: dict[tuple, dict] = {}


def as_on_the_cpu(model: str, dtype: str, label: str, structure: Structure, options: dict, of_exact: bool = False):
    key = (model, dtype, label, of_exact)
    extra = {"atom_virial": True, "centroid_virial": True}
    if key not in references:
        references[key] = evaluate(
            load(model, "cpu", dtype, radial="exact" if of_exact else "table"), structure, **extra
        )
    on_gpu = load(model, "cuda", dtype, **options)
    errors: dict[str, float] = {}
    for _ in range(3):  # eager, recorded, replayed
        again = difference(evaluate(on_gpu, structure, **extra), references[key])
        errors = {k: max(v, errors.get(k, 0.0)) for k, v in again.items()}
    good, text = judged(errors, TOLERANCE[dtype])
    run = on_gpu.last_run
    return good, f"{text}; replayed {run['replayed']}, recordings {run['captures']}"


def finite_differences(model: str):
    on_gpu = load(model, "cuda", "float64")
    structure = diamond(2) if model.startswith("nequip") else water(4)
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
    return worst < 1e-6, f"{worst:.1e}"


def replay_of_changing_graphs(model: str, dtype: str):
    """The graph shrinks, grows and empties; every step against one that is not recorded, with padding that is NaN."""
    replayed, eager = load(model, "cuda", dtype), load(model, "cuda", dtype, cuda_graph=False)
    worst, replays, text = 0.0, 0, ""
    structures = [diamond(2, s) for s in range(4)] + [gas(n, n) for n in (70, 80, 30, 1, 0, 2)]
    structures += [diamond(3, s) for s in range(3)] + [gas(3), diamond(2), diamond(3), diamond(4), diamond(4, 1)]
    structures += [diamond(2, s) for s in range(12)]
    for structure in structures:
        for _ in range(2):
            errors = difference(evaluate(replayed, structure), evaluate(eager, structure))
            worst = max(worst, *errors.values())
            replays += replayed.last_run["replayed"]
    text = f"{worst:.1e}, {replays} of {2 * len(structures)} steps replayed, {replayed.last_run}"
    good = worst <= 5 * TOLERANCE[dtype] and replays > len(structures) and not eager.last_run["replayed"]
    return good, text


def lists_of_pairs(model: str, dtype: str):
    """Edges found on the GPU among the pairs of a list, while atoms move and lists change, against sorted edges."""
    listed, edges = load(model, "cuda", dtype), load(model, "cuda", dtype)
    random = np.random.default_rng(5)
    worst, replays, steps = 0.0, 0, 0
    for structure in [diamond(2), gas(70, 1), gas(0), gas(1), diamond(3), diamond(3, 1), diamond(2, 2)]:
        listed.set_neighbours(structure.types, *structure.pairs(listed.r_max + 1.0))
        for step in range(6):
            got = listed.compute_positions(*structure.points(), atom_virial=True)
            expected = evaluate(edges, structure, atom_virial=True)
            worst = max(worst, *difference(got, expected, ("forces", "virial", "atom_virial")).values())
            replays += listed.last_run["replayed"]
            steps += 1
            structure.positions += 0.03 * random.standard_normal(structure.positions.shape)
            if step == 3:  # denser: more edges than there is room for
                structure.positions *= 0.97
                structure.length *= 0.97
    text = f"{worst:.1e}, {replays} of {steps} steps replayed, {listed.last_run}"
    return worst <= 10 * TOLERANCE[dtype] and replays >= steps // 3, text


def no_allocations(model: str):
    """Steps from positions and from edges that fit their buffers ask torch's allocator for nothing."""
    on_gpu, structure = load(model, "cuda", "float32"), diamond(3)
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
    good = counts[0] == [0, 0, 0] and counts[1][1:] == [0, 0]
    return good, f"allocations, segments, driver calls in 10 steps: from positions {counts[0]}, from edges {counts[1]}"


def same_bits(model: str):
    on_gpu = load(model, "cuda", "float32")
    structure = diamond(3)
    results = [evaluate(on_gpu, structure)["forces"] for _ in range(6)]
    equal = [bool(torch.equal(r, results[2])) for r in results]
    return all(equal[2:]), f"replays {equal[2:]}, steps before {equal[:2]}"


def energy_alone(model: str):
    on_gpu, on_cpu = load(model, "cuda", "float64"), load(model, "cpu", "float64")
    structure = diamond(2)
    wanted = {"forces": False, "virial": False}
    a, b = evaluate(on_gpu, structure, **wanted), evaluate(on_cpu, structure, **wanted)
    return judged(difference(a, b), 1e-10)


def not_deterministic(model: str):
    return judged(
        difference(
            evaluate(load(model, "cuda", "float32", deterministic=False), diamond(3)),
            evaluate(load(model, "cpu", "float32"), diamond(3)),
        ),
        1e-5,
    )


def ase_calculator():
    from ase import Atoms

    from clebsch.ase import ClebschCalculator

    structure = water(5)
    symbols = ["OH"[int(t)] for t in structure.types]
    values = []
    for device in ("cuda", "cpu"):
        atoms = Atoms(symbols, structure.positions, cell=[structure.length] * 3, pbc=True)
        atoms.calc = ClebschCalculator(model_path("water-nequip"), device=device, dtype="float64")
        values.append((atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress(), atoms.get_stresses()))
    errors = [abs(values[0][0] - values[1][0]) / abs(values[1][0])]
    errors += [float(abs(a - b).max() / abs(b).max()) for a, b in zip(values[0][1:], values[1][1:], strict=True)]
    automatic = ClebschCalculator(model_path("water-nequip")).model.device
    return max(errors) < 1e-10 and automatic == "cuda:0", f"{max(errors):.1e}, auto is {automatic}"


def refusals():
    texts = []
    for device in ("cuda:77", "cuda:x"):
        try:
            load("water-nequip", device, "float32")
            return False, f"{device} was not refused"
        except Exception as error:
            texts.append(str(error)[:100])
    return True, " | ".join(texts)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small structures and two models alone")
    parser.add_argument("--only", default="", help="checks whose name holds this")
    options = parser.parse_args()
    quick = options.quick
    global only
    only = options.only
    torch.set_num_threads(min(16, os.cpu_count() or 1))
    print("#", torch.cuda.get_device_name(), torch.__version__, flush=True)
    small = {"1 atom": gas(1), "64 atoms": diamond(2), "none": gas(0), "216 atoms": diamond(3)}
    models = ["water-nequip", "nequip-S"] if quick else ["water-nequip", "nequip-S", "nequip-M", "nequip-L"]
    for model in [m for m in models if model_path(m).exists()]:
        for dtype in ("float64", "float32"):
            for label, structure in small.items():
                if model == "water-nequip" and "atoms" in label:
                    structure, label = water(3 if "64" in label else 5), "water " + label
                if model == "nequip-L" and label == "216 atoms" and dtype == "float64":
                    continue
                check(f"{model} {dtype} {label}", as_on_the_cpu, model, dtype, label, structure, {})
    for model in ("water-nequip", "nequip-S"):
        check(f"{model} finite differences", finite_differences, model)
    check("nequip-S float64, graphs that change", replay_of_changing_graphs, "nequip-S", "float64")
    check("nequip-S float32, graphs that change", replay_of_changing_graphs, "nequip-S", "float32")
    for dtype in ("float64", "float32"):
        check(f"nequip-S {dtype}, lists of pairs", lists_of_pairs, "nequip-S", dtype)
    check("nequip-S no allocations", no_allocations, "nequip-S")
    check("nequip-S same bits", same_bits, "nequip-S")
    check("nequip-S energy alone", energy_alone, "nequip-S")
    check("nequip-S not deterministic", not_deterministic, "nequip-S")
    check("nequip-S exact radial", as_on_the_cpu, "nequip-S", "float64", "exact", diamond(2), {"radial": "exact"}, True)
    check("ASE", ase_calculator)
    check("refusals", refusals)
    if not quick:
        check("water-nequip float32 8232", as_on_the_cpu, "water-nequip", "float32", "8232", water(14), {})
        check("nequip-S float32 8000", as_on_the_cpu, "nequip-S", "float32", "8000", diamond(10), {})
        check("nequip-M float64 1000", as_on_the_cpu, "nequip-M", "float64", "1000", diamond(5), {})
        check("nequip-M float32 8000", as_on_the_cpu, "nequip-M", "float32", "8000", diamond(10), {})
    print(f"{len(failures)} checks failed" + "".join(f"\n  {name}" for name in failures), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
