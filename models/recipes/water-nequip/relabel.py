"""Labels frames of a model's own run with the reference and says how wrong the model was.

    python relabel.py OUT.xyz FRAMES.xyz [FRAMES.xyz ...] [--append data/train.xyz]

Frames with a force above --max-force (eV/A) under the reference are left out: beyond a broken
run's first wrong steps there is nothing to learn from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ase.io import read, write
from spcfw import Water, spacing


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("frames", type=Path, nargs="+")
    parser.add_argument("--append", type=Path, help="training set to add the frames to")
    parser.add_argument("--max-force", type=float, default=25.0)
    args = parser.parse_args()

    kept = []
    for path in args.frames:
        frames = read(path, ":")
        if not frames:
            continue
        water = Water((len(frames[0]) // 3, 1, 1), spacing(1.0), 1)
        squares, energies, largest = [], [], 0.0
        for frame in frames:
            labelled = water.label(frame)
            forces = labelled.get_forces()
            largest = max(largest, float(np.abs(forces).max()))
            if np.abs(forces).max() > args.max_force:
                continue
            squares.append(((frame.arrays["model_forces"] - forces) ** 2).mean())
            energies.append((frame.info["model_energy"] - labelled.get_potential_energy()) / len(frame))
            del labelled.info["model_energy"]
            kept.append(labelled)
        water.close()
        print(
            f"{path}: {len(squares)} of {len(frames)} kept, largest force {largest:.1f} eV/A, "
            f"model force RMSE {1000 * np.sqrt(np.mean(squares)):.1f} meV/A, "
            f"energy mean error {1000 * np.mean(energies):.2f}, "
            f"spread {1000 * np.std(energies):.2f} meV/atom",
            flush=True,
        )
    write(args.out, kept, format="extxyz")
    if args.append:
        write(args.append, kept, format="extxyz", append=True)


if __name__ == "__main__":
    main()
