"""A pool of labelled water boxes, and what is chosen of it: the data of retraining.py.

    python benchmarks/grade/pool.py make FOLDER [--jobs 2]          reference runs, a minute or two of two cores
    python benchmarks/grade/pool.py choose FOLDER [--model MODEL.pt] features of the pool, and all choices
    python benchmarks/grade/pool.py pack FOLDER OUT.npz              structures and choices that retraining.py reads

Boxes of eight molecules under the reference potential (models/recipes/water-nequip/spcfw.py), frames 0.2 ps apart. The
pool has 4,000: 90% at 300 to 600 K, the rest at 900 to 2,000 K and at 1.6 g/cm^3. "old" stands for what the shipped
weights were trained on: 200 boxes of 0.9 to 1.3 g/cm^3 and 300 to 600 K. "hard" and "easy" (300 K) judge.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "models/recipes/water-nequip"), str(ROOT / "src/python")]

SIDE = 2  # molecules along an edge
EVERY = 0.2  # ps
COUNT, SEEDS = 200, 3
#: Temperature (K) and density (g/cm^3).
EASY = ((300, 1.0), (450, 1.0), (600, 1.0))
HARD = ((900, 1.0), (1500, 1.0), (2000, 1.0), (600, 1.6))
OLD = tuple((kelvin, density) for kelvin in (300, 600) for density in (0.9, 1.0, 1.1, 1.2, 1.3))
#: What is made: states, frames of each, seed of the first.
PARTS = {
    "pool": ((*EASY, *HARD), (1200,) * 3 + (100,) * 4, 1000),
    "old": (OLD, (20,) * 10, 5000),
    "hard": (HARD, (40,) * 4, 3000),
    "easy": (EASY[:1], (60,), 4000),
}
METHODS = ("doptimal", "volume", "leverage", "fps")
#: What is known when a choice is made: the training set of the model file, the old structures, or the pool itself.
KNOWN = ("file", "old", "pool")


def run(todo: tuple[int, float, int, int]) -> dict[str, NDArray]:
    """Frames of one state: positions (S, N, 3), box (S,), forces, and energies an atom of the reference."""
    from spcfw import Water, spacing

    kelvin, density, frames, seed = todo
    water = Water((SIDE,) * 3, spacing(density), seed)
    water.melt(kelvin)
    found = []
    for _ in range(frames):
        water.run(EVERY)
        found.append(water.atoms())
    water.close()
    return {
        "positions": np.array([f.positions for f in found], dtype=np.float32),
        "box": np.array([f.cell.lengths()[0] for f in found]),
        "forces": np.array([f.get_forces() for f in found], dtype=np.float32),
        "energies": np.array([f.get_potential_energy() / len(f) for f in found]),
    }


def make(folder: Path, jobs: int) -> None:
    """folder/NAME.npz of every part that is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (states, frames, seed) in PARTS.items():
        if (folder / f"{name}.npz").exists():
            continue
        todo = [(*state, count, seed + k) for k, (state, count) in enumerate(zip(states, frames, strict=True))]
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
            made = list(workers.map(run, todo))
        np.savez(folder / f"{name}.npz", **{key: np.concatenate([one[key] for one in made]) for key in made[0]})
        print(name, sum(frames), flush=True)


def structures(part: dict[str, NDArray]) -> list[Atoms]:
    return [Atoms("OHH" * (len(x) // 3), x.astype(float), cell=[a] * 3, pbc=True)
            for x, a in zip(part["positions"], part["box"], strict=True)]  # fmt: skip


def choose(folder: Path, model: Path) -> None:
    """folder/choices.npz: indices into the pool, in the order of choice, as KNOWN-METHOD_SEED and random_SEED."""
    from clebsch.features import atom_features
    from clebsch.sampling.selection import select
    from clebsch.selecting import _known

    features = {}
    for name in ("pool", "old"):
        boxes, kept = structures(dict(np.load(folder / f"{name}.npz"))), folder / f"features-{name}.npy"
        if not kept.exists():
            np.save(kept, atom_features(boxes, model)[0])
        features[name] = np.load(kept)
    covariances = {name: (f.T @ f / len(f), float(len(f))) for name, f in features.items()}
    covariances["file"] = _known(model, None, "cpu", lambda *_: None)
    size, atoms = np.load(folder / "pool.npz")["positions"].shape[:2]
    groups = np.repeat(np.arange(size), atoms)
    choices = {f"random_{seed}": np.random.default_rng(seed).choice(size, COUNT, replace=False)
               for seed in range(SEEDS)}  # fmt: skip
    for known in KNOWN:
        for method in METHODS:
            for seed in range(SEEDS):
                # These two have no chance in them.
                again = method in ("doptimal", "fps") and seed > 0
                choices[f"{known}-{method}_{seed}"] = choices[f"{known}-{method}_0"] if again else select(
                    features["pool"], COUNT, method, groups=groups, known=covariances[known], seed=seed)  # fmt: skip
    np.savez(folder / "choices.npz", **choices)
    easy = PARTS["pool"][1][0] * len(EASY)
    for name, picked in choices.items():
        states = np.where(picked < easy, picked // PARTS["pool"][1][0], 3 + (picked - easy) // PARTS["pool"][1][3])
        print(f"{name:18s} of each state: {np.bincount(states, minlength=7).tolist()}", flush=True)


def pack(folder: Path, out: Path) -> None:
    """One file: the structures that a choice has, renumbered, and the other parts."""
    choices = dict(np.load(folder / "choices.npz"))
    used, place = np.unique(np.concatenate(list(choices.values())), return_inverse=True)
    ends = np.cumsum([len(c) for c in choices.values()])[:-1]
    packed = {f"choice/{n}": p.astype(np.int32) for n, p in zip(choices, np.split(place, ends), strict=True)}
    for name in PARTS:
        part = dict(np.load(folder / f"{name}.npz"))
        packed |= {f"{name}/{key}": values[used] if name == "pool" else values for key, values in part.items()}
    np.savez_compressed(out, **packed)
    print(f"{out}: {len(used)} structures of the pool, {out.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "choose", "pack"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("retraining.npz"))
    parser.add_argument("--model", type=Path, default=ROOT / "models/water-nequip.pt")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.what == "make":
        make(args.folder, args.jobs)
    elif args.what == "choose":
        choose(args.folder, args.model)
    else:
        pack(args.folder, args.out)


if __name__ == "__main__":
    main()
