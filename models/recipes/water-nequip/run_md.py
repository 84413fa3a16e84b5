"""Molecular dynamics of a water model from a labelled structure, frames kept.

    python run_md.py MODEL START.xyz OUT.xyz --index 3 --temperature 600 --ps 4

Langevin, 0.5 fs. Each kept frame carries the model's energy and forces, so that relabel.py can
tell how wrong the model is where it goes by itself. Stops with an error when the potential
energy runs away.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ase import units
from ase.io import read, write
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from calculators import calculator


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("start", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--index", type=int, default=0, help="which structure of START")
    parser.add_argument("--temperature", type=float, default=600.0, help="K")
    parser.add_argument("--ps", type=float, default=4.0)
    parser.add_argument("--every", type=float, default=80.0, help="fs between kept frames")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    atoms = read(args.start, args.index)
    molecules = len(atoms) // 3
    atoms.calc = calculator(args.model, args.device)
    rng = np.random.default_rng(args.seed)
    MaxwellBoltzmannDistribution(atoms, temperature_K=args.temperature, rng=rng)
    dynamics = Langevin(
        atoms,
        0.5 * units.fs,
        temperature_K=args.temperature,
        friction=0.01 / units.fs,
        rng=rng,
    )
    start = atoms.get_potential_energy()
    steps = round(args.every / 0.5)
    args.out.unlink(missing_ok=True)
    for block in range(round(args.ps * 1000 / args.every)):
        dynamics.run(steps)
        energy = atoms.get_potential_energy()
        # 1 eV a molecule is some twenty times the thermal fluctuation
        if not abs(energy - start) < 1.0 * molecules:
            raise SystemExit(f"the potential energy ran from {start} to {energy} eV")
        frame = atoms.copy()
        frame.info = {
            "kind": "active",
            "temperature": args.temperature,
            "time_ps": round((block + 1) * args.every / 1000, 4),
            "model_energy": float(energy),
        }
        frame.arrays["model_forces"] = atoms.get_forces().copy()
        del frame.arrays["momenta"]
        write(args.out, frame, format="extxyz", append=True)
        if block % 10 == 9:
            print(
                f"{frame.info['time_ps']:8.2f} ps  {atoms.get_temperature():6.1f} K  "
                f"{energy / molecules:9.4f} eV/molecule",
                flush=True,
            )


if __name__ == "__main__":
    main()
