"""Energy and force errors of a water model on the held-out structures, as JSON.

    python evaluate.py MODEL data/test.xyz errors.json [--device cuda]

Errors are in meV/atom and meV/A, over all, by kind, by temperature and by density (liquid
only). Energy errors are as they are: no offset is fitted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import read
from calculators import calculator


def errors(frames: list[Atoms], energy: np.ndarray, forces: list[np.ndarray]) -> dict:
    """RMSE and MAE of these frames against their labels."""
    de = 1000 * np.array([(e - f.get_potential_energy()) / len(f) for e, f in zip(energy, frames, strict=True)])
    reference = np.concatenate([f.get_forces() for f in frames])
    df = 1000 * (np.concatenate(forces) - reference)
    return {
        "frames": len(frames),
        "energy_rmse_meV_atom": round(float(np.sqrt((de**2).mean())), 3),
        "energy_mae_meV_atom": round(float(np.abs(de).mean()), 3),
        "force_rmse_meV_A": round(float(np.sqrt((df**2).mean())), 2),
        "force_mae_meV_A": round(float(np.abs(df).mean()), 2),
        "force_max_meV_A": round(float(np.abs(df).max()), 1),
        "force_rms_reference_meV_A": round(float(1000 * np.sqrt((reference**2).mean())), 1),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("structures", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    frames = read(args.structures, ":")
    calc = calculator(args.model, args.device)
    energy, forces = [], []
    for frame in frames:
        bare = frame.copy()
        bare.calc = calc
        energy.append(float(bare.get_potential_energy()))
        forces.append(bare.get_forces().copy())

    def some(chosen) -> dict:
        k = [i for i, f in enumerate(frames) if chosen(f.info)]
        return errors([frames[i] for i in k], np.array(energy)[k], [forces[i] for i in k])

    report = {}
    for kind in sorted({f.info["kind"] for f in frames}):
        report[kind] = some(lambda i, kind=kind: i["kind"] == kind)
    for key, unit in (("temperature", "K"), ("density", "g/cm3")):
        for v in sorted({f.info[key] for f in frames if f.info["kind"] == "liquid"}):
            report[f"liquid {v:g} {unit}"] = some(lambda i, key=key, v=v: i["kind"] == "liquid" and i[key] == v)
    for t in sorted({f.info["temperature"] for f in frames if f.info["kind"] == "large"}):
        report[f"large {t:g} K"] = some(lambda i, t=t: i["kind"] == "large" and i["temperature"] == t)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    for name, e in report.items():
        print(
            f"{name:18s} {e['frames']:4d} frames  energy {e['energy_rmse_meV_atom']:7.3f} meV/atom"
            f"  force {e['force_rmse_meV_A']:7.2f} meV/A (of {e['force_rms_reference_meV_A']:.0f})"
        )


if __name__ == "__main__":
    main()
