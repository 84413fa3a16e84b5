"""The largest system of a model that LAMMPS with clebsch/kk runs on one GPU and on several: sizes near what the memory
of a smaller run says, until one goes through and the next one up does not.

    python3 benchmarks/md/largest.py OUT [--case mace-M] [--gpus 2] [--known FILE ...] [--seconds 200]

The first size is what fits if memory grows with the atoms as it did in the largest run of FILE (gpu_ranks.json), or in
one of 256,000 atoms. Sizes of one GPU are tried on all GPUs at once, one on each. What went through has made a new
list, recorded its step and replayed it, its forces have been compared with float64 on the CPU and its energy is
conserved; what did not has ended with a message, which is kept. OUT receives largest.json and records.json
(largest1_mace_m, largest2_mace_m: atoms; largest2_mace_m_ms: of a step).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import common  # noqa: E402
import engine  # noqa: E402
from gpu_ranks import known_points  # noqa: E402
from measure import measure, reference  # noqa: E402

from cases import BASES, CASES, ROOT, replication, timestep  # noqa: E402

#: Of the size that memory predicts: tried in this order, while none has gone through; and then upwards.
FIRST, UP = (0.97, 0.92, 0.85, 0.75), 1.04
STEPS, WARM = 4, 3


def memory_of_gpu() -> float:
    """MB of the first GPU."""
    words = ["nvidia-smi", "--id=0", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def attempt(args: argparse.Namespace, exact: engine.Outcome, style: engine.Style, gpus: int, atoms: int) -> dict:
    """One run; its `failure` says what was missing."""
    case, base = CASES[args.case], BASES[CASES[args.case].base]()
    plan = engine.Plan(case, base, replication(len(base), atoms), style, "float32", steps=STEPS, warm=WARM, rebuild=5)
    plan = replace(plan, ranks=gpus, comm="halo", phases=False, seconds=60.0)
    plan.timestep = timestep(case, base, exact.forces, STEPS + WARM)
    args = argparse.Namespace(**vars(args) | {"gpus": gpus, "logs": args.out / "logs" / f"{gpus}-{plan.atoms}"})
    args.logs.mkdir(parents=True, exist_ok=True)
    found = measure(plan, exact, args)
    # MB a GPU, what other ranks have the memory of left out.
    speed = f"{found['step_ms']:.0f} ms a step, {found['device_mb'] or 0:.0f} MB" if "step_ms" in found else "no time"
    print(f"{plan.atoms} atoms on {gpus}: {found['failure'][-300:] or speed}", flush=True)
    return found


def on_each_gpu(args: argparse.Namespace, exact, style, sizes: list[int]) -> list[dict]:
    """Sizes side by side, one a GPU, each in a process of this program."""

    def one(number: int) -> dict:
        out = args.out / f"one-{sizes[number]}"
        words = [sys.executable, "-W", "ignore", __file__, out, "--try", str(sizes[number]), "--case", args.case]
        words += ["--limit", str(args.limit), "--lmp-kk", args.lmp_kk, "--plugin-kk", args.plugin_kk]
        words += ["--lmp", args.lmp, "--plugin", args.plugin, "--style", args.style]
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": str(number)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        print(done.stdout.strip() or done.stderr[-500:], flush=True)
        path = out / "largest.json"
        return json.loads(path.read_text())[0] if path.exists() else {"failure": done.stderr[-500:], "ranks": 1}

    with concurrent.futures.ThreadPoolExecutor(len(sizes)) as pool:
        return list(pool.map(one, range(len(sizes))))


def went_through(points: list[dict], gpus: int) -> dict | None:
    good = [p for p in points if p["ranks"] == gpus and not p["failure"] and "step_ms" in p]
    return max(good, key=lambda p: p["atoms"], default=None)


def records(points: list[dict], args: argparse.Namespace) -> list[dict]:
    made, where = [], common.about("cuda")
    label = args.case.lower().replace("-", "_")
    for gpus in dict.fromkeys((1, args.gpus)):
        if best := went_through(points, gpus):
            row = {"spread": None, "dtype": "float32", "deterministic": True, "error": best["error"], "peer": None}
            made.append({"name": f"largest{gpus}_{label}", "value": best["atoms"], "unit": "atoms"} | row | where)
            made.append({"name": f"largest{gpus}_{label}_ms", "value": best["step_ms"], "unit": "ms"} | row | where)
    return made


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--case", default="mace-M", choices=CASES)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--known", type=Path, nargs="+", default=[], help="gpu_ranks.json of other runs")
    parser.add_argument("--memory", type=float, default=0.0, help="MB of a GPU; 0: ask")
    parser.add_argument("--try", type=int, default=0, dest="only", help="this size on one GPU, no other")
    parser.add_argument("--style", default="kk", choices=("cpu", "cuda", "kk"))
    parser.add_argument("--limit", type=float, default=120.0, help="a run ends after so many seconds")
    parser.add_argument("--seconds", type=float, default=1e9, help="no run is begun later")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lmp", default=os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    parser.add_argument("--lmp-kk", default=os.environ.get("CLEBSCH_KK_LMP", ""))
    parser.add_argument("--plugin-kk", default=os.environ.get("CLEBSCH_KK_PLUGIN", ""))
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def main() -> int:
    args = parsed()
    plain = engine.Program(args.lmp, args.plugin)
    kokkos = engine.Program(args.lmp_kk, args.plugin_kk) if args.lmp_kk else None
    if args.style not in (known := engine.styles(plain, kokkos, args.threads, args.gpus)):
        raise SystemExit(f"--style {args.style}: expected --lmp-kk or CLEBSCH_KK_LMP, got none")
    alone = engine.styles(plain, kokkos, args.threads, 1)[args.style]
    clock, points = engine.Clock(args.seconds), []
    exact = reference(CASES[args.case], argparse.Namespace(**vars(args) | {"logs": None, "gpus": 1}), plain)
    if exact.failure:
        raise SystemExit(f"{args.case}, reference on the CPU: {exact.failure}")

    def keep(found: list[dict]) -> None:
        points.extend(found)
        common.save(args.out / "largest.json", points)
        common.save(args.out / "records.json", records(points, args))

    if args.only:
        keep([attempt(args, exact, alone, 1, args.only)])
        return 0
    measured = [
        p for p in known_points(args.known) if p["case"] == args.case and not p["failure"] and p.get("device_mb")
    ]
    if not measured:
        keep([attempt(args, exact, alone, 1, 256000)])
        measured = [p for p in points if p.get("device_mb")]
    start = max(measured, key=lambda p: p["atoms"])
    fits = (args.memory or memory_of_gpu()) * start["atoms"] / start["device_mb"]
    print(f"{start['atoms']} atoms take {start['device_mb']:.0f} MB: {fits:.0f} would fill a GPU", flush=True)
    for k in range(0, len(FIRST), args.gpus):
        if went_through(points, 1) or clock.over():
            break
        keep(on_each_gpu(args, exact, alone, [int(fits * part) for part in FIRST[k : k + args.gpus]]))
    best = went_through(points, 1)
    if args.gpus > 1 and best:
        # Ghosts' rows and edges of two domains are a few percent more.
        for part in (0.97, 0.93, 0.88, 0.8):
            if went_through(points, args.gpus) or clock.over():
                break
            keep([attempt(args, exact, known[args.style], args.gpus, int(args.gpus * best["atoms"] * part))])
    if not clock.over() and (best := went_through(points, args.gpus)) and not any(p["failure"] for p in points):
        keep([attempt(args, exact, known[args.style], args.gpus, int(best["atoms"] * UP))])
    for row in records(points, args):
        print(f"{row['name']} {row['value']:.6g} {row['unit']}")
    return 0 if went_through(points, args.gpus) else 1


if __name__ == "__main__":
    sys.exit(main())
