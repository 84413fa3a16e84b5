"""Energy, force and stress errors of the carbon model on the held-out structures, as JSON.

    python evaluate.py ../../carbon-mace.pt data/test.xyz errors.json [--dtype float32]

Errors are in meV/atom, meV/A and GPa, over all and by kind. Energy errors are as they are: no offset is fitted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from ase import Atoms, units
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read

from clebsch.ase import ClebschCalculator


def rms(values: np.ndarray) -> float:
    """Root of the mean square."""
    return float(np.sqrt((values**2).mean()))


def errors(pairs: list[tuple[Atoms, Atoms]]) -> dict:
    """RMSE and MAE of the first of each pair against the second, the reference."""
    energy = np.array([(m.get_potential_energy() - r.get_potential_energy()) / len(r) for m, r in pairs])
    reference = np.concatenate([r.get_forces() for _, r in pairs])
    force = np.concatenate([m.get_forces() for m, _ in pairs]) - reference
    stress = np.array([m.get_stress() - r.get_stress() for m, r in pairs]) / units.GPa
    return {
        "frames": len(pairs),
        "energy_rmse_meV_atom": round(1000 * rms(energy), 3),
        "energy_mae_meV_atom": round(1000 * float(np.abs(energy).mean()), 3),
        "force_rmse_meV_A": round(1000 * rms(force), 2),
        "force_mae_meV_A": round(1000 * float(np.abs(force).mean()), 2),
        "force_rms_reference_meV_A": round(1000 * rms(reference), 1),
        "stress_rmse_GPa": round(rms(stress), 3),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("structures", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", default=None, help="float32 or float64; the model's own by default")
    args = parser.parse_args()

    calculator = ClebschCalculator(args.model, dtype=args.dtype)
    pairs: list[tuple[Atoms, Atoms]] = []
    for reference in read(args.structures, ":"):
        atoms = reference.copy()
        atoms.calc = calculator
        energy, forces, stress = atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces, stress=stress)
        pairs.append((atoms, reference))
    report = {"all": errors(pairs)}
    kinds = {(r.info["kind"], "") for _, r in pairs} | {(r.info["kind"], r.info["structure"]) for _, r in pairs}
    for kind, structure in sorted(kinds):
        if structure in (kind, "liquid"):
            continue  # the only one of its kind
        some = [p for p in pairs if p[1].info["kind"] == kind and structure in ("", p[1].info["structure"])]
        report[f"{kind} {structure}".strip()] = errors(some)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    for name, e in report.items():
        print(
            f"| {name} | {e['frames']} | {e['energy_rmse_meV_atom']:.1f} / {e['energy_mae_meV_atom']:.1f} "
            f"| {e['force_rmse_meV_A']:.0f} / {e['force_mae_meV_A']:.0f} | {e['force_rms_reference_meV_A']:.0f} "
            f"| {e['stress_rmse_GPa']:.2f} |"
        )


if __name__ == "__main__":
    main()
