"""Loading a MACE model of 89 elements of which a few are in use: seconds, memory, tables.

    PYTHONPATH=<folder of mace-torch>:src/python python benchmarks/models/elements.py make MODEL.pt [--channels 128]
    PYTHONPATH=src/python python benchmarks/models/elements.py measure MODEL.pt [--json OUT]      with CLEBSCH_LIBRARY

make: random weights in the shape of the models trained on the Materials Project (density blocks, Agnesi transform, ZBL,
128x0e+128x1o, correlation 3, cutoff 6, float32). measure: every load in a process of its own, with all of torch there
before the clock starts; memory is what the process grew by, at most and afterwards, with one evaluation of 64 atoms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

#: What is in use, and the limits: seconds, memory in MB, the largest table of a layer in MB.
IN_USE = {"three elements": ("O", "Si", "Cu"), "two elements": ("O", "Si"), "one element": ("Si",)}
LIMITS = {"seconds": 5.0, "memory_mb": 200.0, "table_mb": 10.0}


def make(path: Path, channels: int) -> None:
    """Exports the random model, all 89 elements in it."""
    sys.path.insert(0, str(common.ROOT / "tests/parity"))
    import torch

    from clebsch import export
    from mace_cases import ALL_89, CASES, MPA, model_of

    CASES["elements-89-medium"] = {
        **MPA, "elements": ALL_89, "hidden": f"{channels}x0e+{channels}x1o", "max_ell": 3, "r_max": 6.0,
        "num_bessel": 10, "radial_MLP": [64, 64, 64], "mlp": "16x0e", "dtype": torch.float32,
    }  # fmt: skip
    export.mace(model_of("elements-89-medium"), path, verify=False)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def resident(key: str) -> float:
    """MB of /proc/self/status: VmRSS now, VmHWM at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1e3
    raise RuntimeError(f"/proc/self/status has no {key}")


def load(path: Path, elements: list[str]) -> dict:
    """One load and evaluation in this process."""
    import torch

    from clebsch import library
    from clebsch.probe import random_structure
    from clebsch.runtime import Model

    library.require()
    torch.set_num_threads(1)
    warm = torch.randn(256, 256)
    (warm @ warm).sum()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts from here
    before = resident("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    model = Model(path, types_in_use=elements)
    seconds, busy = time.perf_counter() - start, time.process_time() - cpu
    largest = resident("VmHWM") - before
    loaded = resident("VmRSS") - before
    probe = random_structure(len(elements), model.r_max, 0, 4)
    types = torch.tensor([model.type_names.index(e) for e in elements])[probe.types]
    energy = float(model.compute(probe.vectors, types, probe.receivers, probe.senders)["energy"])
    return {
        "seconds": seconds,
        "cpu_seconds": busy,
        "memory_mb": largest,
        "memory_loaded_mb": loaded,
        "memory_with_64_atoms_mb": resident("VmHWM") - before,
        "tables": [{k: t[k] for k in ("layer", "tables", "pieces", "bytes", "value_error")} for t in model.tables],
        "table_mb": max(t["bytes"] for t in model.tables) / 1e6,
        "energy": energy,
    }


def measure(path: Path, repeats: int) -> list[dict]:
    """Medians over fresh processes; processor time stands beside wall time, for machines that do other work."""
    rows = []
    for label, elements in IN_USE.items():
        command = [sys.executable, "-W", "ignore", __file__, "load", str(path), "--elements", *elements]
        runs = [json.loads(subprocess.check_output(command, text=True).splitlines()[-1]) for _ in range(repeats)]
        row = {"in_use": list(elements), "file_mb": path.stat().st_size / 1e6, "tables": runs[0]["tables"]}
        for key in ("seconds", "cpu_seconds", "memory_mb", "memory_loaded_mb", "memory_with_64_atoms_mb", "table_mb"):
            row[key] = statistics.median(run[key] for run in runs)
        row["within_limits"] = all(row[key] <= limit for key, limit in LIMITS.items())
        rows.append(row)
        tables = ", ".join(f"{t['tables']} x {t['pieces']}: {t['bytes'] / 1e6:.2f} MB" for t in row["tables"])
        print(
            f"{label}: {row['seconds']:.2f} s ({row['cpu_seconds']:.2f} s of processor time), memory "
            f"{row['memory_mb']:.0f} MB at most, {row['memory_loaded_mb']:.0f} MB loaded, "
            f"{row['memory_with_64_atoms_mb']:.0f} MB with a step of 64 atoms; tables {tables}",
            flush=True,
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("make", "measure", "load"))
    parser.add_argument("model", type=Path)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--elements", nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.action == "make":
        make(options.model, options.channels)
    elif options.action == "load":
        print(json.dumps(load(options.model, options.elements)))
    else:
        rows = measure(options.model, options.repeats)
        if options.json:
            common.save(options.json, common.about("cpu") | {"limits": LIMITS, "rows": rows})
        return 0 if all(row["within_limits"] for row in rows) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
