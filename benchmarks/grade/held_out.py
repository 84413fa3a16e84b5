"""How many training atoms a grade needs: structures of the training set's own kind that are above its maximum.

    python benchmarks/grade/held_out.py FOLDER --json out.json

FOLDER: of `benchmarks/run grade`, for the features of the shipped NequIP water model's training set
(water-nequip-train.npz). Its 1,200 liquids of 192 atoms are divided at random: some make a grade, 400 others are
judged by it. Were the grades of these distributed as the training set's, one of m + 1 would have the largest.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src/python")]
import common  # noqa: E402

from clebsch.grade import fit  # noqa: E402

LIQUIDS, ATOMS, JUDGED = 1200, 192, 400
COUNTS = (8, 15, 30, 60, 120, 300, 600)


def row(features: NDArray, types: NDArray, grade: str, count: int, repeats: int, seed: int = 0) -> dict:
    """Means over some divisions: of 400 structures the part above the maximum and twice the maximum of `count` others;
    and the largest grade, over that maximum."""
    rng, found = np.random.default_rng(seed), []
    width = features.shape[-1]
    for _ in range(repeats):
        mixed = rng.permutation(LIQUIDS)
        mine, others = mixed[:count], mixed[count : count + JUDGED]
        made = fit(features[mine].reshape(-1, width), types[mine].ravel(), 2, grade)
        grades = made.of(features[others].reshape(-1, width), types[others].ravel()).reshape(len(others), -1)
        most = grades.max(axis=1) / made.maximum
        found.append([grades.mean(), (most > 1).mean(), (most > 2).mean(), most.max()])
    mean, above, twice, largest = np.mean(found, axis=0)
    columns = 1 + 2 * width if grade == "squares" else width
    return {"grade": grade, "structures": count, "atoms_a_feature": count * ATOMS / columns, "mean": mean,
            "above": above, "above_twice": twice, "largest": largest, "expected": 1 / (count + 1)}  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--json", type=Path, default=Path("held_out.json"))
    args = parser.parse_args()
    kept = np.load(args.folder / "water-nequip-train.npz")
    atoms = LIQUIDS * ATOMS
    features, types = (kept[k][:atoms].reshape(LIQUIDS, ATOMS, *kept[k].shape[1:]) for k in ("features", "types"))
    rows = []
    for count in COUNTS:
        for grade in ("leverage", "squares"):
            rows.append(row(features, types, grade, count, args.repeats))
            print({key: v if isinstance(v, str) else round(float(v), 4) for key, v in rows[-1].items()}, flush=True)
    common.save(args.json, {"rows": rows, **common.about("cpu")})


if __name__ == "__main__":
    main()
