"""Ways of the kernels, the default among them, in one run: each compared with float64, then timed, kernel by kernel.

    python benchmarks/models/pace.py OUT.json [--variants NAME ...] [--cases NAME ...] [--seconds 140]

A variant is a choice of the variables CLEBSCH_CUDA_INTERACTION and CLEBSCH_CUDA_LINEAR (VARIANTS below). Times are
medians of replayed steps with the graph on the GPU; the reference of the forces is float64 on the CPU with tables so
fine that only the variant's own error is left (EXACT_PIECES). A variant whose forces are further from it than LIMIT is
an error and not timed. In a fixed order, two computations of the same forces must have the same bits. Needs
CLEBSCH_LIBRARY and the files mace-M.pt and nequip-M.pt of `benchmarks/run models` (CLEBSCH_GPU_MODELS). `--device cpu`
rehearses it without times where no GPU is.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402
from model_cases import diamond, model_path, save, water  # noqa: E402

from clebsch.runtime import Model  # noqa: E402

#: Name -> text of CLEBSCH_CUDA_INTERACTION, of CLEBSCH_CUDA_LINEAR, orders in which it differs from others.
VARIANTS = {
    "before": ("integers=0,horner=0,lanes=0,projection=0", "tensor=0", ("fixed", "atomic")),
    "integers": ("integers=1,horner=0,lanes=0,projection=0", "tensor=0", ("fixed",)),
    "tensor": ("integers=0,horner=0,lanes=0,projection=0", "tensor=1", ("fixed", "atomic")),
    "both": ("integers=1,horner=0,lanes=0,projection=0", "tensor=1", ("fixed",)),
    "horner": ("integers=1,horner=1,lanes=0,projection=0", "tensor=1", ("fixed", "atomic")),
    "lanes": ("integers=1,horner=1,lanes=1,projection=0", "tensor=1", ("fixed", "atomic")),
    "horner2": ("integers=1,horner=2,lanes=1,projection=0", "tensor=1", ("fixed", "atomic")),
    "tables": ("projection=0", "", ("fixed", "atomic")),
    "maps": ("", "tensor=0,few=0", ("fixed",)),
    "narrow": ("", "tensor=1,few=0", ("fixed",)),
    "few": ("", "few=8", ("fixed",)),
    "slabs": ("integers=0", "", ("fixed",)),
    "default": ("", "", ("fixed", "atomic")),
}
#: Variants of all cases but the first.
FEW = ("before", "both", "lanes", "tables", "maps", "narrow", "few", "slabs", "default")
#: Name -> model, cells of eight atoms along an edge (of water: molecules), variants, whether kernels are shown one by
#: one.
CASES = {
    "MACE-M 8000": ("mace-M", 10, tuple(VARIANTS), True),
    "NequIP-M 8000": ("nequip-M", 10, FEW, True),
    "MACE-M 64": ("mace-M", 2, FEW, False),
    "MACE-M 512": ("mace-M", 4, FEW, True),
    "carbon 8000": ("carbon-mace", 10, FEW, False),
    "carbon 64": ("carbon-mace", 2, FEW, False),
    "water 8232": ("water-nequip", 14, FEW, True),
    "Allegro 8000": ("allegro-l2", 10, ("default",), True),
}
#: Relative error of the forces beyond which nothing is timed.
LIMIT = 1e-5
#: Pieces of the reference's radial tables: five times as many have a thousandth of the usual tables' error.
EXACT_PIECES = 480
REPEATS = 7


def choose(variant: str) -> None:
    """Sets the variables for the models that are loaded from now on."""
    interaction, linear, _ = VARIANTS[variant]
    for name, text in (("CLEBSCH_CUDA_INTERACTION", interaction), ("CLEBSCH_CUDA_LINEAR", linear)):
        os.environ[name] = text


def errors(forces: torch.Tensor, reference: torch.Tensor) -> tuple[float, float]:
    """RMS and largest difference over the RMS of the reference."""
    size, difference = reference.square().mean().sqrt(), forces.double() - reference
    return float(difference.square().mean().sqrt() / size), float(difference.abs().max() / size)


def kernels(model: Model) -> list[dict]:
    """Microseconds of every launch of a step, in order, by kernel."""
    from torch.profiler import DeviceType, ProfilerActivity, profile

    repeats = 4
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        model.time_device(repeats)
        torch.cuda.synchronize()
    launches: dict[str, list[float]] = {}
    events = [event for event in seen.events() if event.device_type == DeviceType.CUDA]
    for event in sorted(events, key=lambda event: event.time_range.start):
        launches.setdefault(event.name[:60], []).append(event.time_range.elapsed_us())
    rows = []
    for name, times in launches.items():
        # time_device runs the step once more than it is told.
        steps = next((n for n in (repeats + 1, repeats) if len(times) % n == 0), 1)
        each = len(times) // steps
        mean = [statistics.median(times[place::each]) for place in range(each)]
        rows.append({"kernel": name, "us": sum(mean), "launches": mean})
    rows.sort(key=lambda row: -row["us"])
    return rows


def measure(
    model_file: Path, graph: tuple, variant: str, order: str, reference: torch.Tensor, options, by_kernel
) -> dict:
    """Error, then times and kernels of one variant."""
    choose(variant)
    gpu = options.device == "cuda"
    make = {"device": options.device, "dtype": "float32", "deterministic": order == "fixed"}
    start = time.perf_counter()
    model = Model(model_file, **make)
    result = model.compute(*graph)
    row = {"variant": variant, "order": order, "first_s": time.perf_counter() - start}
    row["error"], row["max_error"] = errors(result["forces"], reference)
    if not row["error"] <= LIMIT:
        return row | {"failed": f"forces differ from float64 by {row['error']:.1e}"}
    again = model.compute(*graph)["forces"]
    row["same_bits"] = bool(torch.equal(again, result["forces"]))
    if order == "fixed" and not row["same_bits"]:
        return row | {"failed": "two computations in a fixed order differ"}
    if not gpu:
        return row
    count = max(4, min(60, 200_000 // len(graph[1])))
    times = [model.time_device(count) for _ in range(REPEATS)]
    row["ms"], row["spread_ms"] = common.quartiles(times)
    del model
    if options.kernels and by_kernel:
        model = Model(model_file, cuda_graph=False, **make)
        for _ in range(2):
            model.compute(*graph)
        row["kernels"] = kernels(model)
    return row


def named(rows: list[dict]) -> list[dict]:
    """Rows of results/summary.json: the default's steps, in us an atom from thousands of atoms on, else in ms."""
    found = []
    for row in rows:
        if row["variant"] != "default" or "ms" not in row:
            continue
        large, fixed = row["atoms"] >= 1000, row["order"] == "fixed"
        scale = 1e3 / row["atoms"] if large else 1.0
        name = "pace_" + row["case"].lower().replace("-", "_").replace(" ", "_") + ("_det" if fixed else "")
        found.append({
            **row, "name": name + ("_us_atom" if large else "_ms"), "value": scale * row["ms"],
            "unit": "us/atom" if large else "ms", "spread": scale * row["spread_ms"], "dtype": "float32",
            "deterministic": fixed, "peer": None,
        })  # fmt: skip
    return found


def show_kernels(label: str, rows: list[dict]) -> None:
    print(f"-- {label}: {sum(row['us'] for row in rows):.0f} us of kernels", flush=True)
    for row in rows[:9]:
        parts = " ".join(f"{value:.0f}" for value in sorted(row["launches"], reverse=True)[:8])
        print(f"   {row['us']:8.0f} us {len(row['launches']):4d} x {row['kernel'][:34]:34s} {parts}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--orders", nargs="*", default=["fixed", "atomic"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cells", type=int, default=0, help="so many cells in every case, for a rehearsal")
    parser.add_argument("--kernels", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seconds", type=float, default=140.0, help="nothing is begun after so long")
    options = parser.parse_args()
    torch.set_num_threads(min(16, os.cpu_count() or 1))
    end = time.time() + options.seconds
    head = common.about(options.device)
    print("#", json.dumps(head), flush=True)
    records: list[dict] = []
    failed = 0
    for case in options.cases:
        name, cells, variants, by_kernel = CASES[case]
        path = model_path(name)
        if not path.exists():
            print(f"{case}: no file {path}")
            failed += 1
            continue
        structure = (water if case.startswith("water") else diamond)(options.cells or cells)
        choose("default")
        exact = Model(path, device="cpu", dtype="float64", threads=torch.get_num_threads(), table_pieces=EXACT_PIECES)
        graph = structure.graph(exact.r_max)
        reference = exact.compute(*graph)["forces"].double()
        del exact
        for order in options.orders:
            for variant in options.variants:
                if order not in VARIANTS[variant][2] or variant not in variants:
                    continue
                if time.time() > end:
                    print(f"{case}, {variant}, {order}: no time left")
                    failed += 1
                    continue
                row = measure(path, graph, variant, order, reference, options, by_kernel)
                row |= {"case": case, "atoms": len(structure), "edges": len(graph[0])} | head
                records.append(row)
                save(options.out, records)
                if "kernels" in row:
                    show_kernels(f"{case}, {variant}, {order}", row["kernels"])
                if "failed" in row:
                    failed += 1
    heads = ("ms", 8), ("spread", 7), ("us/atom", 8), ("error", 8), ("max", 8)
    print(f"{'case':14s} {'order':6s} {'variant':10s}", *(f"{name:>{width}s}" for name, width in heads), "first s")
    for row in records:
        ms = row.get("ms", float("nan"))
        line = f"{row['case']:14s} {row['order']:6s} {row['variant']:10s} {ms:8.3f} {row.get('spread_ms', 0):7.3f}"
        line += f" {1e3 * ms / row['atoms']:8.3f} {row['error']:8.1e} {row['max_error']:8.1e} {row['first_s']:5.1f}"
        print(f"{line}  {row.get('failed', '')}", flush=True)
    save(options.out.with_suffix(".records.json"), named(records))
    return 1 if failed or not records else 0


if __name__ == "__main__":
    sys.exit(main())
