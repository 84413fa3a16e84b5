"""The shipped water model at constant energy in LAMMPS: energy drift, and averages on a GPU beside those of the CPU.

    python3 benchmarks/md/nve_water.py OUT_FOLDER --settle            a state at rest and in equilibrium: settled.data
    python3 benchmarks/md/nve_water.py OUT_FOLDER --device cpu --ps 40 --seconds 3000          here, without a GPU
    python3 benchmarks/md/nve_water.py OUT_FOLDER --ps 100 --seconds 220 --beside CPU_RUN/nve_water.json     there

192 atoms, float32, steps of 0.5 fs, from the positions and velocities of benchmarks/md/water192_settled.data (5 ps at
300 K, then 5 ps at constant energy): every run has the same total energy, so averages over their different paths can be
compared. A run is stopped when time is up, and what it wrote until then is judged. The drift is |slope| of a straight
line through the total energy plus twice the standard error from the means of ten blocks. Writes nve_water.json and
nve_water_records.json (for benchmarks/record.py) after every look at the log.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "models"))
from energy_drift import BLOCKS, block_means, drift_record, energy_drift  # noqa: E402

START = ROOT / "benchmarks/md/water192.data"
SETTLED = ROOT / "benchmarks/md/water192_settled.data"
HEAD = """plugin load "{plugin}"
units metal
atom_style atomic
read_data "{data}"
mass 1 15.999
mass 2 1.008
pair_style clebsch device {device} dtype float32 timing yes
pair_coeff * * "{model}" O H
neighbor 1.0 bin
neigh_modify every 1 delay 0 check yes
timestep 0.0005
fix motion all nve
"""
SETTLE = """velocity all create 300 {seed} mom yes
fix bath all langevin 300 300 0.1 {seed}
thermo 2000
run 10000
unfix bath
velocity all zero linear
run 10000
write_data settled.data nocoeff
"""
RUN = """thermo_style custom step time temp press pe etotal
thermo_modify norm no format float %.10g flush yes
thermo 20
run {steps}
"""


def read_log(path: Path) -> dict[str, np.ndarray]:
    """Columns of the log's last table, also of a run that was stopped."""
    header: list[str] = []
    rows: list[list[float]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        words = line.split()
        if words[:1] == ["Step"]:
            header, rows = words, []
        elif header and len(words) == len(header):
            try:
                rows.append([float(word) for word in words])
            except ValueError:
                continue
    if "TotEng" not in header or "Time" not in header:
        return {}
    return dict(zip(header, np.array(rows).reshape(-1, len(header)).T, strict=True))


def judge(log: Path, atoms: int) -> dict[str, float]:
    """Drift and averages with their standard errors; empty when there is too little."""
    table = read_log(log)
    if not table or len(table["Time"]) < 4 * BLOCKS:
        return {}
    slope, error = energy_drift(table["Time"], table["TotEng"] / atoms)
    report = {"ps": float(table["Time"][-1]), "slope_meV_atom_ns": slope, "slope_error_meV_atom_ns": error}
    report["drift_meV_atom_ns"] = abs(slope) + 2 * error
    report["energy_std_meV_atom"] = float(1000 * table["TotEng"].std() / atoms)
    quantities = {
        "temperature_K": ("Temp", 1.0),
        "pressure_bar": ("Press", 1.0),
        "pe_meV_atom": ("PotEng", 1e3 / atoms),
    }
    for name, (column, scale) in quantities.items():
        means = block_means(table[column] * scale)
        report[name] = float(means.mean())
        report[name + "_error"] = float(means.std(ddof=1) / np.sqrt(BLOCKS))
    return report


class Simulation:
    """A run of LAMMPS in a folder of its own."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.folder = args.out / f"nve_water_{args.device}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log.lammps"
        text = (HEAD + (SETTLE if args.settle else RUN)).format(
            plugin=args.plugin, data=START if args.settle else SETTLED, device=args.device, model=args.model,
            seed=args.seed, steps=round(args.ps / 0.0005),
        )  # fmt: skip
        (self.folder / "in.nve").write_text(text)
        environment = os.environ | {"OMP_NUM_THREADS": str(args.threads)}
        with open(self.folder / "screen.txt", "w") as screen:
            self.process = subprocess.Popen(
                [args.lmp, "-in", "in.nve", "-log", "log.lammps"], cwd=self.folder, env=environment,
                stdout=screen, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def failure(self) -> str:
        """The end of the screen when LAMMPS has failed, else nothing."""
        if self.process.poll() in (None, 0, -15):
            return ""
        return (self.folder / "screen.txt").read_text()[-1500:]


def write(args: argparse.Namespace, reports: dict[str, dict[str, float]]) -> None:
    (args.out / "nve_water.json").write_text(json.dumps(reports, indent=1) + "\n")
    found = reports.get(args.device)
    if not found:
        return
    import torch

    slope, error = found["slope_meV_atom_ns"], found["slope_error_meV_atom_ns"]
    on_gpu = args.device == "cuda" and torch.cuda.is_available()
    record = drift_record("nve_drift_water", slope, error, "float32", on_gpu, reports)
    (args.out / "nve_water_records.json").write_text(json.dumps([record], indent=1) + "\n")


def compare(reports: dict[str, dict[str, float]]) -> None:
    """One line an average: both values and how many of their standard errors they are apart."""
    (here, a), (there, b) = reports.items()
    for name in ("temperature_K", "pressure_bar", "pe_meV_atom"):
        error = float(np.hypot(a[name + "_error"], b[name + "_error"]))
        apart = (a[name] - b[name]) / max(error, 1e-12)
        print(f"{name}: {here} {a[name]:.3f}, {there} {b[name]:.3f}, {apart:+.1f} standard errors apart")


def main() -> int:
    """Runs, and judges every ten seconds; status 1 when the run has failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--settle", action="store_true", help="make the state that the runs start from")
    parser.add_argument("--ps", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=220.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beside", type=Path, help="nve_water.json of another device, to compare averages with")
    parser.add_argument("--seed", type=int, default=4711)
    parser.add_argument("--model", type=Path, default=ROOT / "models/water-nequip.pt")
    parser.add_argument("--lmp", default=os.environ.get("LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    args = parser.parse_args()
    # LAMMPS runs in a folder of its own.
    args.out, args.model, args.plugin = args.out.resolve(), args.model.resolve(), Path(args.plugin).resolve()
    beside = json.loads(args.beside.read_text()) if args.beside else {}
    end = time.monotonic() + args.seconds
    run = Simulation(args)

    def look() -> dict[str, dict[str, float]]:
        reports = beside | {args.device: judge(run.log, 192)}
        if not args.settle:
            write(args, reports)
        return reports

    try:
        while run.process.poll() is None and time.monotonic() < end:
            time.sleep(min(10.0, args.seconds / 20))
            look()
    finally:
        run.stop()
    reports = look()
    print(args.device, json.dumps({k: round(v, 4) for k, v in reports[args.device].items()}), run.failure(), flush=True)
    screen = (run.folder / "screen.txt").read_text().splitlines()
    print("\n".join([line for line in screen if "ms per step" in line or "Performance" in line][-2:]))
    if all(reports.values()) and len(reports) == 2:
        compare(reports)
    return 1 if run.failure() or not (args.settle or reports[args.device]) else 0


if __name__ == "__main__":
    sys.exit(main())
