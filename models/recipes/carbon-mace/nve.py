"""Diamond at constant energy under the carbon model in LAMMPS (in.nve): temperature and drift, as JSON.

    python nve.py ../../carbon-mace.pt nve.json --ps 20 [--cells 4] [--device cuda] [--record]
        [--flags "-k on g 1 -sf kk"]

Steps of 1 fs after 2 ps under a thermostat and 10 ps without. The drift is the slope of a straight line through the
total energy, its error that of a line through the means of ten blocks; beside it the same of the energy that Verlet's
method conserves, which does not go up and down with the forces (shadow_energy). `--record` writes a list with one
record of the form that benchmarks/record.py takes; its value is |slope| of the total energy and twice the error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(HERE.parent)]
from energy_drift import drift_record, energy_drift, shadow_energy  # noqa: E402
from lammps_output import read_speed, read_thermo  # noqa: E402

#: Of in.nve: ps, amu.
TIMESTEP, MASS = 1e-3, 12.011


def run(args: argparse.Namespace, folder: Path) -> Path:
    """LAMMPS's log of the run."""
    words = [args.lmp, *args.flags.split(), "-in", str(HERE / "in.nve")]
    words += ["-log", str(folder / "log.lammps"), "-screen", "none"]
    variables = {
        "model": args.model.resolve(),
        "cells": args.cells,
        "device": args.device,
    }
    if args.plugin:
        variables["plugin"] = args.plugin.resolve()
    variables |= {"steps": round(1000 * args.ps), "temp": args.temperature, "dtype": args.dtype, "style": args.style}
    for name, value in variables.items():
        words += ["-var", name, str(value)]
    status = subprocess.run(words, cwd=folder).returncode
    if status:
        raise SystemExit(f"LAMMPS ended with {status}:\n" + (folder / "log.lammps").read_text()[-3000:])
    return folder / "log.lammps"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ps", type=float, default=20.0)
    parser.add_argument("--cells", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=1500.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--style", default="clebsch", help="lcbop: the reference, with its C.lcbop as the model")
    parser.add_argument("--lmp", default=str(ROOT / ".venv/bin/lmp"))
    parser.add_argument("--plugin", type=Path, help="for a LAMMPS that does not know the style")
    parser.add_argument("--flags", default="", help="of LAMMPS; the plugin is then clebschkkplugin.so")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    if args.record and args.style != "clebsch":
        parser.error(f"--record: expected the style clebsch, whose drift the record is, got {args.style}")

    with tempfile.TemporaryDirectory() as name:
        log = run(args, Path(name))
        thermo, speed = read_thermo(log)[-1], read_speed(log)
    atoms = 8 * args.cells**3
    energy = thermo["TotEng"] / atoms
    slope, error = energy_drift(thermo["Time"], energy)
    shadow, shadow_error = energy_drift(
        thermo["Time"], shadow_energy(energy, thermo["Fnorm"] ** 2 / MASS / atoms, TIMESTEP)
    )
    report = {
        "atoms": atoms,
        "ps": args.ps,
        "temperature_K": round(float(thermo["Temp"].mean()), 1),
        "drift_meV_atom_ns": round(slope, 4),
        "drift_error_meV_atom_ns": round(error, 4),
        "drift_bound_meV_atom_ns": round(abs(slope) + 2 * error, 4),
        "shadow_drift_meV_atom_ns": round(shadow, 4),
        "shadow_drift_error_meV_atom_ns": round(shadow_error, 4),
        "energy_std_meV_atom": round(float(1000 * energy.std()), 4),
        "style": args.style,
        "dtype": args.dtype if args.style == "clebsch" else "float64",
        "device": args.device,
        "flags": args.flags,
        "speed": speed,
    }
    print(json.dumps(report, indent=1))
    if not args.record:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
        return
    import torch

    on_gpu = args.device != "cpu" and torch.cuda.is_available()
    record = drift_record("nve_drift_carbon", slope, error, args.dtype, on_gpu, report)
    args.out.write_text(json.dumps([record], indent=1) + "\n")


if __name__ == "__main__":
    main()
