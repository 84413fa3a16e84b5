"""Makes the training, validation and test structures of the carbon model.

    python make_data.py --out data [--jobs 2] [--scale 1.0]

All are labelled by the reference potential (lcbop.py) and come from seeds alone:

- crystal: diamond, lonsdaleite, graphene, AB and AA graphite, cells strained by up to 8% in every component and atoms
  displaced at random;
- small: the crystals with strains of 0.1 to 2% and displacements of 0.004 to 0.06 A, since the reference's curvature
  changes fast there;
- layers: graphite with 2.6 to 6.5 A between the sheets, sheets shifted along each other;
- hot: Langevin runs of diamond and graphite at 100 to 3,000 K and several densities;
- defect: the same with a vacancy, a divacancy, an interstitial or a turned bond in the cell;
- amorphous: a liquid at 8,000 K, 2.0 to 3.5 g/cm^3, quenched within picoseconds to 300 K, frames all the way;
- relaxed: vacancies, divacancies, interstitials, pairs of both and turned bonds on their way to the reference's nearest
  minimum, and displaced about it;
- dense: small cells, where one atom in 7 to 33 is beside a defect, so that an energy per atom shows it;
- path: an atom pulled out of its site step by step, diamond cut along three planes and opened by up to 4 A: what leads
  from a perfect crystal to the defect or surface;
- cluster: two to five atoms in a large box, from 0.9 to 5.5 A apart.

`SHA256SUMS` names the frames that the shipped model was fitted to, `data_summary.json` describes them. Molecular
dynamics is chaotic: another build of LAMMPS gives other frames of the same distribution.
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
from ase.optimize import FIRE
from carbon import amorphous_start, cleaved, cluster, crystal, defects, pulled, strained
from lcbop import Dynamics, label, lcbop

#: Frames with larger forces (eV/A) than this are left out: nothing that a simulation at these temperatures meets.
LARGEST_FORCE = 60.0
#: Kinds whose energy lies in a few atoms. An error per atom makes little of it, and models trained without more weight
#: on it had vacancies 3.3 eV too low in the training data itself, every frame alike, with forces as good as elsewhere.
LOCAL = ("defect", "relaxed", "dense", "path")


@dataclass(frozen=True)
class Run:
    """One series of frames: molecular dynamics, or single structures."""

    split: str
    kind: str
    structure: str
    temperature: float  # K
    density: float  # relative to the structure's own; g/cm^3 for amorphous
    frames: int
    seed: int
    defect: str = ""


def runs(seed: int, scale: float) -> list[Run]:
    """All series; every one has a seed of its own. `scale` multiplies the number of frames."""
    todo: list[Run] = []

    def add(split: str, kind: str, structure: str, temperature: float, density: float, frames: int, defect: str = ""):
        count = max(1, round(frames * scale))
        number = seed + 1000 * len(todo)
        todo.append(Run(split, kind, structure, temperature, density, count, number, defect))

    for split, share in (("train", 1.0), ("valid", 0.1), ("test", 0.1)):
        for structure in ("diamond", "lonsdaleite", "graphene", "graphite-ab", "graphite-aa"):
            add(split, "crystal", structure, 0.0, 1.0, round(120 * share))
        for structure, frames in (("diamond", 250), ("graphite-ab", 100), ("lonsdaleite", 60), ("graphene", 40)):
            add(split, "small", structure, 0.0, 1.0, round(frames * share))
        for structure in ("graphite-ab", "graphite-aa"):
            add(split, "layers", structure, 0.0, 1.0, round(100 * share))
        for temperature in (100, 300, 1000, 2000, 3000):
            for density in (0.94, 1.0, 1.08):
                add(split, "hot", "diamond", temperature, density, round(30 * share))
            add(split, "hot", "graphite-ab", temperature, 1.0, round(30 * share))
        for defect in ("vacancy", "divacancy", "interstitial", "turned"):
            add(split, "defect", "diamond", 1500, 1.0, round(40 * share), defect)
            add(split, "defect", "graphite-ab", 1500, 1.0, round(40 * share), defect)
        for density in (2.0, 2.6, 3.0, 3.5):
            add(split, "amorphous", "liquid", 8000, density, round(80 * share))
        add(split, "cluster", "cluster", 0.0, 1.0, round(200 * share))
    # Behind all others: a series' seed follows from its place.
    for split, share in (("train", 1.0), ("valid", 0.1), ("test", 0.1)):
        for defect in ("vacancy", "divacancy", "interstitial", "turned", "frenkel"):
            for structure, frames in (("diamond", 60), ("graphite-ab", 30)):
                add(split, "relaxed", structure, 0.0, 1.0, round(frames * share), defect)
            add(split, "defect", "diamond", 300, 1.0, round(20 * share), defect)
        for defect, frames in (("vacancy", 120), ("interstitial", 60), ("divacancy", 40)):
            add(split, "dense", "diamond", 0.0, 1.0, round(frames * share), defect)
        for structure, frames in (("diamond", 150), ("graphite-ab", 60), ("cleaved", 150)):
            add(split, "path", structure, 0.0, 1.0, round(frames * share))
    return todo


def quench(run: Run, rng: np.random.Generator) -> list[Atoms]:
    """Frames of a melt that is cooled to 300 K: a third before, the rest while and after it is cooled."""
    dynamics = Dynamics(amorphous_start(rng, 64, run.density), run.temperature, run.seed)
    dynamics.run(4000)
    frames = []
    for k in range(run.frames):
        cooled = np.clip(1.5 - 1.5 * k / max(run.frames - 1, 1), 0.0, 1.0) if k > run.frames // 3 else 1.0
        dynamics.thermostat(300.0 + cooled * (run.temperature - 300.0))
        frames.append(dynamics.run(200))
    return frames


def thermal(run: Run, rng: np.random.Generator) -> list[Atoms]:
    """Frames of molecular dynamics of a crystal, with a defect if the run names one; a new defect every tenth frame."""
    frames: list[Atoms] = []
    while len(frames) < run.frames:
        atoms = crystal(run.structure, small=False)
        atoms.set_cell(atoms.cell * run.density ** (-1 / 3), scale_atoms=True)
        if run.defect:
            atoms = defects[run.defect](atoms, rng)
        dynamics = Dynamics(atoms, run.temperature, run.seed + len(frames))
        dynamics.run(600)
        frames += [dynamics.run(100) for _ in range(min(10, run.frames - len(frames)))]
    return frames


def relaxations(run: Run, rng: np.random.Generator) -> list[Atoms]:
    """Frames on the way from a fresh defect to the nearest minimum, then displaced about it; a new one every tenth."""
    frames: list[Atoms] = []
    while len(frames) < run.frames:
        atoms = defects[run.defect](crystal(run.structure, small=False), rng)
        atoms.positions += 0.02 * rng.normal(size=(len(atoms), 3))
        atoms.calc = lcbop()
        walk, some = FIRE(atoms, logfile=None), [atoms.copy()]
        for steps in (4, 8, 16, 60, 200):
            walk.run(fmax=0.01, steps=steps)
            some.append(atoms.copy())
        for amplitude in (0.01, 0.03, 0.06, 0.1):
            some.append(some[5].copy())
            some[-1].positions += amplitude * rng.normal(size=(len(atoms), 3))
        frames += some[: run.frames - len(frames)]
    return frames


def dense(run: Run, rng: np.random.Generator) -> Atoms:
    """A defect in a cell of 8 to 32 atoms."""
    size = ((1, 1, 1), (2, 1, 1), (2, 2, 1))[int(rng.integers(1 if run.defect == "divacancy" else 0, 3))]
    return defects[run.defect](strained(crystal(run.structure, small=True) * size, rng, 0.03), rng)


def path(run: Run, rng: np.random.Generator) -> Atoms:
    """A structure between a crystal and a defect or a pair of surfaces."""
    if run.structure == "cleaved":
        face = ((1, 0, 0), (1, 1, 0), (1, 1, 1))[int(rng.integers(3))]
        return cleaved(face, rng.uniform(), 4.0 * rng.uniform() ** 1.5)
    return pulled(crystal(run.structure, small=False), rng, rng.uniform(0.05, 1.0))


def still(run: Run, rng: np.random.Generator) -> list[Atoms]:
    """Structures that are made, not simulated."""
    if run.kind == "cluster":
        return [cluster(rng) for _ in range(run.frames)]
    frames = []
    for _ in range(run.frames):
        if run.kind in ("dense", "path"):
            frames.append(dense(run, rng) if run.kind == "dense" else path(run, rng))
            frames[-1].positions += 0.08 * rng.uniform() ** 2 * rng.normal(size=(len(frames[-1]), 3))
            continue
        atoms = crystal(run.structure, small=run.kind != "small" or rng.uniform() < 0.4)
        if run.kind == "small":
            atoms = strained(atoms, rng, np.exp(rng.uniform(np.log(0.001), np.log(0.02))))
            atoms.positions += np.exp(rng.uniform(np.log(0.004), np.log(0.06))) * rng.normal(size=(len(atoms), 3))
            frames.append(atoms)
            continue
        if run.kind == "layers":
            atoms = strained(atoms, rng, 0.02)
            cell = atoms.cell.array.copy()
            cell[2, 2] *= rng.uniform(2.6, 6.5) / 3.35
            cell[2, :2] += rng.uniform(-1.5, 1.5, 2)  # sheets above are shifted
            atoms.set_cell(cell, scale_atoms=True)
        else:
            atoms = strained(atoms, rng, 0.08 * rng.uniform())
        atoms.positions += 0.1 * rng.uniform() ** 2 * rng.normal(size=(len(atoms), 3))
        frames.append(atoms)
    return frames


def sample(run: Run) -> list[Atoms]:
    """The labelled frames of one series."""
    rng = np.random.default_rng(run.seed)
    maker = {"amorphous": quench, "hot": thermal, "defect": thermal, "relaxed": relaxations}.get(run.kind, still)
    calculator = lcbop()
    frames = [label(atoms, calculator, kind=run.kind, structure=run.structure) for atoms in maker(run, rng)]
    for frame in frames:
        # Upstream's names. An error counts by its share of the structure's forces, so that those of liquids do not hide
        # those of crystals.
        weight = 1.0 / (0.1 + np.sqrt((frame.get_forces() ** 2).mean()))
        frame.info["config_forces_weight"] = round(float(np.clip(weight, 0.15, 4.0)), 4)
        weight = float(np.clip(weight, 0.2, 2))
        local = max(1.0, len(frame) / 8) if run.kind in LOCAL else 1.0
        frame.info["config_stress_weight"] = round(weight, 4)
        frame.info["config_energy_weight"] = round(weight * local, 4)
    kept = [frame for frame in frames if np.abs(frame.get_forces()).max() < LARGEST_FORCE]
    print(f"{run}: {len(kept)} of {len(frames)}", flush=True)
    return kept


def summary(frames: list[Atoms]) -> dict:
    """Count, energy and force statistics by kind."""
    out = {}
    for kind in sorted({f.info["kind"] for f in frames}):
        some = [f for f in frames if f.info["kind"] == kind]
        e = np.array([f.get_potential_energy() / len(f) for f in some])
        f = np.concatenate([f.get_forces() for f in some])
        out[kind] = {
            "frames": len(some),
            "atoms": sum(len(f) for f in some),
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
    parser.add_argument("--seed", type=int, default=71)
    parser.add_argument("--jobs", type=int, default=1, help="series at a time")
    parser.add_argument("--scale", type=float, default=1.0, help="this many times the frames, for a trial")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    todo = runs(args.seed, args.scale)
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(sample, todo))
    split: dict[str, list[Atoms]] = {"train": [], "valid": [], "test": []}
    for run, frames in zip(todo, done, strict=True):
        split[run.split] += frames

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
