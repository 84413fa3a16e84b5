"""LAMMPS with clebsch/kk on one GPU and on several, a rank a GPU: strong and weak scaling, ways of communication.

    python3 benchmarks/md/gpu_ranks.py OUT [--gpus 2] [--points NAME,...] [--comms halo,ghost,gather] [--style kk]
                                           [--lmp-kk PATH --plugin-kk PATH] [--seconds 500] [--known FILE ...]

A point is a model and a number of atoms: in one run on one GPU and in one run on all for each way (`comm`) the boxes,
models, neighbour lists and checks of benchmarks/md: forces of the start against float64 on the CPU and a total energy
that stays, else it is not timed. The speed-up is the time of a step on one GPU over that on all; a weak point has as
many times the atoms on all GPUs, and its figure is the efficiency. Large points have fewer steps. `--comms none` is
one GPU alone, of which several can be measured side by side (CUDA_VISIBLE_DEVICES) and be --known to the run on all.
OUT receives gpu_ranks.json, logs, md.json (for benchmarks/scaling records), and records.json (gpus2_mace_m_64000,
gpus2_weak_mace_m, ... of the fastest way; gpus2_mace_m_64000_halo, ... of each).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import common  # noqa: E402
import engine  # noqa: E402
import numpy as np  # noqa: E402
import output  # noqa: E402
from measure import measure, reference  # noqa: E402

from cases import BASES, CASES, ROOT, replication, timestep  # noqa: E402


@dataclass(frozen=True)
class Point:
    """`atoms` on one GPU; on all of them the same, or that many times as many."""

    case: str
    atoms: int
    weak: bool = False
    only: str = ""  # the one way that is run on several GPUs, where time is short

    @property
    def large(self) -> bool:
        return self.atoms > 128000

    @property
    def name(self) -> str:
        label = self.case.lower().replace("-", "_")
        if self.weak:
            return f"weak_{label}" + ("" if self.atoms == 64000 else f"_{self.atoms}")
        return f"{label}_{self.atoms}"


#: Models whose points go up to two million atoms.
LARGE = ("mace-M", "carbon", "nequip-M", "water")
POINTS = {
    point.name: point
    for point in (
        Point("mace-M", 64000),
        Point("carbon", 64000),
        Point("nequip-M", 64000),
        Point("mace-M", 8000),
        Point("mace-M", 64000, weak=True),
        Point("carbon", 8000),
        Point("nequip-M", 8000),
        Point("water", 64000),
        Point("water", 8000),
        Point("carbon", 64000, weak=True),
        Point("carbon", 32000),  # what a rank of two has of 64,000
        Point("mace-M", 32000),
        *(Point(case, atoms, only="halo") for case in LARGE for atoms in (256000, 512000, 1000000)),
        *(Point(case, 1000000, weak=True, only="halo") for case in LARGE),
        Point("allegro", 64000, only="auto"),
    )
}
#: What the log says of an exchange.
TOLD = re.compile(r"Pair style clebsch: (comm .*)")


def run(point: Point, style: engine.Style, comm: str, exact: engine.Outcome, args: argparse.Namespace) -> dict:
    """One run of LAMMPS, judged; `told` is what the style says of its communication."""
    case, base = CASES[point.case], BASES[CASES[point.case].base]()
    copies = replication(len(base), point.atoms)
    gpus = args.gpus
    if point.weak and gpus > 1:
        copies = (copies[0], copies[1], copies[2] * gpus)
    # Large ones: with one new list.
    steps = 10 if point.atoms >= 1000000 else 20 if point.large else args.steps
    warm = 2 if point.large else max(10, steps // 5)
    plan = engine.Plan(case, base, copies, style, "float32", steps=steps, warm=warm, seconds=args.run_seconds)
    plan.rebuild = min(plan.rebuild, steps)
    plan.ranks, plan.comm, plan.phases = gpus, comm, args.phases
    args.logs = args.out / "logs" / comm / str(gpus)
    args.logs.mkdir(parents=True, exist_ok=True)
    found = measure(replace(plan, timestep=timestep(case, base, exact.forces, steps + warm)), exact, args)
    logs = sorted(args.logs.glob(f"{case.name}-*-{plan.atoms}.log"))
    told = TOLD.findall(logs[0].read_text()) if logs else []
    return found | {"point": point.name, "told": told[:4]}


def records(points: list[dict], gpus: int) -> list[dict]:
    """The speed-up, or efficiency where the point is weak, of the fastest way and of each; the fastest one's speed."""
    good = [p for p in points if not p["failure"] and "step_ms" in p]
    made = []
    for name in dict.fromkeys(p["point"] for p in good):
        mine = [p for p in good if p["point"] == name]
        one = next((p for p in mine if p["ranks"] == 1), None)
        many = [p for p in mine if p["ranks"] == gpus]
        if one is None or not many:
            continue
        unit = "of one GPU" if name.startswith("weak") else "x one GPU"
        best = min(many, key=lambda p: p["step_ms"])
        for label, point in (("", best), *((f"_{p['comm']}", p) for p in many)):
            spread = float(np.hypot(one.get("relative_spread", 0.0), point.get("relative_spread", 0.0)))
            value = one["step_ms"] / point["step_ms"]
            row = {
                "name": f"gpus{gpus}_{name}{label}", "value": value, "unit": unit, "spread": spread * value,
                "dtype": "float32", "deterministic": True, "error": point["error"], "peer": None,
            }  # fmt: skip
            made.append(row | common.about("cuda"))
        speed = {"name": f"md{gpus}_{name}_katom_steps_s", "value": best["katom_steps_s"], "unit": "katom-steps/s"}
        made.append(made[-1] | speed | {"spread": best.get("relative_spread", 0.0) * best["katom_steps_s"]})
    return made


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--points", default=",".join(POINTS), help=", ".join(POINTS))
    parser.add_argument("--comms", default="halo,ghost,gather", help="none: one GPU alone")
    parser.add_argument("--known", type=Path, nargs="+", default=[], help="runs whose points on one GPU are taken")
    parser.add_argument("--style", default="kk", choices=("cpu", "cuda", "kk"))
    parser.add_argument("--newton-on", action="store_true", help="LAMMPS sums the ghosts' forces, through the host")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--run-seconds", type=float, default=8.0, help="of the timed steps of a run")
    parser.add_argument("--limit", type=float, default=90.0, help="a run ends after so many seconds")
    parser.add_argument("--seconds", type=float, default=1e9, help="no run is begun later")
    parser.add_argument("--phases", action="store_true", help="a second run tells graph, model and forces apart")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lmp", default=os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    parser.add_argument("--lmp-kk", default=os.environ.get("CLEBSCH_KK_LMP", ""))
    parser.add_argument("--plugin-kk", default=os.environ.get("CLEBSCH_KK_PLUGIN", ""))
    args = parser.parse_args()
    unknown = [name for name in args.points.split(",") if name not in POINTS]
    if unknown:
        parser.error(f"--points: expected some of {', '.join(POINTS)}, got {unknown[0]!r}")
    args.comms = [] if args.comms == "none" else args.comms.split(",")
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def known_points(paths: list[Path]) -> list[dict]:
    """Those on one GPU, each once."""
    found = [point for path in paths if path.exists() for point in json.loads(path.read_text())]
    return list({point["point"]: point for point in found if point["ranks"] == 1}.values())


def of_one_gpu(point: Point, points: list[dict]) -> dict | None:
    """What was measured already: a weak point's box on one GPU is that of its strong one."""
    names = (point.name, replace(point, weak=False).name)
    found = next((p for p in points if p["ranks"] == 1 and p["point"] in names), None)
    return found and found | {"point": point.name}


def main() -> int:
    """Runs the points in their order until time is up; returns the exit status."""
    args = parsed()
    plain = engine.Program(args.lmp, args.plugin)
    kokkos = engine.Program(args.lmp_kk, args.plugin_kk) if args.lmp_kk else None
    clock, points, exact = engine.Clock(args.seconds), [], {}
    before = known_points(args.known)
    for point in (POINTS[name] for name in args.points.split(",")):
        ways = [(1, "auto"), *((args.gpus, comm) for comm in args.comms if point.only in ("", comm))]
        for gpus, comm in ways:
            if gpus == 1 and (same := of_one_gpu(point, [*points, *before])):
                found = same
            elif clock.over():
                print(f"{point.name} {gpus} {comm} left out: no time", flush=True)
                continue
            else:
                known = engine.styles(plain, kokkos, args.threads, gpus)
                if args.style not in known:
                    raise SystemExit(f"--style {args.style}: expected --lmp-kk or CLEBSCH_KK_LMP, got none")
                if point.case not in exact:
                    exact[point.case] = reference(CASES[point.case], args, plain)
                if exact[point.case].failure:
                    raise SystemExit(f"{point.case}, reference on the CPU: {exact[point.case].failure}")
                here = argparse.Namespace(**vars(args) | {"gpus": gpus})
                style = known[args.style]
                if args.newton_on:
                    style = replace(style, flags=(*style.flags, "-pk", "kokkos", "newton", "on", "neigh", "half"))
                found = run(point, style, comm, exact[point.case], here)
            points.append(found)
            speed = "no time"
            if "step_ms" in found:
                speed = (
                    f"{found['step_ms']:.3f} ms a step, error {found['error']:.1e}, {found['device_mb'] or 0:.0f} MB"
                )
            print(point.name, gpus, "GPU", comm, found["failure"] or speed, "; ".join(found["told"]), flush=True)
            (args.out / "gpu_ranks.json").write_text(json.dumps(points, indent=1) + "\n")
            output.write(args.out / "md.json", points, args.style != "cpu")
            common.save(args.out / "records.json", records(points, args.gpus))
    for row in records(points, args.gpus):
        print(f"{row['name']} {row['value']:.4g} {row['unit']}")
    return 1 if any(p["failure"] for p in points) else 0


if __name__ == "__main__":
    sys.exit(main())
