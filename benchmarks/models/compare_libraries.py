"""Two builds of libclebsch on one GPU, the same model files: ms of a replayed step from positions, and their ratio.

    python benchmarks/models/compare_libraries.py OLD/libclebsch.so NEW/libclebsch.so --models FOLDER

FOLDER holds the random models of `benchmarks/run models` (mace-M.pt, nequip-M.pt, allegro-l2.pt). A library runs in a
process of its own, twice, old and new by turns; medians of seven repeats, the better of the two runs. Times are shown
beside the energies: a new library whose energy differs by more than 1e-6 of the old one is an error and not timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASES = (
    ("MACE-M", "mace-M.pt", (10, 4, 2)),
    ("NequIP-M", "nequip-M.pt", (10,)),
    ("carbon", str(ROOT / "models/carbon-mace.pt"), (10,)),
    ("Allegro", "allegro-l2.pt", (10, 2)),
)


def one_library(library: str, models: Path, device: str) -> dict[str, tuple[float, float]]:
    """{case: (ms a step, energy in eV)}; cells of a case are cubes of diamond with 8 atoms."""
    import numpy as np
    import torch
    import vesin
    from ase.build import bulk

    torch.ops.load_library(library)
    model_class = torch.classes.clebsch.Model
    found = {}
    for name, file, sides in CASES:
        path = str(models / file)  # an absolute path stays as it is
        metadata = json.loads(model_class.inspect(path))
        for side in sides:
            atoms = bulk("C", "diamond", a=3.567, cubic=True) * (side, side, side)
            atoms.rattle(0.05, seed=1)
            types = torch.zeros(len(atoms), dtype=torch.int64)
            if "C" in metadata["type_names"]:
                types += metadata["type_names"].index("C")
            pairs = vesin.NeighborList(cutoff=metadata["r_max"] + 0.5, full_list=True).compute(
                points=atoms.positions, box=atoms.cell[:], periodic=True, quantities="ijS"
            )
            order = np.lexsort((pairs[1], pairs[0]))
            kinds = (np.int64, np.int64, np.int32)
            receivers, senders, shifts = (
                torch.from_numpy(np.ascontiguousarray(values[order].astype(kind)))
                for values, kind in zip(pairs, kinds, strict=True)
            )
            positions, cell = torch.from_numpy(atoms.positions), torch.from_numpy(atoms.cell[:].copy())
            for fixed in ("yes", "no"):
                model = model_class(path, {"device": device, "deterministic": fixed, "dtype": "float32"})
                model.set_neighbours(types, receivers, senders, shifts, len(atoms), len(atoms))
                for _ in range(4):
                    result = model.compute_positions(positions, cell, True, True, False, False, [])
                times = [model.time_device(10 if side > 4 else 30) for _ in range(7)]
                label = f"{name}, {len(atoms)} atoms, {'fixed order' if fixed == 'yes' else 'atomic'}"
                found[label] = (statistics.median(times), float(result["energy"]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="+", help="old and new libclebsch.so")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if len(options.libraries) == 1:  # this process is one of those below
        print(json.dumps(one_library(options.libraries[0], options.models, options.device)))
        return 0
    runs: list[list[dict]] = [[], []]
    for _ in range(2):
        for which, library in enumerate(options.libraries[:2]):
            command = [sys.executable, __file__, library, "--models", options.models, "--device", options.device]
            runs[which].append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    wrong = 0
    for case in runs[0][0]:
        old, new = (min(run[case][0] for run in side) for side in runs)
        before, after = (side[0][case][1] for side in runs)
        if abs(after - before) > 1e-6 * max(abs(before), 1.0):
            wrong += 1
            print(f"{case}: expected an energy of {before:.6f} eV, got {after:.6f}: not timed")
        else:
            print(f"{case:32s} {old:9.4f} -> {new:9.4f} ms   {new / old:.3f}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
