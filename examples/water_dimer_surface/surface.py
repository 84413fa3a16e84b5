"""The energy surface of a rigid water dimer as a sum of products, fitted from a model's energies on demand.

  python surface.py [--model MODEL] [--rank 64] [--samples 2048] [--rounds 8] [--device cpu] [--out OUT]

Six coordinates (the distance of the oxygen atoms, the dihedral angle, two angles of either molecule) of twelve points
each: 2,985,984 energies, of which clebsch.sampling.cp_als asks for those of the rows that it draws. A batch of dimers
is one graph: they stand so far apart that they do not see each other. Energies above the cap are bent towards it, and
exp(-V / T) weighs the entries, since the wells are what a vibrational calculation is about.

Prints, after every round, the entries asked for and the RMS error on grid points that the fit was not told about, those
below the window; writes OUT/surface.json and OUT/surface.png.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from ase import Atoms

from clebsch import model_path
from clebsch.ase import ClebschCalculator
from clebsch.sampling import CpTensor, cp_als

POINTS = 12
PER_CM = 1.0 / 1.239841984e-4  # cm^-1 in an eV
OH, HOH = 0.9572, math.radians(104.52)
SPACING = 16.0  # Angstrom between dimers of a batch, far above the model's cutoff


def grids() -> list[np.ndarray]:
    """Distance (Angstrom), dihedral; polar and own angle of the first, of the second molecule."""
    half = np.arange(POINTS) + 0.5
    # A polar angle by Gauss's points of its cosine; a molecule is its own mirror image after half a turn.
    polar = np.arccos(-np.polynomial.legendre.leggauss(POINTS)[0])
    distance = 2.5 + 2.5 * (np.arange(POINTS) / (POINTS - 1)) ** 1.3
    return [distance, 2 * np.pi * half / POINTS, polar, np.pi * half / POINTS, polar, np.pi * half / POINTS]


def molecules(dihedral: np.ndarray, polar: np.ndarray, own: np.ndarray) -> np.ndarray:
    """(count, 3, 3) O, H, H with the oxygen atom at the origin: turned about its own axis, tilted, turned about z."""
    x, z = OH * math.sin(HOH / 2), OH * math.cos(HOH / 2)
    body = np.array([[0.0, 0.0, 0.0], [x, 0.0, z], [-x, 0.0, z]])

    def about_z(angle: np.ndarray) -> np.ndarray:
        c, s, o, i = np.cos(angle), np.sin(angle), np.zeros_like(angle), np.ones_like(angle)
        return np.stack([np.stack([c, -s, o], -1), np.stack([s, c, o], -1), np.stack([o, o, i], -1)], -2)

    c, s, o, i = np.cos(polar), np.sin(polar), np.zeros_like(polar), np.ones_like(polar)
    tilt = np.stack([np.stack([c, o, s], -1), np.stack([o, i, o], -1), np.stack([-s, o, c], -1)], -2)
    return np.einsum("nab,nbc,ncd,ed->nea", about_z(dihedral), tilt, about_z(own), body)


class Dimer:
    """Energies of grid points in eV above two molecules apart."""

    def __init__(self, model: Path, device: str, cap: float, batch: int = 2000) -> None:
        self.calculator = ClebschCalculator(model, device=device, dtype="float64", skin=0.0)
        self.grids, self.cap, self.batch, self.seconds = grids(), cap, batch, 0.0
        far = np.array([[40.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
        self.apart = float(self._energies(far)[0])

    def _energies(self, coordinates: np.ndarray) -> np.ndarray:
        distance, dihedral, polar_a, own_a, polar_b, own_b = coordinates.T
        first = molecules(np.zeros_like(dihedral), polar_a, own_a)
        second = molecules(dihedral, polar_b, own_b)
        second[:, :, 2] += distance[:, None]
        count = len(coordinates)
        side = math.ceil(count ** (1 / 3))
        place = np.stack(np.unravel_index(np.arange(count), (side,) * 3), -1) * SPACING
        if count == 1:
            place = np.zeros((1, 3))
        atoms = Atoms("OHHOHH" * count, (np.concatenate([first, second], 1) + place[:, None]).reshape(-1, 3))
        self.calculator.calculate(atoms, ["energies"])
        return self.calculator.results["energies"].reshape(count, 6).sum(1)

    def raw(self, indices: torch.Tensor) -> np.ndarray:
        """(count,) energies at grid points (count, 6)."""
        begin = time.perf_counter()
        at = indices.cpu().numpy()
        coordinates = np.stack([grid[at[:, k]] for k, grid in enumerate(self.grids)], 1)
        parts = [self._energies(coordinates[s : s + self.batch]) for s in range(0, len(at), self.batch)]
        self.seconds += time.perf_counter() - begin
        return np.concatenate(parts) - self.apart

    def __call__(self, indices: torch.Tensor) -> torch.Tensor:
        """The same, bent: V for low energies, never above the cap."""
        energies = self.raw(indices)
        above = np.maximum(energies, 0.0)
        return torch.from_numpy(np.where(energies > 0, self.cap * np.tanh(above / self.cap), energies))


def picture(path: Path, history: list[dict], dimer: Dimer, tensor: CpTensor, lowest: torch.Tensor) -> None:
    """Error against entries; and a cut through the lowest grid point, model beside fit."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8))
    left.loglog([h["entries"] for h in history], [h["rms_per_cm"] for h in history], "o-", color="#1f5aa6")
    left.set(xlabel=f"energies asked for, of {POINTS**6:,}", ylabel="RMS error below the window, 1/cm")
    left.grid(alpha=0.3, which="both")
    for k, name in ((0, "O-O distance"), (2, "polar angle of the first"), (1, "dihedral")):
        cut = lowest.repeat(POINTS, 1)
        cut[:, k] = torch.arange(POINTS)
        (line,) = right.plot(range(POINTS), dimer(cut) * 1e3, "o", ms=4, label=name)
        right.plot(range(POINTS), tensor.at(cut) * 1e3, "-", color=line.get_color())
    right.set(xlabel="grid point along a coordinate through the minimum")
    right.set(ylabel="energy, meV (dots: model, lines: fit)")
    right.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None, help="the shipped NequIP water model by default")
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--sampler", default="exact", choices=("exact", "product", "hybrid"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cap", type=float, default=0.35, help="eV")
    parser.add_argument("--temperature", type=float, default=0.12, help="eV, of the entries' weights; 0: none")
    parser.add_argument("--window", type=float, default=1500.0, help="1/cm above the lowest grid point that is seen")
    parser.add_argument("--check", type=int, default=20000, help="grid points that judge the fit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("."))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    dimer = Dimer(options.model or model_path("water-nequip.pt"), options.device, options.cap)
    random = torch.Generator().manual_seed(options.seed + 77)
    points = torch.randint(0, POINTS, (options.check, 6), generator=random)
    expected = dimer(points)
    lowest = points[expected.argmin()]
    inside = (expected - expected.min()) * PER_CM < options.window
    seconds_of_check = dimer.seconds
    print(f"{options.check} grid points: {1e3 * expected.min():.1f} to {1e3 * expected.max():.1f} meV, "
          f"{int(inside.sum())} below the window; {options.check / dimer.seconds:.0f} energies a second",
          flush=True)  # fmt: skip
    history, begin = [], time.perf_counter()

    def watch(number: int, tensor: CpTensor, asked: int) -> None:
        difference = (tensor.at(points) - expected) * PER_CM
        row = {
            "round": number + 1,
            "entries": asked,
            "rms_per_cm": float(difference[inside].square().mean().sqrt()),
            "rms_of_all_per_cm": float(difference.square().mean().sqrt()),
            "seconds": time.perf_counter() - begin,
            "seconds_of_model": dimer.seconds - seconds_of_check,
        }
        history.append(row)
        print(f"round {row['round']:2d}: {asked:8d} energies, RMS error {row['rms_per_cm']:7.1f} 1/cm below "
              f"{options.window:.0f} 1/cm, {row['rms_of_all_per_cm']:7.1f} over all; {row['seconds']:.0f} s, "
              f"{row['seconds_of_model']:.0f} of them the model's", flush=True)  # fmt: skip

    low = float(expected.min())
    tensor = cp_als(
        (POINTS,) * 6, dimer, options.rank, options.samples, options.rounds, options.sampler, options.seed,
        weigh=(lambda v: torch.exp(-(v - low).clamp(min=0) / options.temperature)) if options.temperature > 0 else None,
        ridge=1e-9, watch=watch,
    )  # fmt: skip
    settings = {key: str(value) for key, value in vars(options).items()}
    (options.out / "surface.json").write_text(json.dumps({"settings": settings, "history": history}, indent=1) + "\n")
    picture(options.out / "surface.png", history, dimer, tensor, lowest)


if __name__ == "__main__":
    main()
