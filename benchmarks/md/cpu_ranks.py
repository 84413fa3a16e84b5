"""LAMMPS on one and on several CPU ranks of one thread each: how much faster a step is.

    python3 benchmarks/md/cpu_ranks.py OUT.json [--ranks 2] [--steps 100] [--repeats 5] [--lmp PATH] [--plugin PATH]

The water box of examples/water_box (648 atoms, the shipped NequIP model, float32), comm auto and comm ghost. Forces of
the start are compared with those of one rank first: a wrong answer is not timed. Runs of one and of several ranks take
turns, and the record is the median of their ratios. Only cores that nothing else uses tell a time: a warning says when
the machine was busy before the first run. Besides: the share of the cores' time that LAMMPS reports, and what the ranks
compute and send (rows, nodes, messages, bytes).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]

import common  # noqa: E402
import numpy as np  # noqa: E402

INPUT = """plugin load "{plugin}"
units metal
atom_style atomic
read_data "{root}/examples/water_box/water.data"
pair_style clebsch comm {comm} dtype float32 device cpu timing yes
pair_coeff * * "{root}/models/water-nequip.pt" O H
neighbor 0.8 bin
neigh_modify every 1 delay 5 check yes
timestep 0.0005
fix motion all nve
thermo_style custom step pe
dump forces all custom 1 forces.dump id fx fy fz
dump_modify forces sort id format float %.9g
run 0 post no
undump forces
run 5 post no
run {steps}
"""
HALO = re.compile(
    r"comm halo through MPI on the host: (\d+) rows, (\d+) remote nodes .* send (\d+) messages and (\d+) by"
)


def measure(args: argparse.Namespace, ranks: int, comm: str) -> dict:
    """One run: seconds a step, forces of the start, and what the log says."""
    with tempfile.TemporaryDirectory() as folder:
        text = INPUT.format(plugin=args.plugin, root=ROOT, comm=comm, steps=args.steps)
        (Path(folder) / "in.water").write_text(text)
        launcher = [args.mpiexec, "-np", str(ranks)] if ranks > 1 else []
        command = [*launcher, args.lmp, "-in", "in.water", "-log", "none"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=args.limit)
        if done.returncode != 0:
            raise SystemExit(f"{ranks} ranks, comm {comm}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        lines = (Path(folder) / "forces.dump").read_text().splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("ITEM: ATOMS")) + 1
    point = {
        "ranks": ranks,
        "comm": comm,
        "forces": np.array([[float(x) for x in line.split()[1:]] for line in lines[start:]]),
        "step_ms": 1e3 * float(re.findall(r"Loop time of (\S+)", done.stdout)[-1]) / args.steps,
        "cpu_percent": float(re.search(r"([\d.]+)% CPU use", done.stdout)[1]),
    }
    point["cpu_ms_a_rank"] = point["step_ms"] * point["cpu_percent"] / 100  # waiting for others included
    if counts := HALO.search(done.stdout):
        point |= dict(zip(("rows", "remote_nodes", "messages", "bytes"), map(int, counts.groups()), strict=True))
    return point


def main() -> int:
    """Measures, prints and writes OUT.json; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=300.0, help="a run ends after so many seconds")
    parser.add_argument("--lmp", default=os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    parser.add_argument("--mpiexec", default=os.environ.get("CLEBSCH_MPIEXEC", str(ROOT / ".venv/bin/mpiexec")))
    args = parser.parse_args()
    args.lmp, args.plugin = (str(Path(path).absolute()) for path in (args.lmp, args.plugin))
    ways = ((1, "auto"), (args.ranks, "auto"), (args.ranks, "ghost"))
    times: dict[tuple, list[float]] = {way: [] for way in ways}
    points, errors, busy = [], {}, os.getloadavg()[0]
    for _ in range(args.repeats):
        for way in ways:
            point = measure(args, *way)
            forces = point.pop("forces")
            if way == ways[0]:
                exact = forces
            rms = float(np.sqrt((exact**2).mean()))
            errors[way] = float(np.sqrt(((forces - exact) ** 2).mean())) / rms
            if not (rms > 1e-2 and errors[way] < 2e-5):
                raise SystemExit(f"{way}: forces differ from one rank's by {errors[way]:.2g} of their RMS")
            times[way].append(point["step_ms"])
            points.append(point | {"error": errors[way]})
            print(" ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in points[-1].items()))
    if busy > 0.5:
        print(f"warning: the machine's load was {busy:.1f} before the first run: not idle cores", file=sys.stderr)
    records = []
    for way, name in ((ways[1], f"ranks{args.ranks}_cpu_ratio"), (ways[2], f"ranks{args.ranks}_cpu_ghost_ratio")):
        value, spread = common.quartiles([a / b for a, b in zip(times[ways[0]], times[way], strict=True)])
        records.append(
            {"name": name, "value": value, "unit": "x one rank", "spread": spread, "dtype": "float32",
             "deterministic": True, "error": errors[way], "peer": None} | common.about("cpu")
        )  # fmt: skip
        print(f"{name} {value:.3g} (spread {spread:.2g})")
    common.save(args.out, records)
    common.save(Path(args.out).with_name("cpu_ranks_points.json"), points)
    return 0


if __name__ == "__main__":
    sys.exit(main())
