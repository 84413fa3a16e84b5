"""What grades that are read every step cost a run of LAMMPS with clebsch/kk, and whether the host waits for them.

    python benchmarks/grade/kk_cost.py --lmp LMP --plugins FOLDER [--model MODEL.pt] [--device cuda] --json out.json

FOLDER: clebschplugin.so, and clebschkkplugin.so in it or in a folder of it. By default 9,216 atoms of the shipped water
model. A process of LAMMPS makes short runs, of which three kinds take turns in random order: no grade; a compute of
grades that nobody reads; grades read every step. Thermo is written every step in all of them, so that the host waits
for a step's energy with or without a grade. Told are medians, over the turns of all processes, of what a kind's loop
takes more than the turn's run without a grade, and the standard error of that median. Since a model that was asked for
grades keeps its features from then on, some runs before the first compute say what that costs ("fresh").
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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
thermo 1
thermo_style custom step temp pe
thermo_modify norm no
run 40
"""
PLAIN = "thermo_style custom step temp pe"
COMPUTE = "compute g all clebsch/atom extrapolation"
#: What comes before and behind a run of a kind.
KINDS = {
    "none": ([PLAIN], []),
    "unread": ([PLAIN, COMPUTE], ["uncompute g"]),
    "read": (
        [COMPUTE, "compute gmax all reduce max c_g", "thermo_style custom step temp pe c_gmax"],
        [PLAIN, "uncompute gmax", "uncompute g"],
    ),
    "other": (
        ["compute k all ke/atom", "compute kmax all reduce max c_k", "thermo_style custom step temp pe c_kmax"],
        [PLAIN, "uncompute kmax", "uncompute k"],
    ),
}


def write_box(folder: Path, copies: list[int]) -> None:
    """box.data: the settled water, repeated. Not every LAMMPS has the command that does this."""
    box = read(ROOT / "benchmarks/md/water192_settled.data", format="lammps-data", atom_style="atomic", units="metal")
    write(folder / "box.data", box.repeat(copies), format="lammps-data", atom_style="atomic", specorder=["O", "H"])


def script(args: argparse.Namespace, order: list[str]) -> str:
    """An input with a run of each kind in that order."""
    plugins = [next(args.plugins.rglob(name)) for name in ("clebschplugin.so", "clebschkkplugin.so")]
    lines = [INPUT.format(plugins="\n".join(f"plugin load {path}" for path in plugins), model=args.model.resolve())]
    for kind in order:
        before, behind = KINDS[kind]
        lines += [*before, "thermo_modify norm no", f"run {args.steps}", *behind]
    return "\n".join(lines) + "\n"


def loops_ms(args: argparse.Namespace, order: list[str], folder: Path) -> list[float]:
    """Milliseconds a step of the runs."""
    (folder / "in.txt").write_text(script(args, order))
    kokkos = ["-k", "on", *(["g", "1"] if args.device == "cuda" else ["t", "1"]), "-sf", "kk"]
    command = [str(args.lmp), "-in", "in.txt", "-log", "none", *kokkos]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=args.seconds)
    found = re.findall(r"Loop time of ([\d.e+-]+)", done.stdout)
    if done.returncode != 0 or len(found) != len(order) + 1:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [1e3 * float(text) / args.steps for text in found[1:]]


def summary(args: argparse.Namespace, turns: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Records of what the kinds cost, which are printed."""
    plain = float(np.median([turn["none"] for turn in turns]))
    records = []
    for kind in ("unread", "read", "other", "fresh"):
        more = 100 * np.array([turn[kind] - turn["none"] for turn in turns]) / plain
        # Of a median of normal numbers, from their quartiles.
        error = 1.2533 / 1.349 * np.subtract(*np.quantile(more, [0.75, 0.25])) / np.sqrt(len(more))
        print(f"{kind}: {plain:.3f} ms without a grade, {np.median(more):+.2f}% +- {error:.2f} ({len(more)} turns)")
        records.append({"name": f"grade_overhead_kk_{kind}_{args.device}_percent", "value": float(np.median(more)),
                        "unit": "%", "spread": float(error), "dtype": "float32",
                        "deterministic": True, "error": None, "peer": None, "plain_ms": plain, "turns": turns,
                        **common.about(args.device)})  # fmt: skip
    return records


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lmp", type=Path, required=True)
    parser.add_argument("--plugins", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=ROOT / "models/water-nequip.pt")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--replicate", default="4 4 3")
    parser.add_argument("--steps", type=int, default=50, help="of a run")
    parser.add_argument("--turns", type=int, default=30, help="of a process")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120, help="that a process may take")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds behind which no other process is started")
    parser.add_argument("--json", type=Path, default=Path("kk_cost.json"))
    args = parser.parse_args()
    rng, begin, turns = np.random.default_rng(1), time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        write_box(Path(folder), [int(n) for n in args.replicate.split()])
        for process in range(args.processes):
            started = time.monotonic()
            orders = [[str(kind) for kind in rng.permutation(list(KINDS))] for _ in range(args.turns)]
            order = ["none"] * args.turns + [kind for turn in orders for kind in turn]
            loops = loops_ms(args, order, Path(folder))
            for k, turn in enumerate(orders):
                own = loops[args.turns + len(KINDS) * k :]
                turns.append(dict(zip(turn, own, strict=False)) | {"fresh": loops[k]})
            print(f"process {process + 1}, {time.monotonic() - started:.1f} s", flush=True)
            common.save(args.json, summary(args, turns))
            if time.monotonic() - begin + (time.monotonic() - started) > args.limit:
                break


if __name__ == "__main__":
    main()
