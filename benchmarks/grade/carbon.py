"""Structures that the grade of the shipped carbon model is judged by, labelled by its reference potential.

    python benchmarks/grade/carbon.py FOLDER [--jobs 1]

carbon_train.xyz: a fifth of every series of the recipe (models/recipes/carbon-mace) but those of kind path, which the
shipped weights have not seen either; carbon_hard.xyz: a fifth of the series of kind path, atoms pulled out of their
sites and diamond cut and opened.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from ase import Atoms
from ase.io import read, write

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "models/recipes/carbon-mace"))
SEED, SCALE = 71, 0.2  # the recipe's seed; its share


def make(folder: Path, jobs: int = 1) -> tuple[list[Atoms], list[Atoms]]:
    """The two sets; makes the files that are missing."""
    files = folder / "carbon_train.xyz", folder / "carbon_hard.xyz"
    if not all(file.exists() for file in files):
        from make_data import runs, sample

        folder.mkdir(parents=True, exist_ok=True)
        todo = [run for run in runs(SEED, SCALE) if run.split == "train"]
        todo.sort(key=lambda run: run.kind == "path")
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            frames = [frame for one in pool.map(sample, todo) for frame in one]
        for file, wanted in zip(files, (False, True), strict=True):
            some = [frame for frame in frames if (frame.info["kind"] == "path") is wanted]
            write(file.with_suffix(".tmp"), some, format="extxyz")
            file.with_suffix(".tmp").rename(file)
    return tuple(read(file, ":") for file in files)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    print(*(len(frames) for frames in make(args.folder, args.jobs)))


if __name__ == "__main__":
    main()
