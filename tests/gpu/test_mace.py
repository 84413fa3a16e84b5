"""MACE models of every kind on a GPU: against the CPU, replayed, finite differences.

python3 tests/gpu/test_mace.py [--device cuda] [--quick]      with CLEBSCH_LIBRARY and the files of make_mace_models.py
Prints one line a check and ends with status 1 when one failed. `--device cpu:padded` rehearses it where no GPU is.
"""

from __future__ import annotations

import argparse
import os
import sys

import numpy as np
import test_model
import torch
from model_cases import FOLDER, Structure, diamond, evaluate, gas, load
from test_model import TOLERANCE, check, difference, failures, judged, rms

#: Per-atom virials are compared where energies and forces are.
EXTRA = {"atom_virial": True, "centroid_virial": True}


def mixed(structure: Structure, types: int, seed: int = 0) -> Structure:
    """The same with types at random, all of them if there are atoms enough."""
    drawn = np.random.default_rng(seed).integers(0, types, len(structure))
    drawn[: min(types, len(structure))] = np.arange(min(types, len(structure)))
    structure.types = torch.as_tensor(drawn)
    return structure


def against_the_cpu(name: str, dtype: str, device: str, structures: dict[str, Structure], **options: object):
    """The largest errors over the structures, each evaluated three times: as it comes, recorded, replayed."""
    on_cpu, on_gpu = load(name, "cpu", dtype, **options), load(name, device, dtype, **options)
    worst: dict[str, float] = {}
    forces = 0.0
    for structure in structures.values():
        reference = evaluate(on_cpu, structure, **EXTRA)
        forces = max(forces, rms(reference["forces"]))
        for _ in range(3):
            for key, value in difference(evaluate(on_gpu, structure, **EXTRA), reference).items():
                worst[key] = max(worst.get(key, 0.0), value)
    good, text = judged(worst, TOLERANCE[dtype])
    replayed = device == "cuda" and not on_gpu.last_run["replayed"]
    return good and forces > 0.1 and not replayed, f"{text}; largest RMS force {forces:.2g} eV/A"


def finite_differences(name: str, device: str, types: int):
    """Forces against differences of the energy; virial against those of a strain."""
    model, structure, step = load(name, device, "float64"), mixed(diamond(2), types), 1e-4
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
    return worst < 2e-6 and error < 2e-6, f"forces {worst:.1e}, trace of the virial {error:.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller structures")
    options = parser.parse_args()
    device = options.device
    torch.set_num_threads(min(16, os.cpu_count() or 1))
    print("#", torch.cuda.get_device_name() if device == "cuda" else device, torch.__version__, flush=True)
    names = sorted(path.stem for path in FOLDER.glob("mace-test-*.pt"))
    if not names:
        print(f"FAIL no files {FOLDER}/mace-test-*.pt: tests/gpu/make_mace_models.py makes them")
        return 1
    for name in names:
        types = len(load(name, "cpu", "float64").type_names)
        structures = {
            "1 atom": mixed(gas(1), types),
            "12 atoms": mixed(gas(12), types),
            "64 atoms": mixed(diamond(2), types),
            "none": gas(0),
        }
        if not options.quick:
            structures["216 atoms"] = mixed(diamond(3), types)
        for dtype in ("float64", "float32"):
            check(f"{name} {dtype}", against_the_cpu, name, dtype, device, structures)
        if name.removeprefix("mace-test-") in ("mpa", "nonlinear", "five-elements"):
            check(f"{name} finite differences", finite_differences, name, device, types)
    if not options.quick and device == "cuda":
        for name in ("mace-M", "mace-M-5el"):
            sizes = {
                "64": mixed(diamond(2), 5 if "5el" in name else 1),
                "512": mixed(diamond(4), 5 if "5el" in name else 1),
            }
            for dtype in ("float64", "float32"):
                check(f"{name} {dtype}", against_the_cpu, name, dtype, device, sizes)
    print(f"{len(failures)} checks failed" + "".join(f"\n  {name}" for name in failures), flush=True)
    return 1 if test_model.failures else 0


if __name__ == "__main__":
    sys.exit(main())
