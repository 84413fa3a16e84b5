"""Molecular dynamics in LAMMPS: speed, phases and memory against the number of atoms, with peers beside it.

    python benchmarks/md [--cases water,carbon,allegro,mace-M,nequip-M,nequip-M-water] [--styles cpu,cuda,kk]
                          [--atoms 64,512,8000,1000000] [--steps N] [--json OUT] [--plot OUT] [--lmp PATH] [--dry-run]

NVE at 300 K with the neighbour list rebuilt every 20 steps, timed by LAMMPS itself after a warm-up; a second, shorter
run with `timing yes` tells graph, model and forces apart. Boxes are copies of a base cell (64 atoms of diamond, 192 of
water), whose forces and energy in float64 with exact radial networks on the CPU are the reference: an answer that
differs at the start, or a total energy that moves, is not timed. Models of random weights get a timestep that keeps
atoms near their places. Styles: `cpu` and `cuda` are `pair_style clebsch device ...`, `kk` is clebsch/kk in a Kokkos
LAMMPS (on its GPU, or on threads without CUDA). Peers (ASE) run beside cuda and kk where they are installed, on the CPU
with `--peers`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import common  # noqa: E402
import engine  # noqa: E402
import numpy as np  # noqa: E402
import output  # noqa: E402
from measure import measure, reference  # noqa: E402

from cases import BASES, CASES, ROOT, replication, timestep  # noqa: E402

ATOMS = {"diamond": (64, 512, 1728, 8000, 64000, 1000000), "water": (192, 648, 1536, 8000, 64000, 1000000)}
#: Without --atoms, and for peers: more than this takes too long on a CPU, or does not fit.
CPU_ATOMS, PEER_ATOMS = 2000, 10000


def measure_peer(name, case, base, copies, exact, args, device) -> dict | None:
    """The like through ASE; nothing when the peer is not installed."""
    atoms = len(base) * int(np.prod(copies))
    point = {"case": case.name, "style": f"peer {name}", "dtype": "float32", "atoms": atoms, "deterministic": None}
    point |= {"timestep_fs": timestep(case, base, exact.forces, args.steps), "failure": ""}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.npz"
        symbols = [{"O": "O", "H": "C"}.get(base.elements[k - 1], base.elements[k - 1]) for k in base.types]
        np.savez(path, length=base.length, positions=base.positions, symbols=symbols, forces=exact.forces)
        words = ["--base", path, "--copies", *copies, "--steps", min(args.steps, 50), "--seconds", args.seconds]
        words += ["--timestep", point["timestep_fs"], "--device", device]
        command = [sys.executable, "-W", "ignore", str(HERE / "peers.py"), name, *map(str, words)]
        threads = {"OMP_NUM_THREADS": str(args.threads)}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit, env=os.environ | threads)
        except subprocess.TimeoutExpired:
            return point | {"failure": f"no end after {args.limit:.0f} s"}
    if done.returncode == 3:
        print(f"{case.name}: peer {name} left out, {done.stdout.strip().splitlines()[-1]}", flush=True)
        return None
    if done.returncode != 0:
        return point | {"failure": " ".join(done.stderr.strip().splitlines()[-2:])[-400:]}
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    point |= {key: answer[key] for key in ("error", "steps", "version", "device_mb")}
    if not answer["error"] <= 1e-3:
        return point | {"failure": f"forces of the start: relative difference {answer['error']:.2g} (other weights?)"}
    rate = answer["steps"] / answer["seconds"]
    point |= {"step_ms": 1e3 / rate, "steps_s": rate, "katom_steps_s": rate * atoms / 1e3, "builds": answer["steps"]}
    return point | {"ns_day": rate * point["timestep_fs"] * 1e-6 * 86400}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="water,carbon,mace-M,nequip-M")
    parser.add_argument("--styles", default="cpu,cuda,kk")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--atoms", help="sizes, rounded up to whole copies of the base cell")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30.0, help="a timed run ends after so long, with fewer steps")
    parser.add_argument("--limit", type=float, default=300.0, help="a program ends after so many seconds")
    parser.add_argument("--total", type=float, default=1e9, help="no new point is begun after so many seconds")
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", "1")))
    parser.add_argument("--ranks", type=int, default=1, help="MPI ranks of each run")
    parser.add_argument("--comm", default="", help="of several ranks: auto, ghost, halo, gather")
    parser.add_argument("--gpus", type=int, default=1, help="of kk: Kokkos gives each rank the next one")
    parser.add_argument("--lmp", default=os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    parser.add_argument("--lmp-kk", default=os.environ.get("CLEBSCH_KK_LMP", ""), help="lmp with KOKKOS, for kk")
    parser.add_argument("--plugin-kk", default=os.environ.get("CLEBSCH_KK_PLUGIN", ""), help="clebschkkplugin.so")
    parser.add_argument("--peers", action="store_true", help="peers also without a GPU")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep LAMMPS's logs here")
    parser.add_argument("--dry-run", action="store_true", help="print commands and inputs, run nothing")
    return parser.parse_args()


def chosen(args: argparse.Namespace, known: dict[str, engine.Style]) -> list[engine.Style]:
    """The styles that were asked for and can run here; says which cannot, and why."""
    wanted = args.styles.split(",")
    gpu = bool(common.first_line("nvidia-smi", "-L"))
    found = []
    for name in wanted:
        if name == "kk" and "kk" not in known:
            print("kk left out: expected a Kokkos LAMMPS and its plugin, got none (--lmp-kk, --plugin-kk)")
        elif name not in (*known, "kk"):
            raise SystemExit(f"unknown style {name!r}: expected some of cpu, cuda, kk")
        elif name == "cuda" and not gpu and not args.dry_run:
            print("cuda left out: nvidia-smi shows no GPU")
        else:
            found.append(known[name])
    for style in found:
        for path in (style.program.lmp, style.program.plugin):
            if not args.dry_run and not Path(path).exists():
                raise SystemExit(f"style {style.name}: expected {path}, found none; give --lmp and --plugin (or -kk)")
    return found


def sizes(case, style, args) -> list[tuple[int, int, int]]:
    base = len(BASES[case.base]())
    wanted = [int(float(n)) for n in args.atoms.split(",")] if args.atoms else list(ATOMS[case.base])
    on_host = style.name == "cpu" or "t" in style.flags
    if not args.atoms and on_host:
        wanted = [n for n in wanted if n <= CPU_ATOMS]
    return list(dict.fromkeys(replication(base, n) for n in wanted))


def main() -> int:
    """Runs everything that was asked for; returns the exit status."""
    args = parse()
    plain = engine.Program(args.lmp, args.plugin)
    kokkos = engine.Program(args.lmp_kk, args.plugin_kk) if args.lmp_kk and args.plugin_kk else None
    styles = chosen(args, engine.styles(plain, kokkos, args.threads, args.gpus))
    unknown = [name for name in args.cases.split(",") if name not in CASES]
    if unknown:
        raise SystemExit(f"unknown case {unknown[0]!r}: expected some of {', '.join(CASES)}")
    if args.logs:
        args.logs.mkdir(parents=True, exist_ok=True)
    gpu = any("g" in style.flags for style in styles)
    clock, points = engine.Clock(args.total), []

    def keep(point: dict | None) -> None:
        if point is None:
            return
        points.append(point)
        print(output.line(point), flush=True)
        if args.json:
            output.write(args.json, points, gpu)
        if args.plot:
            output.plot(args.plot, points)

    for case in (CASES[name] for name in args.cases.split(",")):
        base = BASES[case.base]()
        if not case.path.exists():
            print(f"{case.name} left out: no model file {case.path}", flush=True)
            continue
        exact = None if args.dry_run else reference(case, args, plain)
        if exact and exact.failure:
            keep(
                {
                    "case": case.name,
                    "style": "reference",
                    "dtype": "float64",
                    "atoms": len(base),
                    "failure": exact.failure,
                }
            )
            continue
        wanted = [(style, dtype, copies) for style in styles for dtype in args.dtypes.split(",")
                  for copies in sizes(case, style, args)]  # fmt: skip
        seen: dict[tuple, float] = {}
        for style, dtype, copies in sorted(wanted, key=lambda w: np.prod(w[2])):
            warm = min(40, max(args.steps // 5, 5))
            plan = engine.Plan(case, base, copies, style, dtype, steps=args.steps, warm=warm, seconds=args.seconds)
            plan.ranks, plan.comm = args.ranks, args.comm
            if args.dry_run:
                print("#", " ".join(plan.command()), "\n" + replace(plan, timestep=case.timestep or 0.1).input())
                continue
            # From the last size: the warm-up alone would take too long.
            expected = seen.get((style.name, dtype), 0.0) * plan.atoms
            if clock.over() or expected * warm > args.limit:
                print(f"{case.name} {style.name} {dtype} {plan.atoms} atoms left out: no time", flush=True)
                continue
            point = measure(replace(plan, timestep=timestep(case, base, exact.forces, args.steps + warm)), exact, args)
            keep(point)
            if not point["failure"]:
                seen[style.name, dtype] = point["step_ms"] / 1e3 / plan.atoms
        on_gpu = any(style.name == "cuda" or "g" in style.flags for style in styles)
        if args.dry_run or args.no_peers or not (on_gpu or args.peers):
            continue
        for name in case.peers:
            for copies in dict.fromkeys(w[2] for w in sorted(wanted, key=lambda w: np.prod(w[2]))):
                if len(base) * np.prod(copies) > PEER_ATOMS or clock.over():
                    break
                point = measure_peer(name, case, base, copies, exact, args, "cuda" if on_gpu else "cpu")
                keep(point)
                if point is None or point["failure"]:
                    break
    return 1 if any(p["failure"] for p in points) else 0


if __name__ == "__main__":
    sys.exit(main())
