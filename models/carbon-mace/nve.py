"""Diamond at constant energy under the carbon model in LAMMPS (in.nve): temperature and drift, as JSON.

    python nve.py ../carbon-mace.pt nve.json --ps 20 [--cells 4] [--device cuda] [--record] [--flags "-k on g 1 -sf kk"]

Steps of 1 fs after 2 ps under a thermostat and 10 ps without. The drift is the slope of a straight line through the
total energy, its error that of a line through the means of ten blocks. `--record` writes a list with one record of the
form that tests/bench/record.py takes; its value is |slope| and twice the error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "examples"))
from lammps_output import read_speed, read_thermo  # noqa: E402

BLOCKS = 10


def drift(t: np.ndarray, e: np.ndarray) -> tuple[float, float]:
    """Slope and its error, meV per atom and ns, of energies e (eV per atom) at times t (ps)."""
    means_t, means_e = (np.array([part.mean() for part in np.array_split(x, BLOCKS)]) for x in (t, e))
    residual = means_e - np.polyval(np.polyfit(means_t, means_e, 1), means_t)
    error = np.sqrt((residual**2).sum() / (BLOCKS - 2) / ((means_t - means_t.mean()) ** 2).sum())
    return float(np.polyfit(t, e, 1)[0] * 1e6), float(error * 1e6)


def run(args: argparse.Namespace, folder: Path) -> Path:
    """LAMMPS's log of the run."""
    words = [args.lmp, *args.flags.split(), "-in", str(HERE / "in.nve")]
    words += ["-log", str(folder / "log.lammps"), "-screen", "none"]
    variables = {"model": args.model.resolve(), "plugin": args.plugin, "cells": args.cells, "device": args.device}
    variables |= {"steps": round(1000 * args.ps), "temp": args.temperature, "dtype": args.dtype}
    for name, value in variables.items():
        words += ["-var", name, str(value)]
    status = subprocess.run(words, cwd=folder).returncode
    if status:
        raise SystemExit(f"LAMMPS ended with {status}:\n" + (folder / "log.lammps").read_text()[-3000:])
    return folder / "log.lammps"


def machine(device: str) -> dict:
    """Where it ran."""
    import torch

    on_gpu = device != "cpu" and torch.cuda.is_available()
    name = torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine()
    return {"machine": name, "torch": torch.__version__}


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
    parser.add_argument("--lmp", default=str(ROOT / ".venv/bin/lmp"))
    parser.add_argument("--plugin", default=str(ROOT / ".venv/lib/clebsch/clebschplugin.so"))
    parser.add_argument("--flags", default="", help="of LAMMPS; the plugin is then clebschkkplugin.so")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        log = run(args, Path(name))
        thermo, speed = read_thermo(log)[-1], read_speed(log)
    atoms = 8 * args.cells**3
    energy = thermo["TotEng"] / atoms
    slope, error = drift(thermo["Time"], energy)
    report = {
        "atoms": atoms,
        "ps": args.ps,
        "temperature_K": round(float(thermo["Temp"].mean()), 1),
        "drift_meV_atom_ns": round(slope, 4),
        "drift_error_meV_atom_ns": round(error, 4),
        "drift_bound_meV_atom_ns": round(abs(slope) + 2 * error, 4),
        "energy_std_meV_atom": round(float(1000 * energy.std()), 4),
        "dtype": args.dtype,
        "device": args.device,
        "flags": args.flags,
        "speed": speed,
    }
    print(json.dumps(report, indent=1))
    if not args.record:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
        return
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = os.environ.get("CLEBSCH_COMMIT") or subprocess.run(git, capture_output=True, text=True).stdout.strip()
    record = {"name": "nve_drift_carbon", "value": abs(slope) + 2 * error, "unit": "meV/atom/ns", "spread": error}
    record |= {"dtype": args.dtype, "deterministic": True, "error": None, "peer": None, **machine(args.device)}
    record |= {"driver": "", "commit": commit, "dirty": False, "date": date.today().isoformat()}
    record |= {"command": "python " + " ".join(sys.argv), "details": report}
    args.out.write_text(json.dumps([record], indent=1) + "\n")


if __name__ == "__main__":
    main()
