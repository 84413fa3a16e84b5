"""What grades that are read every step cost a run of LAMMPS with clebsch/kk, and whether the host waits for them.

    python benchmarks/grade/kk_cost.py --lmp LMP --plugins FOLDER [--model MODEL.pt] [--device cuda] --json out.json

FOLDER: clebschplugin.so, and clebschkkplugin.so in it or in a folder of it. By default 9,216 atoms of the shipped water
model. Three inputs take turns: no grade; a compute of grades that nobody reads; grades read every step. Thermo
is written every step in all of them, so that the host waits for a step's energy with or without a grade. Loop times of
LAMMPS, medians over the rounds.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from ase.io import read, write

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]
import common  # noqa: E402

INPUT = """
{plugins}
units metal
atom_style atomic
boundary p p p
read_data box.data
mass 1 15.9994
mass 2 1.008
pair_style clebsch
pair_coeff * * {model} O H
neighbor 1.0 bin
neigh_modify every 1 delay 5 check yes
velocity all create 300 17 loop geom
fix nve all nve
timestep 0.0005
{grade}
thermo_modify norm no
run 20
run {steps}
"""
READ = "compute g all clebsch/atom extrapolation\ncompute gmax all reduce max c_g\n"
GRADES = {
    "none": "thermo_style custom step temp pe\nthermo 1",
    "unread": "compute g all clebsch/atom extrapolation\nthermo_style custom step temp pe\nthermo 1",
    "read": READ + "thermo_style custom step temp pe c_gmax\nthermo 1",
}


def write_box(folder: Path, copies: list[int]) -> None:
    """box.data: the settled water, repeated. Not every LAMMPS has the command that does this."""
    box = read(ROOT / "benchmarks/md/water192_settled.data", format="lammps-data", atom_style="atomic", units="metal")
    write(folder / "box.data", box.repeat(copies), format="lammps-data", atom_style="atomic", specorder=["O", "H"])


def loop_ms(args: argparse.Namespace, grade: str, folder: Path) -> float:
    """Milliseconds a step of the second run."""
    plugins = [next(args.plugins.rglob(name)) for name in ("clebschplugin.so", "clebschkkplugin.so")]
    text = INPUT.format(
        plugins="\n".join(f"plugin load {path}" for path in plugins),
        model=args.model.resolve(),
        grade=GRADES[grade],
        steps=args.steps,
    )
    (folder / "in.txt").write_text(text)
    kokkos = ["-k", "on", *(["g", "1"] if args.device == "cuda" else ["t", "1"]), "-sf", "kk"]
    command = [str(args.lmp), "-in", "in.txt", "-log", "none", *kokkos]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=args.seconds)
    found = re.findall(r"Loop time of ([\d.e+-]+)", done.stdout)
    if done.returncode != 0 or len(found) != 2:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return 1e3 * float(found[-1]) / args.steps


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lmp", type=Path, required=True)
    parser.add_argument("--plugins", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=ROOT / "models/water-nequip.pt")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--replicate", default="4 4 3")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120, help="that one run may take")
    parser.add_argument("--json", type=Path, default=Path("kk_cost.json"))
    args = parser.parse_args()
    rng, times = np.random.default_rng(1), {name: [] for name in GRADES}
    with tempfile.TemporaryDirectory() as folder:
        write_box(Path(folder), [int(n) for n in args.replicate.split()])
        for _ in range(args.rounds):
            for name in rng.permutation(list(GRADES)):
                times[str(name)].append(loop_ms(args, str(name), Path(folder)))
                print(f"{name} {times[str(name)][-1]:.4f} ms", flush=True)
    plain = float(np.median(times["none"]))
    records = []
    for name in ("unread", "read"):
        mine = 100 * (np.array(times[name]) / plain - 1)
        quartiles = np.quantile(mine, [0.25, 0.75])
        print(f"{name}: {plain:.3f} -> {np.median(times[name]):.3f} ms a step, {np.median(mine):+.2f}%", flush=True)
        records.append({"name": f"grade_overhead_kk_{name}_{args.device}_percent", "value": float(np.median(mine)),
                        "unit": "%", "spread": float(quartiles[1] - quartiles[0]), "dtype": "float32",
                        "deterministic": True, "error": None, "peer": None, "plain_ms": plain,
                        **common.about(args.device)})  # fmt: skip
    common.save(args.json, records)


if __name__ == "__main__":
    main()
