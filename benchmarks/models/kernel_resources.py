"""Registers, spills, shared memory and theoretical occupancy of the default plans, by compilation: no GPU is needed.

  kernel_resources.py [--arch 80,86,89,90,100,120] [--write] [--json FILE] [--report KERNEL_REPORT] [--threads N]

Kernels of the models in models/ (as `clebsch compile` makes them, fp32 and a fixed order) and of problems of the size
of MACE M and NequIP M (LISTED, as build/bin/kernel_report makes them). --write puts the table into
docs/developers/kernel_resources.md. Ends with status 1 when a kernel was refused, or spills more than `allowed` says.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

PAGE = common.ROOT / "docs/developers/kernel_resources.md"
ARCHITECTURES = {80: "A100", 86: "A40, RTX 30", 89: "L40, RTX 40", 90: "H100, H200", 100: "B200", 120: "RTX 50"}
#: What a step of dynamics of these models launches for an interaction and between interactions.
LISTED = [
    "mace-M interaction float",
    "mace-M interaction_backward x edge_vec float",
    "mace-M interaction_backward x edge_vec atomic float",
    "symmetric-mace-M symmetric_contraction float",
    "symmetric-mace-M symmetric_contraction_backward float",
    "node-mace-M linear wide float",
    "node-mace-M linear kept float",
    "node-mace-M linear narrow float",
    "nequip-M interaction float",
    "nequip-M interaction_backward x edge_vec float",
    "nequip-M interaction_backward x edge_vec atomic float",
    "node-nequip-M linear wide float",
    "node-nequip-M gate float",
    "allegro-l2 allegro_energy float",
]
#: Kernels whose source no model changes; one line for all models.
SHARED = ("edge_forces", "pair_repulsion", "allegro_energy_backward")
#: Small ones that are launched beside the kernel that a line names; they are counted, and not shown.
HELPERS = ("sum_parts", "sum_slab", "sum_by_sender", "quanta_to_numbers", "largest_number", "group_", "scan")


def of_models(archs: list[int], cache: str, threads: int) -> list[dict]:
    """One row a launched kernel, model and architecture: {"of", "kernel", "arch", "registers", ...}."""
    from clebsch.kernels import compile_file

    rows = []
    for path in sorted((common.ROOT / "models").glob("*.pt")):
        for kernel in compile_file(path, archs, cache=cache, threads=threads).kernels:
            rows += rows_of(path.stem, kernel["kernel"], kernel["arch"], kernel["error"], kernel.get("entries", []))
    return rows


def of_problems(archs: list[int], report: Path, cache: str) -> list[dict]:
    """The same of LISTED. kernel_report takes every core."""
    rows = []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.write("\n".join(LISTED) + "\n")
        names.flush()
        words = [str(report), "--arch", ",".join(map(str, archs)), "--list", names.name]
        done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"CLEBSCH_CACHE_DIR": cache})
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    for kernel in json.loads(done.stdout)["kernels"]:
        label, error = kernel["kernel"], kernel.get("refused", "")
        rows += rows_of(kernel["problem"], label, kernel["arch"], error, kernel.get("entries", []))
    return rows


def rows_of(of: str, kernel: str, arch: int, error: str, entries: list[dict]) -> list[dict]:
    if error:
        return [{"of": of, "kernel": kernel, "arch": arch, "error": error}]
    first = {"of": of, "kernel": kernel, "arch": arch, "error": ""}
    return [first | {"entry": entry.pop("name")} | entry for entry in map(dict, entries)]


def worst(rows: list[dict]) -> dict[str, dict[int, dict]]:
    """By line of the table and architecture the kernel that spills most, then has the least occupancy: a model has
    several problems of one op, and they share a line."""
    table: dict[str, dict[int, dict]] = {}
    for row in rows:
        entry, kernel = row.get("entry", ""), row["kernel"].removesuffix(" float")
        if entry.startswith(HELPERS):
            continue
        of = "every model" if kernel.startswith(SHARED) else row["of"]
        # An entry whose name says less than the op's is left out.
        name = f"{of}: {kernel}" + (f", `{entry}`" if kernel.startswith((*SHARED, "allegro_energy")) else "")
        of_arch = table.setdefault(name, {})
        old = of_arch.get(row["arch"])
        if old is None or badness(row) > badness(old):
            of_arch[row["arch"]] = row
    return table


def allowed(row: dict) -> int:
    """Bytes that a kernel may spill: any in fp64; squares of grades a few, for a third block a multiprocessor."""
    if row["kernel"].endswith("double"):
        return 1 << 30
    return 64 if row.get("entry", "").startswith("squares_") else 0


def badness(row: dict) -> tuple:
    return (bool(row["error"]), row.get("spill_bytes", 0), -(row.get("occupancy") or 1.0), row.get("registers", 0))


def cell(row: dict | None) -> str:
    if row is None:
        return ""
    if row["error"]:
        return "refused"
    spilled = f" **{row['spill_bytes']} B spilled**" if row["spill_bytes"] else ""
    held = f"{100 * row['occupancy']:.0f}%" if row["threads"] else "-"
    return f"{row['registers']} / {row['shared_bytes'] / 1024:.1f} / {held}{spilled}"


def page(rows: list[dict], archs: list[int], nvrtc: str, command: str) -> str:
    fp32 = [row for row in rows if not row["kernel"].endswith("double")]
    spilling = sum(row.get("spill_bytes", 0) > 0 for row in fp32)
    least = min(row["occupancy"] for row in fp32 if row.get("threads"))
    version = common.ROOT.joinpath("VERSION").read_text().strip()
    table = worst(rows)
    head = " | ".join(f"sm_{arch} ({ARCHITECTURES.get(arch, '')})" for arch in archs)
    lines = [
        "# Registers, shared memory and occupancy of the default plans",
        "",
        f"Written by `{command}`. Nothing here needs a GPU, and",
        "nothing here is a time: of these architectures only sm_90 has been measured. How plans are made:",
        "[kernels.md](kernels.md).",
        "",
        "Each cell: registers a thread / KB of shared memory a block / theoretical occupancy, that is the warps which",
        "a multiprocessor holds over those that it could (`src/cuda/plan/occupancy`). Several kernels of a model may",
        "share a line: it shows the one that spills most, then holds least. Spills are bytes of stores plus loads a",
        "thread. Small kernels beside these (sums of parts, counting, grouping) are counted, and not shown.",
        "Shared memory is with what launches ask for beside what kernels declare, of several the most.",
        "The test `CudaCompile` asks of a subset, in fp32 on sm_80, sm_90 and sm_120, that nothing spills and that at",
        "least 12.5% are held.",
        "",
        f"{len(rows)} kernels, those of each architecture counted; {spilling} in fp32 spill; least occupancy in fp32:",
        f"{100 * least:.1f}%. NVRTC {nvrtc}, {platform.system()} {platform.machine()} without a GPU,",
        f"Clebsch {version}, {datetime.date.today().isoformat()}.",
        "",
        f"| kernel | {head} |",
        "|---" * (len(archs) + 1) + "|",
    ]
    lines += [
        f"| {name} | " + " | ".join(cell(of_arch.get(arch)) for arch in archs) + " |" for name, of_arch in table.items()
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default=",".join(map(str, ARCHITECTURES)))
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(common.ROOT)}")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--report", type=Path, default=common.ROOT / "build/bin/kernel_report")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--cache", help="folder of compiled kernels (default: one for the run)")
    options = parser.parse_args()
    from clebsch.kernels import parse_architectures

    archs = parse_architectures(options.arch)
    with tempfile.TemporaryDirectory() as own:
        cache = options.cache or own
        rows = of_problems(archs, options.report, cache) + of_models(archs, cache, options.threads)
    import torch

    nvrtc = json.loads(torch.classes.clebsch.Model.kernel_compiler())["version"]
    text = page(rows, archs, nvrtc, "benchmarks/run kernel-resources -- --write")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.write:
        PAGE.write_text(text)
    print(text)
    bad = [r for r in rows if r["error"] or r["spill_bytes"] > allowed(r)]
    for row in bad:
        what = row["error"] or f"{row['spill_bytes']} B spilled in fp32"
        print(f"sm_{row['arch']} {row['of']} {row['kernel']} {row.get('entry', '')}: {what}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
