"""What a grade that is read every step costs a step.

    python benchmarks/grade/overhead.py make FOLDER [NAME ...] [--grade squares]
                                            files: nequip-M, allegro-l2, mace-M (needs mace-torch); NAME-squares
    python benchmarks/grade/overhead.py measure FOLDER --device cuda --json out.json
                                            with --ways plain,behind behind: kernels and orders of before as well
    python benchmarks/grade/overhead.py timeline FOLDER                 what a GPU does in a step with and without
    python benchmarks/grade/overhead.py op FOLDER                       what the op alone takes on a GPU

Diamond of two elements, 8000 atoms on a GPU and 216 on a CPU, or of a file water... water, 9216 and 192 atoms; a step
of ASE's calculator (energies, forces, stress) of a file with a grade: nobody asks for it, or every step gives it. They
take turns in random order; the median of the differences in a turn is told, with its standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ase.build import bulk
from ase.io import read

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src/python")]
import common  # noqa: E402

NAMES = ("nequip-M", "allegro-l2", "mace-M")
STEPS = 120


def crystal(cells: int, symbols: str, seed: int = 0):
    """Diamond with displacements of 0.05 A; the elements take turns."""
    atoms = bulk("C", "diamond", a=3.57, cubic=True) * (cells, cells, cells)
    atoms.set_chemical_symbols([symbols[k % len(symbols)] for k in range(len(atoms))])
    atoms.rattle(0.05, seed=seed)
    return atoms


def elements_of(name: str) -> str:
    return "C" if name.startswith("mace-M") else "CO"


def system_of(name: str, cells: int):
    """Diamond, or of a water model as many copies of 192 atoms as there are in that."""
    if not name.startswith("water"):
        return crystal(cells, elements_of(name))
    start = ROOT / "benchmarks/md/water192_settled.data"
    box = read(start, format="lammps-data", atom_style="atomic", units="metal")
    return box * ((4, 4, 3) if cells == 10 else (1, 1, 1))


def make(folder: Path, names: list[str], grade: str) -> None:
    from clebsch import export

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        training = [crystal(2, elements_of(name), seed) for seed in range(8)]
        wanted = export.Extrapolation(training, grade)
        path = folder / f"{name}{'' if grade == 'leverage' else '-' + grade}.pt"
        if name == "mace-M":
            from bench_mace import model_of

            export.mace(model_of(name), path, verify=False, extrapolation=wanted)
            continue
        from make_models import set_global_state, upstream

        set_global_state(allow_tf32=False)
        write = export.allegro if name.startswith("allegro") else export.nequip
        write(upstream(name.removeprefix("nequip-")), path, verify=False, extrapolation=wanted)


def measure(path: Path, device: str, atoms, steps: int = STEPS, ways: Sequence[str] = ()) -> dict[str, Any]:
    """Medians of milliseconds a step without and with grades, of the differences in percent, and as `null` that of a
    second calculator that nobody asks for grades either: what is noise. The same of other values of CLEBSCH_GRADES."""
    from clebsch.ase import ClebschCalculator

    rng = np.random.default_rng(1)
    calculators = [ClebschCalculator(path, device, extrapolation=k == 1 or k > 2) for k in range(3 + len(ways))]
    settings = ["", "", "", *ways]
    count = len(calculators)
    times, parts = np.empty((count, steps)), np.zeros((count, steps, 3))
    for step in range(-10, steps):
        atoms.positions += 1e-4 * rng.normal(size=atoms.positions.shape)
        for which in rng.permutation(count):
            os.environ["CLEBSCH_GRADES"] = settings[which]
            begin = time.perf_counter()
            calculators[which].calculate(atoms, ["energy", "forces", "stress"])
            if step >= 0:
                times[which, step] = 1e3 * (time.perf_counter() - begin)
                said = calculators[which].model.last_run
                parts[which, step] = [said[key] for key in ("upload_ms", "compute_ms", "read_ms")]
    plain, graded = np.median(times[:2], axis=1)
    differences = 100 * (times - times[0]) / plain
    percent = np.median(differences, axis=1)
    # Of a median of normal numbers, from their quartiles.
    spread = 1.2533 / 1.349 * np.subtract(*np.quantile(differences, [0.75, 0.25], axis=1)) / np.sqrt(steps)
    replayed = device == "cpu" or all(calculator.model.last_run["replayed"] for calculator in calculators)
    others = {way: [float(percent[3 + k]), float(spread[3 + k])] for k, way in enumerate(ways)}
    return {"plain_ms": plain, "graded_ms": graded, "percent": float(percent[1]), "spread": float(spread[1]),
            "null_percent": float(percent[2]), "replayed": replayed, "ways": others,
            "parts_ms": np.median(parts, axis=1).tolist()}  # fmt: skip


def timeline(path: Path, atoms, steps: int = 10) -> None:
    """Prints kernels and copies of a step on a GPU whose times differ between steps without and with grades, in
    microseconds, and how long the GPU is at work. Both numbers are means over some steps, recorded ones."""
    import torch

    from clebsch.ase import ClebschCalculator

    seen: list[dict[str, float]] = []
    for graded in (False, True):
        calculator = ClebschCalculator(path, "cuda", extrapolation=graded)
        rng = np.random.default_rng(1)

        def step(calculator=calculator, rng=rng) -> None:
            atoms.positions += 1e-4 * rng.normal(size=atoms.positions.shape)
            calculator.calculate(atoms, ["energy", "forces", "stress"])

        for _ in range(10):
            step()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(steps):
                step()
        times: dict[str, float] = {}
        for event in profile.events():
            if event.device_type == torch.autograd.DeviceType.CUDA:
                times[event.name] = times.get(event.name, 0.0) + event.device_time / steps
        seen.append(times)
    plain, graded_times = seen
    rows = [(graded_times.get(k, 0.0) - plain.get(k, 0.0), k) for k in {*plain, *graded_times}]
    rows.sort(key=lambda row: -abs(row[0]))
    at_work = [sum(times.values()) for times in seen]
    print(f"{path.stem}: {len(atoms)} atoms, at work {at_work[0]:.1f} us a step, with grades {at_work[1]:.1f}")
    for difference, name in rows[:6]:
        print(
            f"  {difference:+9.1f} us  {plain.get(name, 0.0):9.1f} -> {graded_times.get(name, 0.0):9.1f}  {name[:70]}"
        )


def operation(rows: int = 8000, repeats: int = 50) -> None:
    """Prints what the op alone takes on a GPU, in microseconds, by grade and number of features."""
    import torch

    from clebsch import library

    library.load()
    random = np.random.default_rng(3)
    for width in (64, 128):
        x = torch.from_numpy(random.normal(size=(rows, width)).astype(np.float32)).cuda()
        types = torch.zeros(rows, dtype=torch.int32, device="cuda")
        counts = torch.ones(1, dtype=torch.float64, device="cuda")
        for grade in ("leverage", "maxvol", "squares"):
            shape = (1, 3 * width + 1, 2 * width + 1) if grade == "squares" else (1, width, width)
            transform = torch.from_numpy(random.normal(size=shape)).cuda()
            arguments = (x, types, transform, counts, 0, grade)
            for _ in range(3):
                torch.ops.clebsch.extrapolation(*arguments)
            graph, ends = torch.cuda.CUDAGraph(), [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            with torch.cuda.graph(graph):
                for _ in range(repeats):
                    torch.ops.clebsch.extrapolation(*arguments)
            graph.replay()
            ends[0].record()
            graph.replay()
            ends[1].record()
            torch.cuda.synchronize()
            print(f"{grade} of {width} features, {rows} rows: {1e3 * ends[0].elapsed_time(ends[1]) / repeats:.1f} us")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "measure", "timeline", "op"))
    parser.add_argument("folder", type=Path, help="of op: any")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=STEPS, help="that are measured")
    parser.add_argument("--grade", default="leverage", help="of the models that are made")
    parser.add_argument("--ways", nargs="*", default=[], help="values of CLEBSCH_GRADES to measure as well")
    parser.add_argument("--cells", type=int, help="of diamond, along each axis")
    parser.add_argument("--json", type=Path, default=Path("overhead.json"))
    args = parser.parse_args()
    if args.what == "make":
        make(args.folder, args.names or list(NAMES), args.grade)
        return
    if args.what == "op":
        operation()
        return
    records = []
    present = [path.stem for name in NAMES for path in sorted(args.folder.glob(f"{name}*.pt"))]
    for name in args.names or present:
        cells = args.cells or (10 if args.what == "timeline" or args.device.startswith("cuda") else 3)
        path, atoms = args.folder / f"{name}.pt", system_of(name, cells)
        if args.what == "timeline":
            timeline(path, atoms)
            continue
        found = measure(path, args.device, atoms, args.steps, args.ways)
        found_text = (
            f"{found['plain_ms']:.3f} ms a step, {found['graded_ms']:.3f} with grades, {found['percent']:+.2f}%"
            f" +- {found['spread']:.2f}"
        )
        within = f"(noise: {found['null_percent']:+.2f}%{'' if found['replayed'] else ', not as recorded graphs'})"
        print(f"{name}: {len(atoms)} atoms, {found_text} {within}", flush=True)
        for way, (percent, spread) in found["ways"].items():
            print(f"  CLEBSCH_GRADES={way}: {percent:+.2f}% +- {spread:.2f}")
        for which, parts in zip(("without", "with"), found["parts_ms"], strict=False):
            print(f"  {which}: upload {parts[0]:.3f}, compute {parts[1]:.3f}, read {parts[2]:.3f} ms")
        kind = args.device.split(":")[0]
        record = {
            "name": f"grade_overhead_{name.replace('-', '_').lower()}_{kind}_percent",
            "value": float(found["percent"]),
        }
        record |= {"unit": "%", "spread": found["spread"], "dtype": "float32", "deterministic": True, "error": None}
        records.append({**found, **record, "peer": None, **common.about(args.device)})
        common.save(args.json, records)


if __name__ == "__main__":
    main()
