"""pair_style clebsch on a GPU, and clebsch/kk, against clebsch on the CPU: energy, forces, virials, also per atom.

    python3 tests/gpu/test_md.py OUT.json --styles cuda,kk --lmp LMP --plugin SO --lmp-kk LMP --plugin-kk SO

Each variant is an input that runs some steps of dynamics or none; its last frame is compared with the same input on the
CPU in float64. Limits: float64 1e-10 without dynamics, 1e-7 after some steps; float32 1e-5 (RMS, forces) and the like.
`--ranks 2` adds runs under the mpirun beside the Kokkos lmp. Without a GPU kk runs on threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench/md"))

import engine  # noqa: E402
import numpy as np  # noqa: E402

from cases import BASES, CASES, Case  # noqa: E402

FAILURES = (RuntimeError, OSError, KeyError, IndexError, ValueError, subprocess.SubprocessError)
PRESSURE = ("pxx", "pyy", "pzz", "pxy", "pxz", "pyz")
LJ = "lj/cut 4.0"


@dataclass(frozen=True)
class Variant:
    """What differs from a plain `run 0`. `extra` are words of pair_style hybrid/overlay beside clebsch."""

    name: str
    case: str
    box: str = ""
    extra: str = ""
    twice: bool = False
    run: str = "run 0"
    flags: tuple[str, ...] = ()
    keywords: str = ""
    copies: str = "1 1 1"

    @property
    def moves(self) -> bool:
        return "fix " in self.run


NVE = "velocity all create 300 7 mom yes\nfix motion all nve\nrun 20"
NPT = "velocity all create 300 7 mom yes\nfix motion all npt temp 300 300 0.05 aniso 0 0 0.5\nrun 20"
# A quarter more edges under one list: arrays have to grow in the middle of it.
SQUEEZE = (
    "neigh_modify every 100 delay 100 check no\n"
    "fix motion all deform 1 x scale 0.9 y scale 0.95 z scale 0.95 remap x\nrun 20"
)
VARIANTS = [
    Variant("water", "water"),
    Variant("carbon", "carbon"),
    Variant("nequip-M", "nequip-M"),
    Variant("mace-M", "mace-M"),
    Variant("nequip-M, water", "nequip-M-water"),
    Variant("allegro", "allegro"),
    Variant("radial exact", "water", keywords="radial exact"),
    Variant("more atoms", "carbon", copies="3 2 2"),
    Variant("triclinic", "water", box="change_box all triclinic\nchange_box all xy delta 1.5 xz delta -0.8 remap\n"),
    Variant("newton on", "water", flags=("-pk", "kokkos", "newton", "on", "neigh", "half")),
    Variant("hybrid with lj/cut", "carbon", extra=f"{LJ}|pair_coeff * * lj/cut 0.01 2.5", copies="2 2 2"),
    Variant("two models", "carbon", twice=True),
    Variant("run 0 three times", "water", run="run 0\nrun 0\nrun 0"),
    Variant("nve, water", "water", run=NVE),
    Variant("nve, carbon", "carbon", run=NVE, copies="2 2 1"),
    Variant("npt, water", "water", run=NPT),
    Variant("more edges, one list", "carbon", run=SQUEEZE, copies="3 3 2"),
]


def pair_of(variant: Variant, case: Case, style: engine.Style, dtype: str) -> str:
    words = f"clebsch {style.keywords} dtype {dtype} {variant.keywords}"
    if variant.twice:
        return (
            f"pair_style hybrid/overlay {words} {words}\n"
            f'pair_coeff * * clebsch 1 "{case.path}" {case.names}\n'
            f'pair_coeff * * clebsch 2 "{case.path}" {case.names}\n'
        )
    if variant.extra:
        added, coefficients = variant.extra.split("|")
        head = f"pair_style hybrid/overlay {words} {added}\n"
        return f'{head}pair_coeff * * clebsch "{case.path}" {case.names}\n{coefficients}\n'
    return f'pair_style {words}\npair_coeff * * "{case.path}" {case.names}\n'


def input_of(variant: Variant, case: Case, style: engine.Style, dtype: str) -> str:
    shown = "".join(f'print "RESULT {key} $({key}:%.16g)"\n' for key in ("pe", "vol", *PRESSURE))
    return f"""units metal
atom_style atomic
plugin load "{style.program.plugin}"
read_data base.data
replicate {variant.copies}
{variant.box}{pair_of(variant, case, style, dtype)}neighbor 1.0 bin
neigh_modify every 5 delay 0 check no
timestep 0.0002
compute e all pe/atom pair
compute s all stress/atom NULL pair
thermo_style custom step temp pe ke etotal vol {" ".join(PRESSURE)}
dump last all custom 20 last.dump id fx fy fz c_e c_s[*]
dump_modify last sort id format float %.15g
{variant.run}
{shown}"""


def run(variant: Variant, style: engine.Style, dtype: str, args, ranks: int = 1) -> dict[str, np.ndarray]:
    """What the last frame and the last thermo values say."""
    case = CASES[variant.case]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "base.data").write_text(BASES[case.base]().data())
        (folder / "in.md").write_text(input_of(variant, case, style, dtype))
        flags = [*style.flags, *(variant.flags if style.flags else ())]
        command = [style.program.lmp, *flags, "-in", "in.md", "-log", "log.md"]
        command = engine.launcher(style.program, ranks, args.mpirun) + command
        environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "OMP_PROC_BIND": "false"}
        environment |= engine.MPI_ENVIRONMENT
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=args.limit, env=environment)
        if done.returncode != 0:
            said = [line for line in done.stdout.splitlines() if "ERROR" in line] or done.stderr.splitlines()[-3:]
            raise RuntimeError(f"exit status {done.returncode}: {' '.join(said)[-500:]}")
        values = dict(line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("RESULT "))
        lines = (folder / "last.dump").read_text().splitlines()
        atoms = int(lines[3])
        table = np.array([[float(word) for word in line.split()] for line in lines[-atoms:]])
    return {
        "energy": np.array(float(values["pe"])) / atoms,
        "pressure": np.array([float(values[key]) for key in PRESSURE]),
        "forces": table[:, 1:4],
        "pe/atom": table[:, 4],
        "stress/atom": table[:, 5:11],
    }


def differences(mine: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> dict[str, float]:
    """RMS of the difference over RMS of the reference (energies: over at least 1 eV)."""
    found = {}
    for key, value in exact.items():
        floor = 1.0 if key in ("energy", "pe/atom") else 1e-12
        scale = max(float(np.sqrt((value**2).mean())), floor)
        found[key] = float(np.sqrt(((mine[key] - value) ** 2).mean())) / scale
    return found


def limit_of(variant: Variant, dtype: str, key: str) -> float:
    if dtype == "float64":
        return 1e-7 if variant.moves else 1e-10
    # Sums of terms of both signs: virials lose more digits than forces do.
    return (1e-4 if variant.moves else 1e-5) * (10 if key in ("pressure", "stress/atom") else 1)


def main() -> int:
    """Runs what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--styles", default="cuda,kk")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--only", help="variants whose name holds this")
    parser.add_argument("--ranks", type=int, default=1, help="as well as 1")
    parser.add_argument("--gpus", type=int, default=1, help="of kk: Kokkos gives each rank the next one")
    parser.add_argument("--every", action="store_true", help="every variant on --ranks, not only two of them")
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", "1")))
    parser.add_argument("--jobs", type=int, default=1, help="variants at a time")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for one run")
    parser.add_argument("--total", type=float, default=1e9, help="no new variant is begun after so many seconds")
    parser.add_argument("--lmp", default=os.environ.get("CLEBSCH_LMP", str(ROOT / ".venv/bin/lmp")))
    parser.add_argument("--plugin", default=os.environ.get("CLEBSCH_PLUGIN", str(ROOT / "build/lib/clebschplugin.so")))
    parser.add_argument("--lmp-kk", default=os.environ.get("CLEBSCH_KK_LMP", ""))
    parser.add_argument("--plugin-kk", default=os.environ.get("CLEBSCH_KK_PLUGIN", ""))
    parser.add_argument("--mpirun", default="", help="default: the one beside the Kokkos lmp, or in PATH")
    args = parser.parse_args()
    plain = engine.Program(args.lmp, args.plugin)
    kokkos = engine.Program(args.lmp_kk, args.plugin_kk) if args.lmp_kk else None
    known = engine.styles(plain, kokkos, args.threads)
    # Kokkos wants a launcher where there are several GPUs: one rank alone has one.
    together = engine.styles(plain, kokkos, args.threads, args.gpus)
    styles = [known[name] for name in args.styles.split(",") if name in known]
    left_out = [name for name in args.styles.split(",") if name not in known]
    if left_out:
        print(f"left out: {', '.join(left_out)} (no --lmp-kk)")
    start, results, lock = time.monotonic(), [], threading.Lock()
    failed: list[str] = []

    def judge(variant: Variant, style: engine.Style, dtype: str, exact: dict, ranks: int) -> None:
        begin, entry = time.monotonic(), {"variant": variant.name, "style": style.name, "dtype": dtype, "ranks": ranks}
        try:
            entry["error"] = differences(run(variant, style, dtype, args, ranks), exact)
            over = [k for k, v in entry["error"].items() if not v <= limit_of(variant, dtype, k)]
            text = ", ".join(f"{k} {v:.1e}" for k, v in entry["error"].items())
        except FAILURES as error:
            over, text = ["run"], f"{type(error).__name__} {str(error)[:700]}"
        entry |= {"ok": not over, "seconds": time.monotonic() - begin}
        word = "ok  " if not over else f"FAIL ({', '.join(over)})"
        with lock:
            print(
                f"{word} {variant.name:20s} {style.name:5s} {dtype} {ranks} rank{'s'[: ranks > 1]}: {text}", flush=True
            )
            failed.extend([variant.name] if over else [])
            results.append(entry)
            args.out.write_text(json.dumps(results, indent=1) + "\n")

    def compare(variant: Variant) -> None:
        if time.monotonic() - start > args.total:
            print(f"not run (no time): {variant.name}", flush=True)
            return
        if not CASES[variant.case].path.exists():
            print(f"not run: {variant.name}, no model file {CASES[variant.case].path}", flush=True)
            return
        try:
            exact = run(variant, known["cpu"], "float64", args)
        except FAILURES as error:
            print(f"FAIL {variant.name}: reference: {type(error).__name__} {str(error)[:700]}", flush=True)
            failed.append(variant.name)
            return
        for style in styles:
            for dtype in args.dtypes.split(","):
                judge(variant, style, dtype, exact, 1)
            if args.ranks > 1 and style.name == "kk" and (args.every or variant.name in ("water", "nve, carbon")):
                for dtype in args.dtypes.split(",") if args.every else ("float64",):
                    judge(variant, together[style.name], dtype, exact, args.ranks)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(compare, [v for v in VARIANTS if not args.only or args.only in v.name]))
    bad = len(failed)
    print(f"{len(results)} comparisons, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
