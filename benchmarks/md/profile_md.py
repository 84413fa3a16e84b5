"""What one step of molecular dynamics puts on the GPU: launches, copies, and the time in which nothing runs.

    python3 benchmarks/md/profile_md.py OUT.json --lammps liblammps.so --plugin clebschkkplugin.so --atoms 512,8000

Runs LAMMPS as a library in this process, so that torch's profiler sees its kernels as well as the model's. Steps
without a neighbour rebuild and with some are counted apart. For a Kokkos LAMMPS; `--style cuda` shows `clebsch device
cuda` instead. Without a GPU it runs and counts nothing. Under mpirun each rank writes OUT with its number before the
ending (step_parts.py compares those with one GPU's).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/md"))

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from cases import BASES, CASES, replication  # noqa: E402

#: Steps between two neighbour lists.
REBUILD = 20


class Lammps:
    """The few functions of LAMMPS's library interface that are needed."""

    def __init__(self, library: str, flags: list[str]) -> None:
        self.lib = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self.lib.lammps_open_no_mpi.restype = ctypes.c_void_p
        words = ["lmp", "-log", "none", "-screen", "none", *flags]
        arguments = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        self.handle = ctypes.c_void_p(self.lib.lammps_open_no_mpi(len(words), arguments, None))

    def __call__(self, text: str) -> None:
        self.lib.lammps_commands_string(self.handle, text.encode())

    def close(self) -> None:
        """Also ends what LAMMPS has started: Kokkos after Python's torch has ended CUDA would be too late."""
        self.lib.lammps_close(self.handle)
        for name in ("lammps_kokkos_finalize",):
            function = getattr(self.lib, name, None)
            if function is not None:
                function()


def set_up(case, atoms: int, args, folder: Path) -> str:
    base = BASES[case.base]()
    data = folder / "base.data"
    data.write_text(base.data())
    keyword = "device cuda" if args.style == "cuda" else ""
    keyword += f" comm {args.comm}" if rank_here()[1] > 1 else ""
    copies = " ".join(map(str, replication(len(base), atoms)))
    return f"""units metal
atom_style atomic
plugin load "{args.plugin}"
read_data "{data}"
replicate {copies}
pair_style clebsch {keyword} dtype float32
pair_coeff * * "{case.path}" {case.names}
neighbor 1.0 bin
neigh_modify every {REBUILD} delay 0 check no
velocity all create 300 1 mom yes
timestep 0.0001
fix motion all nve
thermo 100000
run {2 * REBUILD + 1}
"""


def rank_here() -> tuple[int, int]:
    """(rank, ranks) under mpirun, else (0, 1). MPICH tells a process its place on the node under a name of its own."""
    if "MPI_LOCALRANKID" in os.environ:
        os.environ.setdefault("PMI_LOCAL_RANK", os.environ["MPI_LOCALRANKID"])
    return int(os.environ.get("PMI_RANK", 0)), int(os.environ.get("PMI_SIZE", 1))


def covered(spans: list[tuple[float, float, str]]) -> float:
    """Microseconds in which at least one of them runs."""
    busy, end = 0.0, float("-inf")
    for start, stop, _ in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return busy


def idle(spans: list[tuple[float, float, str]]) -> dict[str, float]:
    """Microseconds in which nothing runs, by what has ended last and what begins next."""
    sums: dict[str, float] = {}
    end, last = spans[0][1], spans[0][2]
    for start, stop, name in spans[1:]:
        if start > end:
            place = f"{last[:60]} > {name[:60]}"
            sums[place] = sums.get(place, 0.0) + start - end
        if stop > end:
            end, last = stop, name
    return sums


def summary(events: list, steps: int) -> dict:
    """Counts a step, microseconds a step, and the time between the first and the last event in which nothing ran."""
    spans = sorted((e.time_range.start, e.time_range.end, e.name) for e in events)
    if not spans:
        return {"steps": steps, "events": 0}
    busy, whole = covered(spans), max(stop for _, stop, _ in spans) - spans[0][0]
    copies = [s for s in spans if "Memcpy" in s[2]]
    kernels = [s for s in spans if "Memcpy" not in s[2] and "Memset" not in s[2]]
    times: dict[str, list[float]] = {}
    for start, stop, name in spans:
        times.setdefault(name[:200], []).append(stop - start)
    largest = sorted(times.items(), key=lambda item: -sum(item[1]))[:25]
    return {
        "steps": steps,
        "kernels_a_step": len(kernels) / steps,
        "copies_to_host_a_step": sum("DtoH" in s[2] for s in copies) / steps,
        "copies_to_device_a_step": sum("HtoD" in s[2] for s in copies) / steps,
        "copies_a_step": len(copies) / steps,
        "whole_us": whole / steps,
        "busy_us": busy / steps,
        "gaps_us": (whole - busy) / steps,
        "side_by_side_us": (sum(stop - start for start, stop, _ in spans) - busy) / steps,
        "exchanges_us": [stop - start for start, stop, name in spans if "nccl" in name.lower()],
        "all": {name: sum(t) / steps for name, t in times.items()},
        "calls": {name: len(t) / steps for name, t in times.items()},
        "idle": {place: us / steps for place, us in idle(spans).items()},
        "timeline": [
            [round(start - spans[0][0], 2), round(stop - start, 2), name[:80]]
            for start, stop, name in spans
            if start < spans[0][0] + 2 * whole / steps
        ],
        "largest": [{"name": name[:90], "calls": len(t) / steps, "us": sum(t) / steps} for name, t in largest],
    }


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lammps", required=True, help="liblammps.so, its own libraries in LD_LIBRARY_PATH")
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--case", default="mace-M", choices=CASES)
    parser.add_argument("--style", default="kk", choices=("kk", "cuda"))
    parser.add_argument("--atoms", default="512,8000")
    parser.add_argument("--comm", default="halo", help="of several ranks")
    parser.add_argument("--steady", type=int, default=15, help="steps without a new list")
    parser.add_argument("--steps", type=int, default=60, help="steps with some; 0: none")
    args = parser.parse_args()
    gpu, (rank, ranks) = torch.cuda.is_available(), rank_here()
    if gpu:  # which LAMMPS takes as well
        torch.cuda.set_device(rank % torch.cuda.device_count())
    out = args.out if ranks == 1 else args.out.with_suffix(f".{rank}{args.out.suffix}")
    target = ["g", str(min(ranks, torch.cuda.device_count()))] if gpu else ["t", "1"]
    flags = [] if args.style == "cuda" else ["-k", "on", *target, "-sf", "kk"]
    lammps = Lammps(args.lammps, flags)
    report = {}
    for atoms in map(int, args.atoms.split(",")):
        with tempfile.TemporaryDirectory() as name:
            lammps("clear\n" + set_up(CASES[args.case], atoms, args, Path(name)))
            for label, steps in (("steady", args.steady), ("with rebuilds", args.steps)):
                if steps == 0:
                    continue
                begin = time.perf_counter()
                lammps(f"run {steps} pre no post no")
                if gpu:
                    torch.cuda.synchronize()
                clock = 1e6 * (time.perf_counter() - begin) / steps
                lammps(f"run {-steps % REBUILD} pre no post no")  # lists are then as old as before
                activities = [ProfilerActivity.CUDA] if gpu else [ProfilerActivity.CPU]
                with profile(activities=activities) as seen:
                    lammps(f"run {steps} pre no post no")
                    if gpu:
                        torch.cuda.synchronize()
                events = [e for e in seen.events() or [] if gpu and "CUDA" in str(e.device_type)]
                found = summary(events, steps)
                found["clock_us"] = clock  # of as many steps before, which nobody looked at
                report[f"{args.case} {args.style} {atoms} {label}"] = found
                if rank > 0:
                    continue
                shown = {k: round(v, 2) for k, v in found.items() if not isinstance(v, list | dict)}
                print(f"{args.case} {args.style} {atoms} atoms, {label}: {shown}", flush=True)
                for row in found.get("largest", [])[:14]:
                    print(f"   {row['us']:9.2f} us {row['calls']:6.2f} x {row['name']}", flush=True)
        out.write_text(json.dumps(report, indent=1) + "\n")
    lammps.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
