"""Structures that the grade of the shipped water model is judged by, all labelled by its reference potential.

    python benchmarks/grade/water.py FOLDER [--jobs 1] [--only train]

train.xyz: the training structures of the recipe (models/recipes/water-nequip), frame for frame, without the 250 of the
model's own runs: those follow from a checkpoint that is not kept. hard.xyz: liquids of the reference at 300 to 2,000 K
and 1.0 g/cm^3, and at 1.6 g/cm^3. broken.xyz: frames at 300 K with one O-H bond of 1.6 to 2.2 A.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import write

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "models/recipes/water-nequip"))
from make_data import Run, dimers, monomers, rattled, runs, sample  # noqa: E402
from spcfw import Water, spacing  # noqa: E402

SEED = 31  # the recipe's
#: Temperature (K) and density (g/cm^3).
HARD = ((300, 1.0), (450, 1.0), (600, 1.0), (900, 1.0), (1200, 1.0), (1500, 1.0), (2000, 1.0), (300, 1.6), (600, 1.6))
FRAMES = 12


def training(jobs: int) -> list[Atoms]:
    """As make_data.py makes them."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(sample, [run for run in runs(SEED) if run.split == "train"]))
    frames = [frame for one in done for frame in one]
    rng = np.random.default_rng(SEED)
    frames += rattled(rng, frames[:1200], 100)
    return frames + dimers(rng, 260) + monomers(rng, 100)


def hard(jobs: int) -> list[Atoms]:
    """Frames 0.5 ps apart, after 15 ps."""
    todo = [
        Run("hard", "dense" if density > 1.3 else "liquid", 4, kelvin, density, FRAMES, 0.5, 900_000 + 1000 * k)
        for k, (kelvin, density) in enumerate(HARD)
    ]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return [frame for one in pool.map(sample, todo) for frame in one]


def broken(liquid: list[Atoms], count: int = 60) -> list[Atoms]:
    """info: oxygen and hydrogen, the pair that is pulled apart, and its length."""
    rng = np.random.default_rng(5)
    water = Water((4, 4, 4), spacing(1.0), 1)
    frames: list[Atoms] = []
    while len(frames) < count:
        frame = liquid[int(rng.integers(len(liquid)))].copy()
        oxygen = 3 * int(rng.integers(len(frame) // 3))
        hydrogen = oxygen + 1 + int(rng.integers(2))
        bond = frame.get_distance(oxygen, hydrogen, mic=True, vector=True)
        length = 1.6 + 0.6 * len(frames) / (count - 1)
        frame.positions[hydrogen] = frame.positions[oxygen] + bond * length / np.linalg.norm(bond)
        others = np.delete(np.arange(len(frame)), [oxygen, hydrogen])
        # Not into another molecule: such a pair is strange in another way.
        if frame.get_distances(hydrogen, others, mic=True).min() < 1.2:
            continue
        frame.info.update(kind="broken", oxygen=oxygen, hydrogen=hydrogen, length=round(length, 4))
        frames.append(water.label(frame))
    water.close()
    return frames


def make(folder: Path, jobs: int = 1, only: str = "") -> None:
    """Makes the files that are missing. only: "train", no other."""
    folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str, frames: list[Atoms]) -> None:
        write(folder / f"{name}.tmp", frames, format="extxyz")
        (folder / f"{name}.tmp").rename(folder / f"{name}.xyz")

    if only != "train" and not (folder / "broken.xyz").exists():
        frames = hard(jobs)
        keep("hard", frames)
        keep("broken", broken(frames[:FRAMES]))
    if not (folder / "train.xyz").exists():
        keep("train", training(jobs))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", choices=("", "train"), default="")
    args = parser.parse_args()
    make(args.folder, args.jobs, args.only)


if __name__ == "__main__":
    main()
