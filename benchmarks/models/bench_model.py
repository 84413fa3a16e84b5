"""Energy and forces of whole models of all families on a GPU: milliseconds a step, microseconds and bytes an atom.

python3 benchmarks/models/bench_model.py OUT.json [--models S M L] [--profile]     with CLEBSCH_LIBRARY

Each answer is first compared with a float64 run of the model on the same GPU, which the tests compare with the CPU; a
wrong one is not timed. "device" is the step on the GPU with the graph already there, as peers are timed with theirs;
"step" is Model.compute from sorted edges in host memory to forces in host memory. Medians of repeats; spread is the
middle half.
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
from common import quartiles  # noqa: E402
from model_cases import Structure, diamond, evaluate, load, model_path, save, water  # noqa: E402

REPEATS = 9


def relative_error(model: str, structure: Structure, forces: torch.Tensor) -> float:
    exact = evaluate(load(model, "cuda", "float64", cuda_graph=False), structure)["forces"]
    return float((forces - exact).square().mean().sqrt() / exact.square().mean().sqrt())


def time_one(name: str, label: str, structure: Structure, deterministic: bool) -> dict[str, object]:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model = load(name, "cuda", "float32", threads=torch.get_num_threads(), deterministic=deterministic)
    graph = structure.graph(model.r_max)
    start = time.perf_counter()
    forces = model.compute(*graph)["forces"]
    first = time.perf_counter() - start
    for _ in range(3):
        model.compute(*graph)
    steps, parts = [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        model.compute(*graph)
        steps.append(1e3 * (time.perf_counter() - start))
        parts.append(model.last_run)
    # The same from a neighbour list that reaches 1 A farther: positions up, edges found on the GPU, forces back.
    model.set_neighbours(structure.types, *structure.pairs(model.r_max + 1.0))
    points, from_points = structure.points(), []
    listed = model.compute_positions(*points)["forces"]
    for _ in range(3):
        model.compute_positions(*points)
    for _ in range(REPEATS):
        start = time.perf_counter()
        model.compute_positions(*points)
        from_points.append(1e3 * (time.perf_counter() - start))
    points_device = [model.time_device(max(2, min(50, int(200 / max(steps[0], 0.1))))) for _ in range(REPEATS)]
    scale = float(forces.square().mean().sqrt()) or 1.0
    listed_error = float((listed - forces).square().mean().sqrt()) / scale
    if not listed_error < 1e-5:
        raise RuntimeError(f"forces from positions differ by {listed_error:.1e}")
    model.compute(*graph)
    device = [model.time_device(max(2, min(50, int(200 / max(steps[0], 0.1))))) for _ in range(REPEATS)]
    memory = torch.cuda.max_memory_allocated() - before
    atoms = len(structure)
    device_ms, spread = quartiles(device)
    step_ms, step_spread = quartiles(steps)
    record = {
        "model": name, "structure": label, "deterministic": deterministic, "atoms": atoms, "edges": len(graph[0]),
        "device_ms": device_ms, "device_spread_ms": spread, "step_ms": step_ms, "step_spread_ms": step_spread,
        "points_step_ms": statistics.median(from_points), "points_device_ms": statistics.median(points_device),
        "points_error": listed_error,
        "device_us_atom": 1e3 * device_ms / atoms, "step_us_atom": 1e3 * step_ms / atoms,
        "kb_atom": memory / atoms / 1e3, "first_step_s": first,
        "replayed": parts[-1]["replayed"], "captures": parts[-1]["captures"],
    }  # fmt: skip
    for part in ("upload_ms", "compute_ms", "read_ms"):
        record[part] = statistics.median(p[part] for p in parts)
    del model
    torch.cuda.empty_cache()
    record["error"] = relative_error(name, structure, forces)
    print(
        f"{name:13s} {label:6s} {'det' if deterministic else 'atomic':6s} "
        f"{atoms:6d} atoms {record['edges']:8d} edges  device {device_ms:8.3f} +- {spread:.3f} "
        f"ms {record['device_us_atom']:7.3f} us/atom  step {step_ms:8.3f} ms (upload "
        f"{record['upload_ms']:.2f}, compute {record['compute_ms']:.2f}, read {record['read_ms']:.2f})  "
        f"{record['kb_atom']:.1f} kB/atom  first {first:.1f} s  replayed {record['replayed']}  "
        f"error {record.get('error', float('nan')):.1e}",
        flush=True,
    )
    return record


#: Names of benchmarks/targets.json: model, structure, unit.
NAMES = {
    "nequip_s_8000_us_atom": ("nequip-S", "8000", "us/atom"),
    "nequip_m_8000_us_atom": ("nequip-M", "8000", "us/atom"),
    "nequip_l_8000_us_atom": ("nequip-L", "8000", "us/atom"),
    "nequip_s_64_ms": ("nequip-S", "64", "ms"),
    "nequip_m_64_ms": ("nequip-M", "64", "ms"),
    "water_nequip_m_us_atom": ("nequip-M", "water", "us/atom"),
    "mace_m_8000_us_atom": ("mace-M", "8000", "us/atom"),
    "mace_m_8000_mb_atom": ("mace-M", "8000", "MB/atom"),
    "mace_m_1000_ms": ("mace-M", "1000", "ms"),
    "mace_m_64_ms": ("mace-M", "64", "ms"),
    "mace_s_8000_us_atom": ("mace-S", "8000", "us/atom"),
    "allegro_8000_us_atom": ("allegro-l2", "8000", "us/atom"),
    "allegro_8000_mb_atom": ("allegro-l2", "8000", "MB/atom"),
    "allegro_1000_ms": ("allegro-l2", "1000", "ms"),
    "allegro_64_ms": ("allegro-l2", "64", "ms"),
}


def named_records(records: list[dict]) -> list[dict]:
    """For benchmarks/record.py: the step on the device, with atomic sums as peers have them; `step` and
    `deterministic_value` say what it is from host memory to host memory and with sums in a fixed order."""
    named = []
    for name, (model, structure, unit) in NAMES.items():
        found = {r["deterministic"]: r for r in records if (r["model"], r["structure"]) == (model, structure)}
        if False not in found or True not in found:
            continue
        r, ordered = found[False], found[True]
        scale = 1e3 / r["atoms"] if unit == "us/atom" else 1.0
        memory = unit == "MB/atom"
        named.append(
            {
                "name": name,
                "value": r["kb_atom"] / 1e3 if memory else scale * r["device_ms"],
                "unit": unit,
                "spread": 0.0 if memory else scale * r["device_spread_ms"],
                "dtype": "float32",
                "deterministic": False,
                "error": r["error"],
                "peer": None,
                "deterministic_value": ordered["kb_atom"] / 1e3 if memory else scale * ordered["device_ms"],
                "step": scale * r["step_ms"],
                "points_step": scale * r["points_step_ms"],
                "points_device": scale * r["points_device_ms"],
                "kb_atom": r["kb_atom"],
                "atoms": r["atoms"],
                "edges": r["edges"],
                "machine": r["machine"],
                "torch": r["torch"],
                "driver": r["driver"],
                "commit": r["commit"],
                "date": r["date"],
                "command": r["command"],
            }
        )
    return named


def profile(name: str, label: str, structure: Structure) -> list[dict[str, object]]:
    """Kernels of one step that is not replayed, by their time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    model = load(name, "cuda", "float32", cuda_graph=False)
    graph = structure.graph(model.r_max)
    for _ in range(3):
        model.compute(*graph)
    with record(activities=[ProfilerActivity.CUDA]) as seen:
        model.time_device(4)
        torch.cuda.synchronize()
    rows = []
    for event in seen.key_averages():
        micro = getattr(event, "device_time_total", 0) or getattr(event, "cuda_time_total", 0)
        if micro > 0:
            rows.append({"kernel": event.key[:80], "calls": event.count / 5, "us": micro / 5})
    rows.sort(key=lambda r: -r["us"])
    total = sum(r["us"] for r in rows)
    calls = sum(r["calls"] for r in rows)
    print(f"-- {name} {label}: {total:.0f} us of kernels in {calls:.0f} launches", flush=True)
    for row in rows[:14]:
        share = 100 * row["us"] / total
        print(f"   {row['us']:9.1f} us {share:5.1f}% {row['calls']:6.1f} x {row['kernel']}", flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", nargs="*", default=["nequip-S", "nequip-M", "nequip-L"])
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(min(16, os.cpu_count() or 1))
    head = common.about() | {"cpu": common.cpu_name(), "threads": torch.get_num_threads()}
    print("#", json.dumps(head), flush=True)
    records: list[dict[str, object]] = []
    profiles: dict[str, object] = {}
    sizes = [("64", diamond(2)), ("1000", diamond(5)), ("8000", diamond(10))]
    for name in options.models:
        if not model_path(name).exists():
            print(f"{name}: no file {model_path(name)}", flush=True)
            continue
        cases = [*sizes, ("water", water(14))] if name != "water-nequip" else [("water", water(14))]
        for label, structure in cases:
            for deterministic in (True, False):
                try:
                    records.append(time_one(name, label, structure, deterministic) | head)
                except Exception as error:
                    print(f"FAIL {name} {label}: {type(error).__name__} {str(error)[:600]}", flush=True)
            save(options.out, records)
        if options.profile:
            for label, structure in (("64", diamond(2)), ("8000", diamond(10))):
                try:
                    profiles[f"{name} {label}"] = profile(name, label, structure)
                except Exception as error:
                    print(f"FAIL profile {name} {label}: {type(error).__name__} {str(error)[:300]}", flush=True)
    save(options.out.with_suffix(".records.json"), named_records(records))
    if profiles:
        options.out.with_suffix(".profile.json").write_text(json.dumps(profiles, indent=1) + "\n")
    return 0 if records else 1


if __name__ == "__main__":
    sys.exit(main())
