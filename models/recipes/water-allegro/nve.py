"""Water at constant energy under the Allegro model in LAMMPS (in.nve): temperature and drift, as JSON.

    python nve.py ../../water-allegro.pt nve.json --ps 10 [--copies 2] [--device cuda] [--dump nve.dump] [--record]

216 molecules, or copies^3 as many, in steps of 0.5 fs after 1 ps under a thermostat. The drift is the slope of a
straight line through the total energy, its error that of a line through the means of ten blocks. `--record` writes a
list with one record of the form that benchmarks/record.py takes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(HERE.parent)]
from energy_drift import drift_record, energy_drift  # noqa: E402
from lammps_output import atoms_in, read_speed, read_thermo  # noqa: E402


def run(args: argparse.Namespace, folder: Path) -> Path:
    """LAMMPS's log of the run in `folder`, through names without spaces, which its scripts cannot take."""
    for name, target in (("m.pt", args.model), ("water.data", args.data)):
        (folder / name).symlink_to(Path(target).resolve())
    words = [args.lmp, "-in", str(HERE / "in.nve"), "-log", "log.lammps", "-screen", "none"]
    variables = {"model": "m.pt", "data": "water.data"}
    if args.plugin:
        (folder / "plugin").symlink_to(args.plugin.resolve().parent)
        variables["plugin"] = f"plugin/{args.plugin.name}"
    variables |= {"copies": args.copies, "device": args.device, "dtype": args.dtype, "temp": args.temperature}
    variables |= {"warm": round(args.warm / 0.0005), "steps": round(args.ps / 0.0005)}
    for name, value in variables.items():
        words += ["-var", name, str(value)]
    status = subprocess.run(words, cwd=folder).returncode
    log = folder / "log.lammps"
    if status:
        raise SystemExit(f"LAMMPS ended with {status}:\n" + (log.read_text()[-3000:] if log.is_file() else ""))
    return log


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ps", type=float, default=10.0)
    parser.add_argument("--warm", type=float, default=1.0, help="ps under the thermostat")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--data", type=Path, default=ROOT / "examples/water_box/water.data")
    parser.add_argument("--temperature", type=float, default=300.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--lmp", default=str(ROOT / ".venv/bin/lmp"))
    parser.add_argument("--plugin", type=Path, help="for a LAMMPS that does not know the style")
    parser.add_argument("--dump", type=Path, help="where the trajectory goes")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        log = run(args, Path(name))
        thermo, speed, atoms = read_thermo(log)[-1], read_speed(log), atoms_in(log)
        if args.dump:
            shutil.copy(Path(name) / "nve.dump", args.dump)
    energy = thermo["TotEng"] / atoms
    if not np.isfinite(energy).all():
        raise SystemExit("the energy is not finite")
    slope, error = energy_drift(thermo["Time"], energy)
    report = {
        "atoms": atoms,
        "ps": args.ps,
        "temperature_K": round(float(thermo["Temp"].mean()), 1),
        "highest_temperature_K": round(float(thermo["Temp"].max()), 1),
        "pressure_MPa": round(float(thermo["Press"].mean()) * 0.1, 1),
        "drift_meV_atom_ns": round(slope, 4),
        "drift_error_meV_atom_ns": round(error, 4),
        "energy_std_meV_atom": round(float(1000 * energy.std()), 4),
        "dtype": args.dtype,
        "device": args.device,
        "speed": speed,
    }
    print(json.dumps(report, indent=1))
    if not args.record:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
        return
    record = drift_record("nve_drift_allegro", slope, error, args.dtype, args.device.startswith("cuda"), report)
    args.out.write_text(json.dumps([record], indent=1) + "\n")


if __name__ == "__main__":
    main()
