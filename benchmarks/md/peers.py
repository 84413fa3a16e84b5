"""A peer through ASE: the same cell, velocities of the same temperature, the same timestep; prints one line of JSON.

    python peers.py NAME --base BASE.npz --copies 2 2 2 --steps 20 --timestep 0.05 --device cuda

NAME: mace, mace-cueq (mace-torch, with cuEquivariance), nequip (upstream eager). BASE.npz holds length, positions,
symbols and the reference's forces, with which the peer's answer is compared before it is timed. A peer that is not
installed ends with status 3 and says which package is missing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")
HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import common  # noqa: E402, F401 - finds bench_mace


def mace(device: str, accelerated: bool):
    """MACE-M of benchmarks/models/make_mace_models.py, whose weights mace-M.pt holds."""
    from bench_mace import model_of
    from mace.calculators import MACECalculator

    return MACECalculator(models=[model_of("mace-M")], device=device, default_dtype="float32", enable_cueq=accelerated)


def nequip(device: str):
    """NequIP's preset M of benchmarks/models/make_models.py, eager."""
    from nequip.data.transforms import ChemicalSpeciesToAtomTypeMapper, NeighborListTransform
    from nequip.integrations.ase import NequIPCalculator
    from nequip.model import PresetNequIPGNNModel
    from nequip.utils.global_state import set_global_state

    set_global_state(allow_tf32=False)
    model = PresetNequIPGNNModel(
        preset="M", seed=1, model_dtype="float32", type_names=["C", "O"], r_max=5.0, avg_num_neighbors=90.0,
        per_type_energy_scales=1.0, per_type_energy_shifts=0.0,
    ).eval()  # fmt: skip
    transforms = [
        ChemicalSpeciesToAtomTypeMapper(["C", "O"]),
        NeighborListTransform(r_max=5.0),
    ]
    return NequIPCalculator(model, device, transforms=transforms)


MAKERS = {
    "mace": (lambda device: mace(device, False), ("mace-torch", "e3nn", "ase")),
    "mace-cueq": (
        lambda device: mace(device, True),
        ("mace-torch", "e3nn", "ase", "cuequivariance", "cuequivariance-torch"),
    ),
    "nequip": (nequip, ("nequip", "e3nn", "ase")),
}


def missing(packages: tuple[str, ...]) -> list[str]:
    """Those that are not installed."""
    found = []
    for name in packages:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found.append(name)
    return found


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=MAKERS)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--copies", type=int, nargs=3, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--timestep", type=float, default=0.5, help="fs")
    parser.add_argument("--temperature", type=float, default=300.0)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    maker, packages = MAKERS[args.name]
    if lacking := missing(packages):
        print(f"not installed: {', '.join(lacking)}")
        return 3

    import torch
    from ase import Atoms, units
    from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
    from ase.md.verlet import VelocityVerlet

    base = np.load(args.base)
    cell = Atoms(list(base["symbols"]), positions=base["positions"], cell=np.eye(3) * float(base["length"]), pbc=True)
    atoms = cell.repeat(args.copies)  # copy after copy
    atoms.calc = maker(args.device)
    exact = np.tile(base["forces"], (int(np.prod(args.copies)), 1))
    error = float(np.sqrt(((atoms.get_forces() - exact) ** 2).mean() / (exact**2).mean()))
    MaxwellBoltzmannDistribution(atoms, temperature_K=args.temperature, rng=np.random.default_rng(1))
    motion = VelocityVerlet(atoms, timestep=args.timestep * units.fs)
    motion.run(3)
    if args.device == "cuda":
        torch.cuda.synchronize()
    start, steps = time.perf_counter(), 0
    while steps < args.steps and time.perf_counter() - start < args.seconds:
        motion.run(1)
        steps += 1
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() / 1e6 if args.device == "cuda" else None
    answer = {"error": error, "steps": steps, "seconds": seconds, "device_mb": peak}
    answer["version"] = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
