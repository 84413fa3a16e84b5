"""Memory of LAMMPS over many steps with neighbour rebuilds: constant, or the run leaks.

    python3 benchmarks/md/leak_md.py OUT.json --style kk --case carbon --steps 100000 --seconds 90

Samples the process's resident memory twice a second, the GPU's use every two seconds. Steady is: after the first
fifth of the run, the means of the second and of the last fifth differ by at most 8 MB on the host and 2 MB on the
device. The device's is that of the whole GPU: it rises and falls with other processes, which also take time from this
one, so the run must have the GPU for itself; a fall beyond the limit is a failure too, as the figure then says
nothing. Also reports the drift of the total energy, in meV an atom and ns, and fails when it exceeds `--drift` by
more than three of its errors.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/md"), str(ROOT / "models")]

import engine  # noqa: E402
import numpy as np  # noqa: E402
from energy_drift import energy_drift  # noqa: E402

from cases import BASES, CASES  # noqa: E402

#: MB of growth that is not called a leak: host, device.
LIMITS = (8.0, 2.0)


def input_of(case, style, args) -> str:
    """Settling in first, which is not counted."""
    step = (case.timestep or 0.1) / 1000
    return f"""units metal
atom_style atomic
plugin load "{style.program.plugin}"
read_data base.data
pair_style clebsch {style.keywords} dtype {args.dtype}
pair_coeff * * "{case.path}" {case.names}
neighbor 1.0 bin
neigh_modify every {args.rebuild} delay 0 check no
timestep {step!r}
velocity all create 600 4928 mom yes dist gaussian
fix motion all nve
thermo 1000
thermo_style custom step time temp etotal
thermo_modify norm no format float %.12g
run {min(2000, args.steps)}
velocity all zero linear
timer timeout {args.seconds:.0f} every 100
thermo {max(1, min(100, args.steps // 50))}
run {args.steps}
"""


def resident(pid: int) -> float:
    """MB of a process, or 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def growth(samples: np.ndarray) -> float:
    """Mean of the last fifth less that of the second."""
    fifth = max(len(samples) // 5, 1)
    return float(samples[-fifth:].mean() - samples[fifth : 2 * fifth].mean()) if len(samples) > 5 else float("nan")


def main() -> int:
    """Runs it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--style", default="kk", choices=("cpu", "cuda", "kk"))
    parser.add_argument("--case", default="carbon", choices=CASES)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rebuild", type=int, default=10)
    parser.add_argument("--drift", type=float, default=1.0, help="meV an atom and ns")
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", "1")))
    parser.add_argument("--lmp", default=os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    parser.add_argument("--lmp-kk", default=os.environ.get("CLEBSCH_KK_LMP", ""))
    parser.add_argument("--plugin-kk", default=os.environ.get("CLEBSCH_KK_PLUGIN", ""))
    args = parser.parse_args()
    kokkos = engine.Program(args.lmp_kk, args.plugin_kk) if args.lmp_kk else None
    known = engine.styles(engine.Program(args.lmp, args.plugin), kokkos, args.threads)
    if args.style not in known:
        print(f"FAIL {args.style}: no --lmp-kk")
        return 1
    case, style = CASES[args.case], known[args.style]
    base = BASES[case.base]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "base.data").write_text(base.data())
        (folder / "in.md").write_text(input_of(case, style, args))
        command = [style.program.lmp, *style.flags, "-in", "in.md", "-log", "log.md", "-screen", "none"]
        environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "OMP_PROC_BIND": "false"}
        with open(folder / "errors", "w") as errors:
            process = subprocess.Popen(command, cwd=folder, stdout=errors, stderr=errors, env=environment)
            host, device, end = [], [], time.monotonic() + args.seconds + 90
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.5)
                host.append(resident(process.pid))
                if args.style != "cpu" and len(host) % 4 == 0:  # seldom: it slows the run down
                    device.append(engine.device_memory())
            process.kill()
            process.wait()
        log = (folder / "log.md").read_text() if (folder / "log.md").exists() else ""
        loops = engine.read_log(log)
        if len(loops) < 2:
            print(f"FAIL {args.style} {args.case}: {log[-300:]} {(folder / 'errors').read_text()[-600:]}")
            return 1
    last = loops[-1]
    time_ps = np.array([row["Time"] for row in last.thermo])
    energy = np.array([row["TotEng"] for row in last.thermo]) / len(base)
    drift, drift_error = energy_drift(time_ps, energy)
    rows = np.array([h for h in host if h > 0])
    on_device = np.array([d for d in device if d is not None])
    grown = (growth(rows[:-1]), growth(on_device[:-1]) if len(on_device) > 6 else None)
    bad = [g for g, limit in zip(grown, LIMITS, strict=True) if g is not None and not abs(g) <= limit]
    bad += [drift] if not abs(drift) <= args.drift + 3 * drift_error else []
    report = {
        "case": args.case, "style": args.style, "dtype": args.dtype, "atoms": len(base), "steps": last.steps,
        "rebuilds": last.builds, "seconds": last.seconds, "host_mb": float(rows.max()), "host_growth_mb": grown[0],
        "device_growth_mb": grown[1], "drift_meV_atom_ns": drift, "drift_error_meV_atom_ns": drift_error,
        "energy_std_meV_atom": float(1e3 * energy.std()),
        "ok": not bad,
    }  # fmt: skip
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print("ok  " if not bad else "FAIL", json.dumps(report))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
