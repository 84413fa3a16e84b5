"""A shipped model at constant energy in LAMMPS for a long time: energy drift, growth of memory, averages.

    python3 benchmarks/md/long_run.py water-nequip OUT --ps 100 --seconds 220 [--style cuda]
    python3 benchmarks/md/long_run.py water-nequip OUT --style cpu --ps 40 --seconds 3000      here, without a GPU
    python3 benchmarks/md/long_run.py water-nequip OUT --beside CPU_RUN/water-nequip.json      averages of two devices
    python3 benchmarks/md/long_run.py water-nequip OUT --settle     the state that runs of water start: settled.data

float32 by default. Water: 192 atoms, 0.5 fs, from the positions and velocities of water192_settled.data (at rest, in
equilibrium under the NequIP model): runs of it have the same total energy, so averages over their different paths can
be compared. Water under the Allegro model and diamond (1728 atoms, 1 fs, 1500 K) settle first, which is not counted.
A run is stopped when time is up, and what it wrote until then is judged.

The drift is the slope of a straight line through the energy that velocity Verlet's method conserves (shadow_energy of
models/recipes/energy_drift.py), its error that of the means of ten blocks; beside it the same of the total energy,
which goes up and down with the forces. Memory is steady when the means of the second and of the last fifth of the
samples differ by at most 8 MB on the host and 2 MB on the device. The device's figure is that of the whole GPU, and
means something only when no other process uses it (--shared leaves it out).

OUT receives NAME.json, NAME_records.json (for benchmarks/record.py) and, in a folder of the run, memory.json after
every look at the log.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "models/recipes"), str(ROOT / "benchmarks/md")]
import engine  # noqa: E402
from energy_drift import BLOCKS, block_means, drift_record, energy_drift, shadow_energy  # noqa: E402

WATER = 'read_data "{data}"\nmass 1 15.999\nmass 2 1.008'
DIAMOND = """lattice diamond 3.585
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 12.011"""
WARM = """velocity all create {twice} {seed} mom yes
fix bath all langevin {temperature} {temperature} {damp} {seed}
thermo 1000
run {warm}
unfix bath
velocity all zero linear
run {settle}
reset_timestep 0 time 0.0
"""


@dataclass(frozen=True)
class Case:
    """What is run: fs, K; `warm` steps under a thermostat and `settle` without, when it does not start settled."""

    record: str
    elements: str
    system: str
    atoms: int
    timestep: float
    temperature: float
    warm: int = 0
    settle: int = 0
    doubled: bool = False  # starts on a lattice: half of the temperature becomes potential energy


CASES = {
    "water-nequip": Case("water", "O H", WATER, 192, 0.5, 300.0),
    "water-allegro": Case("allegro", "O H", WATER, 192, 0.5, 300.0, warm=4000, settle=8000),
    "carbon-mace": Case("carbon", "C", DIAMOND, 1728, 1.0, 1500.0, warm=2000, settle=10000, doubled=True),
}
INPUT = """plugin load "{plugin}"
units metal
atom_style atomic
{system}
pair_style clebsch {keywords} dtype {dtype} timing yes
pair_coeff * * "{model}" {elements}
neighbor 1.0 bin
neigh_modify {lists}
timestep {timestep}
fix motion all nve
{before}variable square atom (fx^2+fy^2+fz^2)/mass
compute square all reduce sum v_square
thermo_style custom step time temp press pe etotal c_square
thermo_modify norm no format float %.12g flush yes
thermo {thermo}
run {steps}
"""
SETTLED = ROOT / "benchmarks/md/water192_settled.data"
#: MB of growth that is not called a leak: host, device.
LIMITS = (8.0, 2.0)


def read_log(path: Path) -> dict[str, np.ndarray]:
    """Columns of the log's last table with the shadow energy's sum, also of a run that was stopped."""
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
    if "c_square" not in header:
        return {}
    return dict(zip(header, np.array(rows).reshape(-1, len(header)).T, strict=True))


def judge(log: Path, case: Case) -> dict[str, float]:
    """Drifts (meV an atom and ns) and averages with their standard errors; empty when there is too little."""
    table = read_log(log)
    if not table or len(table["Time"]) < 4 * BLOCKS:
        return {}
    energy = table["TotEng"] / case.atoms
    if not np.isfinite(energy).all():
        raise SystemExit(f"expected finite energies, got {energy[~np.isfinite(energy)][0]}: see {log}")
    shadow = shadow_energy(energy, table["c_square"] / case.atoms, case.timestep / 1000)
    report = {"ps": float(table["Time"][-1]), "steps": int(table["Step"][-1])}
    for name, values in (("total", energy), ("shadow", shadow)):
        report[f"{name}_drift"], report[f"{name}_drift_error"] = energy_drift(table["Time"], values)
        report[f"{name}_std_meV_atom"] = float(1000 * values.std())
    quantities = {
        "temperature_K": ("Temp", 1.0),
        "pressure_bar": ("Press", 1.0),
        "pe_meV_atom": ("PotEng", 1e3 / case.atoms),
    }
    for name, (column, scale) in quantities.items():
        means = block_means(table[column] * scale)
        report[name] = float(means.mean())
        report[name + "_error"] = float(means.std(ddof=1) / np.sqrt(BLOCKS))
    return report


def resident(pid: int) -> float:
    """MB of a process and of those that it started (PyPI's lmp is a script that starts one), or 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(resident(int(child)) for child in children)


def growth(samples: list[float]) -> float | None:
    """Mean of the last fifth less that of the second; None for too few samples."""
    fifth = len(samples) // 5
    if fifth < 2:
        return None
    return float(np.mean(samples[-fifth:]) - np.mean(samples[fifth : 2 * fifth]))


def thinned(samples: list[float]) -> list[float]:
    """At most 60 of them, for the eye."""
    return [round(value, 1) for value in samples[:: max(1, len(samples) // 60)]]


class Simulation:
    """A run of LAMMPS in a folder of its own, and samples of its memory once its counted steps have begun."""

    def __init__(self, args: argparse.Namespace, case: Case, style: engine.Style) -> None:
        self.folder = args.out / f"{args.model}_{args.style}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log.lammps"
        self.log.unlink(missing_ok=True)
        self.host: list[float] = []
        self.device: list[float] = []
        settle = Case(**vars(case) | {"warm": 10000, "settle": 10000}) if args.settle else case
        before = WARM.format(
            twice=(2 if case.doubled else 1) * case.temperature, temperature=case.temperature, seed=args.seed,
            warm=settle.warm, settle=settle.settle, damp=0.05 if not args.settle else 0.1,
        )  # fmt: skip
        text = INPUT.format(
            plugin=style.program.plugin, model=ROOT / f"models/{args.model}.pt", elements=case.elements,
            system=case.system.format(data=ROOT / "benchmarks/md/water192.data" if args.settle else SETTLED),
            keywords=style.keywords, dtype=args.dtype, timestep=case.timestep / 1000,
            before=before if settle.warm else "", thermo=args.thermo, steps=round(1000 * args.ps / case.timestep),
            lists=f"every {args.rebuild} delay 0 check no" if args.rebuild else "every 1 delay 0 check yes",
        )  # fmt: skip
        if args.settle:
            text = text.split("variable square")[0].replace("reset_timestep 0 time 0.0\n", "")
            text += f'write_data "{args.out / "settled.data"}" nocoeff\n'
        (self.folder / "in.nve").write_text(text)
        environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "OMP_PROC_BIND": "false"}
        with open(self.folder / "screen.txt", "w") as screen:
            self.process = subprocess.Popen(
                [style.program.lmp, *style.flags, "-in", "in.nve", "-log", "log.lammps"], cwd=self.folder,
                env=environment, stdout=screen, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def sample(self, with_device: bool) -> None:
        if resident_mb := resident(self.process.pid):
            self.host.append(resident_mb)
            if with_device and (device_mb := engine.device_memory()) is not None:
                self.device.append(device_mb)

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


def write(args: argparse.Namespace, case: Case, reports: dict[str, dict[str, float]]) -> None:
    (args.out / f"{args.model}.json").write_text(json.dumps(reports, indent=1) + "\n")
    found = reports.get(args.style)
    if not found:
        return
    import torch

    on_gpu = args.style != "cpu" and torch.cuda.is_available()
    name = f"nve_drift_{case.record}"
    records = [drift_record(name, found["shadow_drift"], found["shadow_drift_error"], args.dtype, on_gpu, reports)]
    total = abs(found["total_drift"]) + 2 * found["total_drift_error"]
    records.append(records[0] | {"name": f"{name}_total", "value": total, "spread": found["total_drift_error"]})
    for place in ("host", "device"):
        if (grown := found.get(f"{place}_growth_mb")) is not None:
            row = {"name": f"md_leak_{case.record}_{place}_mb", "value": grown, "unit": "MB", "spread": None}
            records.append(records[0] | row)
    (args.out / f"{args.model}_records.json").write_text(json.dumps(records, indent=1) + "\n")


def compare(reports: dict[str, dict[str, float]]) -> None:
    """One line an average: both values and how many of their standard errors they are apart."""
    (here, a), (there, b) = reports.items()
    for name in ("temperature_K", "pressure_bar", "pe_meV_atom"):
        error = float(np.hypot(a[name + "_error"], b[name + "_error"]))
        apart = (a[name] - b[name]) / max(error, 1e-12)
        print(f"{name}: {here} {a[name]:.3f}, {there} {b[name]:.3f}, {apart:+.1f} standard errors apart")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=CASES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--settle", action="store_true", help="make the state that runs of water start from")
    parser.add_argument("--ps", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=220.0)
    parser.add_argument("--style", default="cuda", choices=("cpu", "cuda", "kk"))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--thermo", type=int, default=20, help="steps between samples of the energy")
    parser.add_argument("--rebuild", type=int, default=0, help="new neighbour lists every so many steps, not when due")
    parser.add_argument("--drift", type=float, default=0.05, help="most, with two errors: meV an atom and ns")
    parser.add_argument("--shared", action="store_true", help="other processes use the GPU: its memory is not judged")
    parser.add_argument("--beside", type=Path, help="the JSON of another device's run, to compare averages with")
    parser.add_argument("--seed", type=int, default=4711)
    parser.add_argument("--lmp", default=os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    parser.add_argument("--lmp-kk", default=os.environ.get("CLEBSCH_KK_LMP", ""))
    parser.add_argument("--plugin-kk", default=os.environ.get("CLEBSCH_KK_PLUGIN", ""))
    args = parser.parse_args()
    if args.settle and args.model != "water-nequip":
        parser.error(f"--settle: expected water-nequip, whose state it makes, got {args.model}")
    args.out = args.out.resolve()  # LAMMPS runs in a folder of its own
    return args


def main() -> int:
    """Runs, and judges every ten seconds; status 1 when the run has failed, drifts or grows."""
    args = parsed()
    kokkos = engine.Program(args.lmp_kk, str(Path(args.plugin_kk).resolve())) if args.lmp_kk else None
    known = engine.styles(engine.Program(args.lmp, str(Path(args.plugin).resolve())), kokkos, args.threads)
    if args.style not in known:
        print(f"FAIL --style {args.style}: expected --lmp-kk or CLEBSCH_KK_LMP, got none")
        return 1
    case = CASES[args.model]
    beside = json.loads(args.beside.read_text()) if args.beside else {}
    end = time.monotonic() + args.seconds
    run = Simulation(args, case, known[args.style])
    reports: dict[str, dict[str, float]] = beside | {args.style: {}}

    def look() -> None:
        reports[args.style] = judge(run.log, case)
        if reports[args.style]:
            memory = {"host_growth_mb": growth(run.host), "device_growth_mb": growth(run.device)}
            reports[args.style] |= {name: value for name, value in memory.items() if value is not None}
            memory = {"host_mb": thinned(run.host), "device_mb": thinned(run.device)}
            (run.folder / "memory.json").write_text(json.dumps(memory) + "\n")
        write(args, case, reports)

    try:
        while run.process.poll() is None and time.monotonic() < end:
            time.sleep(min(2.0, args.seconds / 100))
            if args.settle:
                continue
            if read_log(run.log):  # the counted steps have begun
                run.sample(args.style != "cpu" and not args.shared)
            if len(run.host) % 5 == 0:
                look()
    finally:
        run.stop()
    if args.settle:
        print(run.failure())
        return 1 if run.failure() else 0
    look()
    found = reports[args.style]
    print(args.model, args.style, json.dumps({k: round(v, 5) for k, v in found.items()}), run.failure(), flush=True)
    bad = [run.failure()] if run.failure() else []
    if not found:
        bad.append("too few samples of the energy")
    else:
        if abs(found["shadow_drift"]) + 2 * found["shadow_drift_error"] > args.drift:
            bad.append(f"drift above {args.drift} meV/atom/ns")
        for place, limit in zip(("host", "device"), LIMITS, strict=True):
            if abs(found.get(f"{place}_growth_mb", 0.0)) > limit:
                bad.append(f"memory of the {place} is not steady to {limit} MB")
    if all(reports.values()) and len(reports) == 2:
        compare(reports)
    print("FAIL " + "; ".join(bad) if bad else "ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
