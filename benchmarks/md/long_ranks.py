"""100,000 steps of a small model on several ranks, with domains that move: energy, memory, and the forces at the end.

    python3 benchmarks/md/long_ranks.py OUT                         here: two ranks on the CPU
    python3 benchmarks/md/long_ranks.py OUT --style cuda --seconds 150    two ranks on the GPUs

70 atoms of a NequIP model with random weights (tests/unit/tiny_model.py, 2 layers, float64) at constant energy in a
long box: `comm_style tiled`, `fix balance` every --balance steps, neighbour lists whenever they are due, features
exchanged between layers (comm halo). A run is judged by what it wrote until its time was up:

- drift of the energy that Verlet's method conserves, as in long_run.py, below --drift with two errors;
- memory of all ranks together, and of the GPU, which is steady when the means of the second and the last fifth of
  the samples of these steps differ by at most 8 and 2 MB;
- forces of the last step against those that one rank on the CPU has for the same positions, to 1e-10.

OUT receives long_ranks_STYLE.json and long_ranks_STYLE_records.json (for benchmarks/record.py).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("models/recipes", "benchmarks", "benchmarks/md", "tests/lammps")]
import common  # noqa: E402
import engine  # noqa: E402
from lammps_runs import MPI_ENVIRONMENT, random_system  # noqa: E402
from long_run import LIMITS, Case, growth, judge, read_log, resident, thinned  # noqa: E402

#: fs; random weights with a repulsive term are stiffer than water.
CASE = Case("ranks", "O H", "", 70, 0.1, 300.0)
HEAD = """plugin load "{plugin}"
units metal
atom_style atomic
newton on
comm_style tiled
read_data "{data}"
pair_style clebsch {keywords}
pair_coeff * * "{model}" O H
neighbor 0.5 bin
neigh_modify every 1 delay 0 check yes
timestep {timestep}
"""
RUN = """fix even all balance {balance} 1.0 rcb
minimize 0 0 200 400
velocity all create {temperature} 4711 mom yes loop geom
fix motion all nve
fix bath all langevin {temperature} {temperature} 0.05 4711
run 2000 post no
unfix bath
velocity all zero linear
run 1000 post no
reset_timestep 0 time 0.0
variable square atom (fx^2+fy^2+fz^2)/mass
compute square all reduce sum v_square
thermo_style custom step time temp press pe etotal c_square
thermo_modify norm no format float %.12g flush yes
thermo 10
timer timeout {seconds} every 100
run {steps}
"""
LAST = """log log.{name}
timer timeout off
dump last all custom 1 {name}.dump id fx fy fz
dump_modify last sort id format float %.17g
run 0
"""
LIMIT = 1e-10


def forces_of(path: Path) -> np.ndarray:
    return np.loadtxt(path, skiprows=9, ndmin=2)[:, 1:4]


class Ranks:
    """The run, with samples of its memory, and the look back by one rank."""

    def __init__(self, args: argparse.Namespace, styles: dict[str, engine.Style]) -> None:
        self.args, self.styles = args, styles
        self.folder = args.out / f"long_ranks_{args.style}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.host: list[float] = []
        self.device: list[float] = []
        for name in ("log.lammps", "last.data"):
            (self.folder / name).unlink(missing_ok=True)
        random_system(CASE.atoms, lengths=(18.0, 9.0, 9.0), spacing=1.4, seed=8).write(self.folder / "start.data")
        options = ["dtype=float64", "lmax=1", "layers=2", "zbl=1"]
        script = [sys.executable, "-W", "ignore", ROOT / "tests/unit/tiny_model.py", self.folder / "tiny.pt", *options]
        subprocess.run(script, check=True)

    def command(self, style: engine.Style, text: str, name: str, ranks: int) -> tuple[list[str], dict[str, str]]:
        (self.folder / f"in.{name}").write_text(text)
        head = engine.launcher(style.program, ranks, self.args.mpirun)
        words = [*head, style.program.lmp, *style.flags, "-in", f"in.{name}", "-log", f"log.{name}"]
        environment = os.environ | MPI_ENVIRONMENT | engine.MPI_ENVIRONMENT | {"OMP_NUM_THREADS": "1"}
        return words, environment | {"OMP_PROC_BIND": "false"}

    def head(self, style: engine.Style, data: str, keywords: str) -> str:
        words = f"{style.keywords} {keywords}".strip()
        return HEAD.format(
            plugin=style.program.plugin, data=data, keywords=words, model="tiny.pt", timestep=CASE.timestep / 1000
        )

    def run(self) -> str:
        """Runs to the end; returns why it failed, or nothing."""
        args, style = self.args, self.styles[self.args.style]
        text = self.head(style, "start.data", f"dtype float64 comm {args.comm}") + RUN.format(
            balance=args.balance, temperature=CASE.temperature, seconds=round(args.seconds), steps=args.steps
        )
        text += "write_data last.data nocoeff\n" + LAST.format(name="last")
        words, environment = self.command(style, text, "lammps", args.ranks)
        with open(self.folder / "screen.txt", "w") as screen:
            process = subprocess.Popen(words, cwd=self.folder, env=environment, stdout=screen, stderr=screen)
        end = time.monotonic() + args.seconds + 120
        try:
            while process.poll() is None and time.monotonic() < end:
                time.sleep(min(2.0, args.seconds / 100))
                if not self.counting():
                    continue
                kept = len(self.host), len(self.device)
                self.sample(process.pid)
                if not self.counting():  # they ended meanwhile: what follows, a dump's set-up, needs memory too
                    del self.host[kept[0] :], self.device[kept[1] :]
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return "" if process.returncode == 0 else (self.folder / "screen.txt").read_text()[-1500:]

    def counting(self) -> bool:
        """Whether the counted steps have begun and not ended."""
        path = self.folder / "log.lammps"
        text = path.read_text() if path.exists() else ""
        return bool(read_log(path)) and "Loop time" not in text.rpartition("c_square")[2]

    def sample(self, pid: int) -> None:
        if resident_mb := resident(pid):
            self.host.append(resident_mb)
            if self.args.style != "cpu" and not self.args.shared and (mb := engine.device_memory()) is not None:
                self.device.append(mb)

    def look_back(self) -> float:
        """The largest difference of the last forces from one rank's, over the largest of these."""
        style = self.styles["cpu"]
        text = self.head(style, "last.data", "dtype float64") + "fix motion all nve\n" + LAST.format(name="alone")
        words, environment = self.command(style, text, "alone", 1)
        subprocess.run(words, cwd=self.folder, env=environment, check=True, capture_output=True, timeout=300)
        mine, exact = forces_of(self.folder / "last.dump"), forces_of(self.folder / "alone.dump")
        return float(np.abs(mine - exact).max() / np.abs(exact).max())


def lists_in(log: str) -> int:
    """Neighbour lists of the counted steps."""
    found = re.findall(r"^Neighbor list builds = (\d+)", log, re.MULTILINE)
    return int(found[-1]) if found else 0


def records(args: argparse.Namespace, found: dict) -> list[dict]:
    where = common.about("cpu" if args.style == "cpu" else "cuda")
    rows = [("drift", abs(found["shadow_drift"]) + 2 * found["shadow_drift_error"], "meV/atom/ns"),
            ("steps", found["steps"], "steps"), ("force_error", found["force_error"], "relative")]  # fmt: skip
    rows += [(f"{place}_mb", found[f"{place}_growth_mb"], "MB") for place in ("host", "device")
             if found.get(f"{place}_growth_mb") is not None]  # fmt: skip
    common_fields = {"spread": None, "dtype": "float64", "deterministic": True, "error": None, "peer": None}
    name = f"long_ranks{args.ranks}_{args.style}"
    return [{"name": f"{name}_{key}", "value": v, "unit": unit} | common_fields | where for key, v, unit in rows]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--style", default="cpu", choices=("cpu", "cuda", "kk"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=1, help="that clebsch/kk is given")
    parser.add_argument("--comm", default="halo")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--balance", type=int, default=50, help="steps between changes of the domains")
    parser.add_argument("--seconds", type=float, default=1500.0, help="of the counted steps, at most")
    parser.add_argument("--drift", type=float, default=0.05, help="most, with two errors: meV an atom and ns")
    parser.add_argument("--shared", action="store_true", help="other processes use the GPU: its memory is not judged")
    parser.add_argument("--mpirun", default=os.environ.get("CLEBSCH_MPIRUN", ""))
    parser.add_argument("--lmp", default=os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    parser.add_argument("--lmp-kk", default=os.environ.get("CLEBSCH_KK_LMP", ""))
    parser.add_argument("--plugin-kk", default=os.environ.get("CLEBSCH_KK_PLUGIN", ""))
    args = parser.parse_args()
    args.out = args.out.resolve()  # LAMMPS runs in a folder of its own
    return args


def main() -> int:
    """Runs and judges; status 1 when the run has failed, drifts, grows, ends early or ends with other forces."""
    args = parsed()
    kokkos = engine.Program(args.lmp_kk, str(Path(args.plugin_kk).resolve())) if args.lmp_kk else None
    known = engine.styles(engine.Program(args.lmp, str(Path(args.plugin).resolve())), kokkos, 1, args.gpus)
    if args.style not in known:
        print(f"FAIL --style {args.style}: expected --lmp-kk or CLEBSCH_KK_LMP, got none")
        return 1
    run = Ranks(args, known)
    bad = [failure] if (failure := run.run()) else []
    log = run.folder / "log.lammps"
    found = judge(log, CASE)
    if not found:
        bad.append("too few samples of the energy")
    else:
        found |= {"ranks": args.ranks, "comm": args.comm, "lists": lists_in(log.read_text())}
        found |= {f"{place}_growth_mb": growth(getattr(run, place)) for place in ("host", "device")}
        found["force_error"] = run.look_back() if not bad else float("nan")
        if abs(found["shadow_drift"]) + 2 * found["shadow_drift_error"] > args.drift:
            bad.append(f"drift above {args.drift} meV/atom/ns")
        if found["steps"] < args.steps:
            bad.append(f"expected {args.steps} steps, got {found['steps']} in {args.seconds:g} s")
        if not bad and not found["force_error"] < LIMIT:
            bad.append(f"forces of the last step differ by {found['force_error']:.1e}")
        for place, limit in zip(("host", "device"), LIMITS, strict=True):
            if abs(found[f"{place}_growth_mb"] or 0.0) > limit:
                bad.append(f"memory of the {place} is not steady to {limit} MB")
        memory = {"host_mb": thinned(run.host), "device_mb": thinned(run.device)}
        common.save(args.out / f"long_ranks_{args.style}.json", found | memory | {"failure": "; ".join(bad)})
        common.save(args.out / f"long_ranks_{args.style}_records.json", records(args, found))
    print(json.dumps({k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in found.items()}))
    print("FAIL " + "; ".join(bad) if bad else "ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
