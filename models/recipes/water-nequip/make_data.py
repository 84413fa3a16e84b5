"""Makes the training, validation and test structures of the water model.

    python make_data.py --out data [--jobs 2]

All are labelled by the reference potential (spcfw.py) and come from seeds alone:

- liquid: 64 molecules at 300 to 600 K and 0.9 to 1.3 g/cm^3, each state a Langevin run of its
  own, frames 0.5 ps apart (training) or 1 ps apart (validation and test, runs of their own);
- hot: the same at 900 K, so that the tail of a 600 K run is inside the data;
- rattled: liquid frames with every atom displaced at random, which stretches bonds and brings
  molecules closer than thermal motion does;
- dimer: two distorted molecules at any orientation, O-O from 2.2 to 7.5 A;
- monomer: one molecule, O-H from 0.75 to 1.5 A, angle from 70 to 160 degrees;
- large: 125 molecules, for the test only.

Molecular dynamics is chaotic: another build of LAMMPS gives other frames of the same
distribution. `SHA256SUMS` names those that the shipped model was fitted to.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import read, write
from spcfw import Water, spacing

TEMPERATURES = (300, 400, 500, 600)  # K
DENSITIES = (0.9, 1.0, 1.1, 1.2, 1.3)  # g/cm^3
VACUUM = 30.0  # A, the periodic box of monomers and dimers: images are out of every cutoff


@dataclass(frozen=True)
class Run:
    """One molecular dynamics run and the frames to keep of it."""

    split: str
    kind: str
    side: int
    temperature: float
    density: float
    frames: int
    every: float  # ps
    seed: int


def runs(seed: int) -> list[Run]:
    """All molecular dynamics runs; every one has a seed of its own."""
    todo = []

    def add(*what):
        todo.append(Run(*what, seed=seed + 1000 * len(todo)))

    for t in TEMPERATURES:
        for d in DENSITIES:
            add("train", "liquid", 4, t, d, 60, 0.5)
            add("valid", "liquid", 4, t, d, 5, 1.0)
            add("test", "liquid", 4, t, d, 5, 1.0)
    for d in DENSITIES:
        add("train", "hot", 4, 900, d, 12, 0.5)
    add("test", "hot", 4, 900, 1.0, 5, 1.0)
    add("test", "large", 5, 300, 0.997, 10, 1.0)
    add("test", "large", 5, 600, 1.2, 10, 1.0)
    return todo


def sample(run: Run) -> list[Atoms]:
    """Runs one and returns its labelled frames."""
    water = Water((run.side,) * 3, spacing(run.density), run.seed)
    water.melt(run.temperature)
    frames = []
    for _ in range(run.frames):
        water.run(run.every)
        frame = water.atoms()
        frame.info.update(kind=run.kind, temperature=run.temperature, density=run.density)
        frames.append(frame)
    water.close()
    print(run, flush=True)
    return frames


def molecule(rng: np.random.Generator, r1: float, r2: float, angle: float) -> np.ndarray:
    """Positions (O H H) of a molecule of this geometry (A, degrees), turned at random about O."""
    t = np.radians(angle)
    x = np.array([[0, 0, 0], [r1, 0, 0], [r2 * np.cos(t), r2 * np.sin(t), 0]])
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    return x @ (q * np.sign(np.diag(r))).T


def monomers(rng: np.random.Generator, count: int) -> list[Atoms]:
    """Single molecules; half of them with one bond stretched alone."""
    water = Water((1, 1, 1), VACUUM, 1)
    frames = []
    for k in range(count):
        r1 = rng.uniform(0.75, 1.5) if k % 2 else rng.uniform(0.85, 1.3)
        r2 = rng.normal(1.02, 0.04) if k % 2 else rng.uniform(0.85, 1.3)
        x = molecule(rng, r1, r2, rng.uniform(70.0, 160.0)) + 0.5 * VACUUM
        frames.append(Atoms("OHH", x, cell=[VACUUM] * 3, pbc=True, info={"kind": "monomer"}))
    frames = [water.label(f) for f in frames]
    water.close()
    return frames


def dimers(rng: np.random.Generator, count: int) -> list[Atoms]:
    """Pairs of distorted molecules that keep a distance, up to 3 eV above two at rest."""
    water = Water((2, 1, 1), VACUUM, 1)
    frames = []
    while len(frames) < count:
        two = [molecule(rng, *np.clip(rng.normal(1.03, 0.05, 2), 0.85, 1.3), rng.normal(110.0, 8.0)) for _ in range(2)]
        way = rng.normal(size=3)
        # More of the close ones, where the interaction is
        distance = 2.2 + 5.3 * rng.uniform() ** 1.5
        x = np.vstack([two[0], two[1] + distance * way / np.linalg.norm(way)])
        between = np.linalg.norm(x[:3, None] - x[None, 3:], axis=-1)
        if between.min() < 1.1 or between[1:, 0].min() < 1.3 or between[0, 1:].min() < 1.3:
            continue
        frame = water.label(Atoms("OHHOHH", x + 0.4 * VACUUM, cell=[VACUUM] * 3, pbc=True, info={"kind": "dimer"}))
        if frame.get_potential_energy() < 3.0:
            frames.append(frame)
    water.close()
    return frames


def rattled(rng: np.random.Generator, liquid: list[Atoms], count: int) -> list[Atoms]:
    """Liquid frames with Gaussian displacements of 0.04 to 0.12 A."""
    water = Water((4, 4, 4), spacing(1.0), 1)
    frames = []
    for k in rng.choice(len(liquid), count, replace=False):
        frame = liquid[k].copy()
        frame.positions += rng.uniform(0.04, 0.12) * rng.normal(size=(len(frame), 3))
        frame.info["kind"] = "rattled"
        frames.append(water.label(frame))
    water.close()
    return frames


def summary(frames: list[Atoms]) -> dict:
    """Count, energy and force statistics by kind."""
    out = {}
    for kind in sorted({f.info["kind"] for f in frames}):
        some = [f for f in frames if f.info["kind"] == kind]
        e = np.array([f.get_potential_energy() / len(f) for f in some])
        f = np.concatenate([f.get_forces() for f in some])
        out[kind] = {
            "frames": len(some),
            "energy_per_atom_mean_eV": round(float(e.mean()), 5),
            "energy_per_atom_std_eV": round(float(e.std()), 5),
            "force_rms_eV_A": round(float(np.sqrt((f**2).mean())), 4),
            "force_max_eV_A": round(float(np.abs(f).max()), 3),
        }
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the .xyz files")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    todo = runs(args.seed)
    # One process a run: a fresh LAMMPS each
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(sample, todo))
    split: dict[str, list[Atoms]] = {"train": [], "valid": [], "test": []}
    for run, frames in zip(todo, done, strict=True):
        split[run.split] += frames

    rng = np.random.default_rng(args.seed)
    split["train"] += rattled(rng, split["train"][:1200], 100)
    split["train"] += dimers(rng, 260) + monomers(rng, 100)
    split["test"] += dimers(rng, 50) + monomers(rng, 40)

    sums, report = [], {}
    for name, frames in split.items():
        path = args.out / f"{name}.xyz"
        write(path, frames, format="extxyz")
        sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}.xyz")
        report[name] = summary(read(path, ":"))
    (args.out / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    (args.out / "summary.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
