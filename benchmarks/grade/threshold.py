"""A picture of the grades that the shipped NequIP water model gives: what a threshold would let pass.

    python benchmarks/grade/threshold.py FOLDER docs/images/grade_threshold.png

FOLDER: of `benchmarks/run grade`, with structures, features and forces.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from ase.io import read
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src/python")]
from clebsch.grade import fit  # noqa: E402

NAME = "water-nequip"
WRONG = 0.15  # eV/A


def above(axes: plt.Axes, grades: NDArray, label: str, **style: str) -> None:
    """The part of these atoms above a grade, against the grade."""
    ordered = np.sort(grades)
    axes.plot(ordered, 1 - np.arange(len(ordered)) / len(ordered), label=label, **style)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    known = np.load(args.folder / f"{NAME}-train.npz")
    made = fit(known["features"], known["types"], 2)
    grades = {}
    for sort in ("hard", "broken"):
        kept = np.load(args.folder / f"{NAME}-{sort}.npz")
        grades[sort] = made.of(kept["features"], kept["types"])
    frames = {sort: read(args.folder / f"{sort}.xyz", ":") for sort in ("hard", "broken")}
    forces = np.load(args.folder / f"{NAME}-hard-forces.npz")["forces"]
    error = np.linalg.norm(forces - np.concatenate([f.get_forces() for f in frames["hard"]]), axis=1)
    pairs = [k * len(f) + f.info[atom] for k, f in enumerate(frames["broken"]) for atom in ("oxygen", "hydrogen")]

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    above(left, made.of(known["features"], known["types"]), "training set", color="0.3")
    above(left, grades["hard"][error <= WRONG], f"force right within {WRONG} eV/$\\mathrm{{\\AA}}$", color="C0")
    above(left, grades["hard"][error > WRONG], "force wrong", color="C1")
    above(left, grades["broken"][pairs], "atoms of a broken bond", color="C3")
    left.set(xscale="log", yscale="log", xlim=(0.03, None), ylim=(1e-5, 1.5), xlabel="grade",
             ylabel="part of these atoms above it")  # fmt: skip
    edges = np.geomspace(0.05, grades["hard"].max(), 25)
    place = np.digitize(grades["hard"], edges)
    full = [k for k in range(1, len(edges)) if (place == k).sum() >= 20]
    middle = [np.sqrt(edges[k - 1] * edges[k]) for k in full]
    for part, color in ((0.5, "C0"), (0.9, "C1")):
        label = "median" if part == 0.5 else "one of ten is larger"
        right.plot(middle, [np.quantile(error[place == k], part) for k in full], "o-", ms=3, color=color, label=label)
    right.axhline(WRONG, color="0.7", lw=0.8)
    right.set(xscale="log", yscale="log", xlabel="grade", ylabel="force error, eV/$\\mathrm{\\AA}$",
              yticks=(0.02, 0.05, 0.1, 0.2, 0.5), yticklabels=("0.02", "0.05", "0.1", "0.2", "0.5"))  # fmt: skip
    right.minorticks_off()
    lines = {
        "99% of the training set below": (made.q99, "-."),
        "99.99%": (made.q9999, ":"),
        "all": (made.maximum, "--"),
    }
    for label, (value, style) in lines.items():
        left.axvline(value, color="0.3", ls=style, lw=1, label=label)
    right.axvline(made.q99, color="0.3", ls="-.", lw=1, label="99% of the training set below")
    left.legend(fontsize=6, loc="lower left", handlelength=1.5)
    right.legend(fontsize=7, loc="upper left")
    figure.savefig(args.out, dpi=150)


if __name__ == "__main__":
    main()
