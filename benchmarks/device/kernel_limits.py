"""What the most expensive kernels of a step wait for, by Nsight Compute, and how a recorded step fills its time.

    python benchmarks/device/kernel_limits.py OUT [--models mace-M nequip-M] [--cells 10 4] [--timeline 2] [--top 5]

Needs a GPU, ncu (where the machine lets it read hardware counters) and CLEBSCH_LIBRARY; models as of
benchmarks/models/pace.py. For each model and size (8 cells^3 atoms of diamond) one step that is not replayed runs under
ncu, its kernels are grouped by name, and the longest are shown. OUT gets limits.md, limits.json and ncu's own tables
(compressed). --timeline: cells of a system whose replayed step is listed launch by launch, with the gaps between.
ncu runs each kernel alone, several times, and by itself; times of a step are those of benchmarks/models/pace.py.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats", "WarpStateStats", "SchedulerStats")
#: Those of which one may be among the longest.
KERNELS = "regex:interaction_|node_linear|symmetric_|projection_|quanta|largest|sum_slab|allegro_"
#: Column of the table -> metric of ncu; the first that a version has counts.
METRICS = {
    "us": ("gpu__time_duration.sum",),
    "registers": ("launch__registers_per_thread",),
    "occupancy %": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "of at most %": ("sm__maximum_warps_per_active_cycle_pct",),
    "issue %": ("smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__issue_active.avg.pct",
                "smsp__issue_inst0.avg.pct_of_peak_sustained_active"),
    "SM %": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "L1 %": ("l1tex__throughput.avg.pct_of_peak_sustained_active",),
    "L2 %": ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    "DRAM %": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
               "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
}  # fmt: skip
STALL, STALL_END = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"


def model_of(name: str, cells: int, recorded: bool):
    """The model, which has computed the system once, and the system's graph."""
    from model_cases import diamond, model_path

    from clebsch.runtime import Model

    model = Model(model_path(name), device="cuda", dtype="float32", cuda_graph=recorded)
    graph = diamond(cells).graph(model.r_max)
    model.compute(*graph)
    return model, graph


def one_step(name: str, cells: int) -> None:
    """In a process that ncu runs: one step between the marks of the profiler."""
    import torch

    model, graph = model_of(name, cells, False)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    model.compute(*graph)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return float("nan")


def read_table(text: str) -> list[dict[str, str]]:
    """The launches of `ncu --csv --page raw`; times in microseconds."""
    lines = text.splitlines()
    first = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        raise RuntimeError("ncu printed no table: " + " ".join(text.split())[-400:])
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[first:]))))
    units, rows = rows[0], rows[1:]
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
    for row in rows:
        row["us"] = number(row["gpu__time_duration.sum"]) * scale.get(units["gpu__time_duration.sum"], float("nan"))
    return rows


def of_kernel(launches: list[dict[str, str]]) -> dict:
    """Figures of the launches of one kernel, weighted by their time."""
    total = sum(row["us"] for row in launches)

    def mean(column: str) -> float:
        return sum(number(row[column]) * row["us"] for row in launches) / total

    found = {"us": total, "launches": len(launches)}
    for name, candidates in METRICS.items():
        column = next((c for c in candidates if c in launches[0]), None)
        if name != "us" and column:
            found[name] = mean(column)
    stalls = {}
    for column in launches[0]:
        if column.startswith(STALL) and column.endswith(STALL_END) and "not_issued" not in column:
            stalls[column[len(STALL) : -len(STALL_END)]] = mean(column)
    found["stalls"] = dict(sorted(stalls.items(), key=lambda pair: -pair[1])[:4])
    return found


def profiled(name: str, cells: int, options: argparse.Namespace) -> dict:
    """Figures of the longest kernels of a step."""
    words = [shutil.which("ncu") or "/usr/local/cuda/bin/ncu", "--clock-control", "none", "--cache-control", "none",
             "--profile-from-start", "off"]  # fmt: skip
    for section in SECTIONS:
        words += ["--section", section]
    words += ["-k", KERNELS, "--csv", "--page", "raw", sys.executable, "-W", "ignore", __file__, "--step", name,
              str(cells), str(options.out)]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=options.seconds)
    label = f"{name}_{8 * cells**3}"
    with gzip.open(options.out / f"ncu_{label}.csv.gz", "wt") as file:
        file.write(done.stdout + "\n" + done.stderr)
    groups: dict[str, list[dict[str, str]]] = {}
    for row in read_table(done.stdout):
        grid = row.get("Grid Size", "") if not row["Kernel Name"].startswith("node_linear") else ""
        groups.setdefault(row["Kernel Name"].split("(")[0] + " " + grid, []).append(row)
    # Layers have kernels of the same name and grid, which differ in what they take.
    split: dict[str, list[dict[str, str]]] = {}
    for key, rows in groups.items():
        for row in rows:
            own = f"{key} {row.get('launch__registers_per_thread', '')}" if "interaction" in key else key
            split.setdefault(own, []).append(row)
    kernels = [{"kernel": key.split()[0]} | of_kernel(rows) for key, rows in split.items()]
    kernels.sort(key=lambda kernel: -kernel["us"])
    return {"model": name, "atoms": 8 * cells**3, "kernels": kernels[: options.top]}


def table_of(result: dict) -> str:
    """Markdown."""
    columns = [name for name in METRICS if name in result["kernels"][0]]
    lines = [
        f"{result['model']}, {result['atoms']} atoms, float32, fixed order:",
        "",
        "| kernel | launches | " + " | ".join(columns) + " | warps that wait, an issue |",
        "|" + "---|" * (len(columns) + 3),
    ]
    for kernel in result["kernels"]:
        figures = " | ".join(f"{kernel[name]:.0f}" for name in columns)
        stalls = ", ".join(f"{name} {value:.1f}" for name, value in kernel["stalls"].items())
        lines.append(f"| `{kernel['kernel']}` | {kernel['launches']} | {figures} | {stalls} |")
    return "\n".join(lines) + "\n"


def timeline(name: str, cells: int) -> dict:
    """The launches of one replayed step, in order: name, begin, length, gap before, microseconds."""
    from torch.profiler import DeviceType, ProfilerActivity, profile

    model, _ = model_of(name, cells, True)
    repeats = 8
    model.time_device(20)
    alone = [model.time_device(1) for _ in range(20)]
    queued = model.time_device(200)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        model.time_device(repeats)
    events = [event for event in seen.events() if event.device_type == DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    each = len(events) // (repeats + 1)
    last = events[-each:]
    launches, before = [], None
    for event in last:
        begin, end = event.time_range.start, event.time_range.end
        gap = 0.0 if before is None else begin - before
        launches.append({"kernel": event.name[:48], "begin": begin - last[0].time_range.start,
                         "us": end - begin, "gap": gap})  # fmt: skip
        before = end if before is None else max(before, end)
    work = sum(launch["us"] for launch in launches)
    return {"model": name, "atoms": 8 * cells**3, "launches": launches, "kernels_us": work,
            "gaps_us": sum(max(0.0, launch["gap"]) for launch in launches), "queued_ms": queued,
            "alone_ms": sorted(alone)[len(alone) // 2]}  # fmt: skip


def main() -> int:
    if sys.argv[1:2] == ["--step"]:
        one_step(sys.argv[2], int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", nargs="*", default=["mace-M"])
    parser.add_argument("--cells", nargs="*", type=int, default=[10, 4])
    parser.add_argument("--timeline", nargs="*", type=int, default=[2])
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=100.0, help="for one run under ncu")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict = {"head": common.about(), "limits": [], "timelines": []}
    text, failed = "", False
    for name in options.models:
        for cells in options.timeline:
            try:
                line = timeline(name, cells)
            except Exception as error:
                failed = True
                print(f"FAIL timeline {name} {cells}: {' '.join(str(error).split())[:400]}", flush=True)
                continue
            found["timelines"].append(line)
            print(
                f"{name}, {line['atoms']} atoms: {len(line['launches'])} launches, {line['kernels_us']:.1f} us of "
                f"work, {line['gaps_us']:.1f} us of gaps, a step {line['queued_ms']:.4f} ms in a queue, "
                f"{line['alone_ms']:.4f} ms alone",
                flush=True,
            )
            for launch in line["launches"]:
                print(f"  {launch['begin']:8.1f} {launch['us']:6.1f} gap {launch['gap']:5.1f} {launch['kernel']}")
        for cells in options.cells:
            try:
                result = profiled(name, cells, options)
            except Exception as error:
                failed = True
                print(f"FAIL ncu {name} {cells}: {' '.join(str(error).split())[:400]}", flush=True)
                continue
            found["limits"].append(result)
            text += table_of(result) + "\n"
            print(table_of(result), flush=True)
        common.save(options.out / "limits.json", found)
        (options.out / "limits.md").write_text(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
