"""Allegro models on a GPU: against the CPU, finite differences, chunks, replayed steps. As test_model.py.

python3 tests/gpu/test_allegro.py     with CLEBSCH_LIBRARY, on a machine with a GPU
Prints one line a check and ends with status 1 when one failed.
"""

from __future__ import annotations

import os
import sys

import torch
from model_cases import Structure, diamond, evaluate, gas, load, model_path, water
from test_model import (
    as_on_the_cpu,
    check,
    difference,
    energy_alone,
    failures,
    finite_differences,
    judged,
    replay_of_changing_graphs,
    rms,
    same_bits,
)

CHUNKS = "CLEBSCH_CUDA_ALLEGRO"


def chosen(option: str, work, *args):
    """work(*args) with CLEBSCH_CUDA_ALLEGRO as given."""
    os.environ[CHUNKS] = option
    try:
        return work(*args)
    finally:
        os.environ.pop(CHUNKS, None)


def error_of_tensor_cores(model: str, structure: Structure):
    """Errors of energies and forces against fp64: 3xTF32's at most twice plain fp32's."""
    exact = evaluate(load(model, "cuda", "float64"), structure)
    errors = {}
    for dense in ("fp32", "tf32x3"):
        got = chosen(f"dense={dense}", lambda: evaluate(load(model, "cuda", "float32"), structure))
        errors[dense] = {key: rms(got[key] - exact[key]) for key in ("atomic_energy", "forces")}
    ratios = {key: errors["tf32x3"][key] / errors["fp32"][key] for key in errors["fp32"]}
    relative = {dense: e["forces"] / rms(exact["forces"]) for dense, e in errors.items()}
    text = " ".join(f"{key} {ratio:.2f} of fp32's" for key, ratio in ratios.items())
    return max(ratios.values()) <= 2.0, f"{text}; forces, relative: {relative}"


def differs(model: str):
    """The option chooses another path."""
    structure = diamond(2)
    plain = chosen("dense=fp32", lambda: evaluate(load(model, "cuda", "float32"), structure)["forces"])
    tensor = chosen("dense=tf32x3", lambda: evaluate(load(model, "cuda", "float32"), structure)["forces"])
    return not torch.equal(plain, tensor), f"largest difference {float((plain - tensor).abs().max()):.1e}"


def any_chunks(model: str, dtype: str, dense: str = "tf32x3"):
    """Chunks of a few receivers give the bits of one chunk: an edge's row of a tile does not matter."""
    structure = diamond(3)
    expected = chosen(f"dense={dense}", lambda: evaluate(load(model, "cuda", dtype), structure))
    worst: dict[str, float] = {}
    for chunks in ("edges=64,longest=256", "edges=1000,longest=256", "edges=4096"):
        again = chosen(f"{chunks},dense={dense}", lambda: evaluate(load(model, "cuda", dtype), structure))
        worst = {k: max(v, worst.get(k, 0.0)) for k, v in difference(again, expected).items()}
    return judged(worst, 1e-6 if dtype == "float32" else 1e-12)


def too_long_a_row(model: str):
    """A receiver for which the workspace has no room is refused, and the next step is right again."""
    os.environ[CHUNKS] = "edges=64,longest=16"
    on_gpu = load(model, "cuda", "float64")
    try:
        evaluate(on_gpu, diamond(3))
        return False, "was not refused"
    except Exception as error:
        text = str(error)[:120]
    finally:
        del os.environ[CHUNKS]
    return "finite" in text or "nan" in text.lower(), text


def exact_is_refused(model: str):
    try:
        load(model, "cuda", "float64", radial="exact")
        return False, "was not refused"
    except Exception as error:
        return "radial" in str(error), str(error)[:160]


def main() -> int:
    torch.set_num_threads(min(16, os.cpu_count() or 1))
    print("#", torch.cuda.get_device_name(), torch.__version__, flush=True)
    names = ("allegro-l2", "allegro-l1", "water-allegro")
    models = [name for name in names if model_path(name).exists()]
    print("# models:", *(str(model_path(name)) for name in models), flush=True)
    small = {"1 atom": gas(1), "none": gas(0), "gas": gas(40), "64 atoms": diamond(2), "216 atoms": diamond(3)}
    small |= {"water": water(4)}
    for model in models:
        for dtype in ("float64", "float32"):
            for label, structure in small.items():
                if model == "water-allegro" and "atoms" in label:
                    continue
                check(f"{model} {dtype} {label}", as_on_the_cpu, model, dtype, label, structure, {})
        check(f"{model} finite differences", finite_differences, model)
    plain = "dense=fp32"
    for model in models:
        for label, structure in small.items():
            if model == "water-allegro" and "atoms" in label:
                continue
            check(f"{model} {plain} {label}", chosen, plain, as_on_the_cpu, model, "float32", label, structure, {})
        structure = water(6) if model == "water-allegro" else diamond(5)
        check(f"{model} dense=tf32x3 against float64", error_of_tensor_cores, model, structure)
    model = models[0]
    check(f"{model} {plain} differs", differs, model)
    check(f"{model} {plain} chunks", any_chunks, model, "float32", "fp32")
    check(f"{model} {plain}, graphs that change", chosen, plain, replay_of_changing_graphs, model, "float32")
    check(f"{model} {plain} same bits", chosen, plain, same_bits, model)
    check(f"{model} {plain} energy alone", chosen, plain, energy_alone, model)
    for dtype in ("float64", "float32"):
        check(f"{model} {dtype} chunks", any_chunks, model, dtype)
        check(f"{model} {dtype}, graphs that change", replay_of_changing_graphs, model, dtype)
    check(f"{model} same bits", same_bits, model)
    check(f"{model} energy alone", energy_alone, model)
    check(f"{model} a row too long", too_long_a_row, model)
    check(f"{model} exact radial", exact_is_refused, model)
    check(f"{model} float32 8000", as_on_the_cpu, model, "float32", "8000", diamond(10), {})
    check(f"{model} {plain} 8000", chosen, plain, as_on_the_cpu, model, "float32", "8000", diamond(10), {})
    check(f"{model} float64 1000", as_on_the_cpu, model, "float64", "1000", diamond(5), {})
    print(f"{len(failures)} checks failed" + "".join(f"\n  {name}" for name in failures), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
