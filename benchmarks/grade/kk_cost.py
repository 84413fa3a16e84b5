"""What grades that are read every step cost a run of LAMMPS with clebsch/kk, and whether the host waits for them.

    python benchmarks/grade/kk_cost.py --lmp LMP --plugins FOLDER [--model MODEL.pt] [--device cuda] --json out.json

FOLDER: clebschplugin.so, and clebschkkplugin.so in it or in a folder of it. By default 9,216 atoms of the shipped water
model. A process of LAMMPS makes short runs, of which kinds take turns in random order. With thermo written every step,
so that the host waits for a step's energy with or without a grade:

    none    no grade
    unread  a compute of grades that nobody reads
    read    the maximum by LAMMPS's compute reduce of compute clebsch/atom
    max     the maximum by compute clebsch
    other   what LAMMPS itself takes in `read`: its compute reduce of its own compute property/atom, no grade

and without thermo, but with a fix halt that looks at a number every step:

    halt        at the maximum of grades by compute clebsch
    halt_other  at the number of the step

Told are medians, over the turns of all processes, of what a kind's loop takes more than the turn's run of `none`
(`halt`: of `halt_other`), and the standard error of that median. Since a model that was asked for grades keeps its
features from then on, some runs before the first compute say what that costs ("fresh").
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
MAX = "compute gmax all clebsch extrapolation max"
SHOWN = "thermo_style custom step temp pe c_gmax"


def halt(value: str) -> list[str]:
    """Lines of a run that looks at `value` every step."""
    return ["thermo 1000000", f"variable seen equal {value}", "fix stop all halt 1 v_seen > 1.0e300"]


GO_ON = ["unfix stop", "variable seen delete", "thermo 1"]
#: What comes before and behind a run of a kind.
KINDS = {
    "none": ([PLAIN], []),
    "unread": ([PLAIN, COMPUTE], ["uncompute g"]),
    "read": (
        [COMPUTE, "compute gmax all reduce max c_g", SHOWN],
        [PLAIN, "uncompute gmax", "uncompute g"],
    ),
    "max": ([MAX, SHOWN], [PLAIN, "uncompute gmax"]),
    "other": (
        ["compute g all property/atom x", "compute gmax all reduce max c_g", SHOWN],
        [PLAIN, "uncompute gmax", "uncompute g"],
    ),
    "halt": ([PLAIN, MAX, *halt("c_gmax")], [*GO_ON, "uncompute gmax"]),
    "halt_other": ([PLAIN, *halt("step")], GO_ON),
}


def write_box(folder: Path, copies: list[int]) -> None:
    """box.data: the settled water, repeated. Not every LAMMPS has the command that does this."""
    box = read(ROOT / "benchmarks/md/water192_settled.data", format="lammps-data", atom_style="atomic", units="metal")
    write(folder / "box.data", box.repeat(copies), format="lammps-data", atom_style="atomic", specorder=["O", "H"])


def script(args: argparse.Namespace, order: list[str]) -> str:
    """An input with a run of each kind in that order."""
    plugins = [next(args.plugins.absolute().rglob(name)) for name in ("clebschplugin.so", "clebschkkplugin.so")]
    lines = [INPUT.format(plugins="\n".join(f"plugin load {path}" for path in plugins), model=args.model.resolve())]
    for kind in order:
        before, behind = KINDS[kind]
        lines += [*before, "thermo_modify norm no", f"run {args.steps}", *behind]
    return "\n".join(lines) + "\n"


#: What LAMMPS times of a loop. A step is computed in Pair, also on a GPU where the host waits for it; a compute that
#: thermo shows is read in Output, and a fix is called in Modify.
PARTS = ("Pair", "Neigh", "Comm", "Output", "Modify", "Other")


def loops_ms(args: argparse.Namespace, order: list[str], folder: Path) -> list[dict[str, float]]:
    """Milliseconds a step of the runs: of the "loop", and of its parts."""
    (folder / "in.txt").write_text(script(args, order))
    kokkos = ["-k", "on", *(["g", "1"] if args.device == "cuda" else ["t", "1"]), "-sf", "kk"]
    command = [str(args.lmp.absolute()), "-in", "in.txt", "-log", "none", *kokkos]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=args.seconds)
    found = [
        {"loop": float(text.split()[0])}
        | {part: float(seconds) for part, seconds in re.findall(r"^(\w+) +\|[^|]*\| ([\d.e+-]+) +\|", text, re.M)}
        for text in done.stdout.split("Loop time of ")[1:]
    ]
    if done.returncode != 0 or len(found) != len(order) + 1:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [{name: 1e3 * seconds / args.steps for name, seconds in loop.items()} for loop in found[1:]]


def summary(args: argparse.Namespace, turns: list[dict[str, dict[str, float]]]) -> list[dict[str, Any]]:
    """Records of what the kinds cost, which are printed."""
    records = []
    for kind in [kind for kind in turns[0] if kind not in ("none", "halt_other")]:
        base = "halt_other" if kind == "halt" else "none"
        plain = float(np.median([turn[base]["loop"] for turn in turns]))
        more = 100 * np.array([turn[kind]["loop"] - turn[base]["loop"] for turn in turns]) / plain
        parts = {
            part: 1e3 * float(np.median([turn[kind].get(part, 0) - turn[base].get(part, 0) for turn in turns]))
            for part in PARTS
        }
        # Of a median of normal numbers, from their quartiles.
        error = 1.2533 / 1.349 * np.subtract(*np.quantile(more, [0.75, 0.25])) / np.sqrt(len(more))
        print(
            f"{kind}: {np.median(more):+.2f}% +- {error:.2f} of {plain:.3f} ms ({base}), "
            f"{10 * plain * np.median(more):+.1f} us ({len(more)} turns): "
            + ", ".join(f"{part} {us:+.1f}" for part, us in parts.items())
        )
        records.append({"name": f"grade_overhead_kk_{kind}_{args.device}_percent", "value": float(np.median(more)),
                        "unit": "%", "spread": float(error), "dtype": "float32",
                        "deterministic": True, "error": None, "peer": None, "plain_ms": plain, "parts_us": parts,
                        "turns": turns, **common.about(args.device)})  # fmt: skip
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
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), help="none is always there")
    args = parser.parse_args()
    kinds = [kind for kind in KINDS if kind in ("none", *args.kinds) or kind == "halt_other" and "halt" in args.kinds]
    rng, begin, turns = np.random.default_rng(1), time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        write_box(Path(folder), [int(n) for n in args.replicate.split()])
        for process in range(args.processes):
            started = time.monotonic()
            orders = [[str(kind) for kind in rng.permutation(kinds)] for _ in range(args.turns)]
            order = ["none"] * args.turns + [kind for turn in orders for kind in turn]
            loops = loops_ms(args, order, Path(folder))
            for k, turn in enumerate(orders):
                own = loops[args.turns + len(kinds) * k :]
                turns.append(dict(zip(turn, own, strict=False)) | {"fresh": loops[k]})
            print(f"process {process + 1}, {time.monotonic() - started:.1f} s", flush=True)
            common.save(args.json, summary(args, turns))
            if time.monotonic() - begin + (time.monotonic() - started) > args.limit:
                break


if __name__ == "__main__":
    main()
