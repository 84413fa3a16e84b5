"""Does the grade warn where nothing is wrong? Molecular dynamics of water at temperatures of the training set.

    python benchmarks/grade/alarms.py MODEL.pt --device cuda --ps 50 --seconds 240 --json alarms.json

MODEL.pt: the shipped NequIP water model with a grade of its training set. 192 atoms, Langevin, 0.5 fs, from
benchmarks/md/water192_settled.data; 600 K is heated for 2 ps first. The largest grade of every step is looked at: an
alarm is one above the training maximum.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from ase import units
from ase.io import read
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src/python")]
import common  # noqa: E402

from clebsch.ase import ClebschCalculator  # noqa: E402

START = ROOT / "benchmarks/md/water192_settled.data"


def run(model: Path, device: str, kelvin: float, ps: float, seconds: float) -> dict[str, float]:
    """Grades of a run at a temperature, and how long it was."""
    atoms = read(START, format="lammps-data", atom_style="atomic", units="metal")
    atoms.calc = ClebschCalculator(model, device, extrapolation=True)
    said = atoms.calc.metadata["extrapolation"]
    rng = np.random.default_rng(7)
    MaxwellBoltzmannDistribution(atoms, temperature_K=kelvin, rng=rng)
    dynamics = Langevin(atoms, 0.5 * units.fs, temperature_K=kelvin, friction=0.01 / units.fs, rng=rng)
    begin, largest, temperatures = time.monotonic(), [], []
    warm = 4000 if kelvin > 400 else 400
    dynamics.run(warm)
    # A run is warm before its steps count, and `seconds` are for all of it.
    for _ in range(round(ps * 2000 / 10)):
        for _ in range(10):
            dynamics.run(1)
            largest.append(float(atoms.calc.results["extrapolation"].max()))
        temperatures.append(atoms.get_temperature())
        if time.monotonic() - begin > seconds:
            break
    grades = np.array(largest)
    return {"kelvin": kelvin, "ps": len(grades) / 2000, "mean_kelvin": float(np.mean(temperatures)),
            "alarms": int((grades > said["maximum"]).sum()), "largest": float(grades.max()),
            "median_of_largest": float(np.median(grades)), "q99_of_largest": float(np.quantile(grades, 0.99)),
            "training_maximum": said["maximum"], "training_q99": said["q99"],
            "ms_a_step": 1e3 * (time.monotonic() - begin) / (len(grades) + warm)}  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ps", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=1e9, help="that one temperature may take")
    parser.add_argument("--json", type=Path, default=Path("alarms.json"))
    args = parser.parse_args()
    rows = []
    for kelvin in (300.0, 600.0):
        rows.append(run(args.model, args.device, kelvin, args.ps, args.seconds))
        print({key: round(value, 3) for key, value in rows[-1].items()}, flush=True)
        common.save(args.json, {"runs": rows, **common.about(args.device)})


if __name__ == "__main__":
    main()
