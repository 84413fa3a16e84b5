"""What a grade that is read every step costs a step.

    python benchmarks/grade/overhead.py make FOLDER [NAME ...]    files: nequip-M, allegro-l2, mace-M (needs mace-torch)
    python benchmarks/grade/overhead.py measure FOLDER --device cuda --json out.json

Diamond of two elements, 8000 atoms on a GPU and 216 on a CPU, a step of ASE's calculator (energies, forces, stress) of
a file with a grade: nobody asks for it, or every step gives it. Both take turns in random order; medians are compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from ase.build import bulk

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


def make(folder: Path, names: list[str]) -> None:
    from clebsch import export

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        wanted = export.Extrapolation([crystal(2, "C" if name == "mace-M" else "CO", seed) for seed in range(8)])
        if name == "mace-M":
            from bench_mace import model_of

            export.mace(model_of(name), folder / f"{name}.pt", verify=False, extrapolation=wanted)
            continue
        from make_models import set_global_state, upstream

        set_global_state(allow_tf32=False)
        write = export.allegro if name.startswith("allegro") else export.nequip
        write(upstream(name.removeprefix("nequip-")), folder / f"{name}.pt", verify=False, extrapolation=wanted)


def measure(path: Path, device: str, atoms) -> dict[str, float]:
    """Medians of milliseconds a step without and with grades, their difference in percent, and as `null` that of a
    second calculator that nobody asks for grades either: what is noise."""
    from clebsch.ase import ClebschCalculator

    rng = np.random.default_rng(1)
    calculators = [ClebschCalculator(path, device, extrapolation=graded) for graded in (False, True, False)]
    times = np.empty((3, STEPS))
    for step in range(-10, STEPS):
        atoms.positions += 1e-4 * rng.normal(size=atoms.positions.shape)
        for which in rng.permutation(3):
            begin = time.perf_counter()
            calculators[which].calculate(atoms, ["energy", "forces", "stress"])
            if step >= 0:
                times[which, step] = 1e3 * (time.perf_counter() - begin)
    plain, graded, again = np.median(times, axis=1)
    spread = 100 * np.subtract(*np.quantile(times[1], [0.75, 0.25])) / plain / np.sqrt(STEPS)
    return {"plain_ms": plain, "graded_ms": graded, "percent": 100 * (graded / plain - 1), "spread": spread,
            "null_percent": 100 * (again / plain - 1)}  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cells", type=int, help="of diamond, along each axis")
    parser.add_argument("--json", type=Path, default=Path("overhead.json"))
    args = parser.parse_args()
    if args.what == "make":
        make(args.folder, args.names or list(NAMES))
        return
    records = []
    for name in args.names or [name for name in NAMES if (args.folder / f"{name}.pt").exists()]:
        cells = args.cells or (10 if args.device.startswith("cuda") else 3)
        found = measure(args.folder / f"{name}.pt", args.device, crystal(cells, "C" if name == "mace-M" else "CO"))
        found_text = (
            f"{found['plain_ms']:.3f} ms a step, {found['graded_ms']:.3f} with grades, {found['percent']:+.2f}%"
        )
        within = f"(noise: {found['null_percent']:+.2f}%)"
        print(f"{name}: {8 * cells**3} atoms, {found_text} {within}", flush=True)
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
