"""Draws carbon.png from a finished run of in.carbon, and prints what the picture shows.

Usage: python plot.py [--folder FOLDER] [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from lammps_output import (  # noqa: E402
    BEHIND,
    BLUE,
    INK,
    MUTED,
    ORANGE,
    atoms_in,
    plt,
    radial_distribution,
    read_frames,
    read_speed,
    read_thermo,
    style,
)

BIN = 0.02  # Angstrom


def draw_energy(axes: plt.Axes, runs: list[dict], atoms: int) -> None:
    """Potential energy of an atom while it is heated and held; the relaxed lattice as a line."""
    for run, color in zip(runs[:2], (ORANGE, BLUE), strict=True):
        axes.plot(run["Time"], run["PotEng"] / atoms, color=color, linewidth=1.3)
    axes.axhline(runs[2]["PotEng"][-1] / atoms, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="relaxed")
    style(axes, "Potential energy", "time / ps", "E / eV per atom")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)


def draw_lattice(axes: plt.Axes, runs: list[dict]) -> None:
    """Lattice constant (left) and temperature (right)."""
    for run, color, name in zip(runs[:2], (ORANGE, BLUE), ("heated", "held"), strict=True):
        axes.plot(run["Time"], run["v_edge"], color=color, linewidth=1.3, label=name)
    axes.axhline(runs[2]["v_edge"][-1], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    style(axes, "Lattice constant, and temperature in grey", "time / ps", "a / Å")
    right = axes.twinx()
    for run in runs[:2]:
        right.plot(run["Time"], run["Temp"], color=BEHIND, linewidth=1)
    right.set_ylabel("T / K", color=MUTED)
    right.tick_params(colors=MUTED, length=3)
    for side in right.spines.values():
        side.set_visible(False)
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="lower right")


def draw_rdf(axes: plt.Axes, folder: Path, out: Path, top: float) -> float:
    """g(r) of the hot crystal's second half, shells of the relaxed one; returns the place of its peak below 2 A."""
    _, hot, boxes = read_frames(folder / "hot.dump")
    hot, boxes = hot[len(hot) // 2 :], boxes[len(boxes) // 2 :]
    _, cold, cold_box = read_frames(folder / "relaxed.dump")
    bins = np.arange(0.0, min(6.0, boxes.min() / 2) + BIN, BIN)
    r = 0.5 * (bins[1:] + bins[:-1])
    g = radial_distribution(hot, hot, boxes, bins)
    shells = radial_distribution(cold, cold, cold_box, bins)
    for k in np.flatnonzero(shells > 1.0):
        axes.axvline(r[k], color=BEHIND, linewidth=1, zorder=0)
    axes.plot(r, g, color=BLUE, linewidth=1.5, label=f"{top:.0f} K")
    axes.plot([], [], color=BEHIND, linewidth=1, label="relaxed")
    style(axes, "Radial distribution", "r / Å", "g(r)")
    axes.set_xlim(1.0, bins[-1])
    axes.legend(frameon=True, edgecolor="white", framealpha=1.0, fontsize=8.5, labelcolor=INK)
    np.savetxt(out.with_name("rdf.csv"), np.column_stack([r, g]), "%.5f", ",", header="r,g", comments="")
    return float(r[np.argmax(g * (r < 2.0))])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=HERE, help="where log.lammps and the dumps are")
    parser.add_argument("--out", type=Path, default=HERE / "carbon.png")
    options = parser.parse_args()

    log = options.folder / "log.lammps"
    runs = read_thermo(log)
    if len(runs) != 3:
        raise SystemExit(f"{log}: expected three finished runs (heated, held, relaxed), found {len(runs)}")
    atoms, held = atoms_in(log), runs[1]
    plt.rcParams.update({"font.size": 9.5, "font.family": "DejaVu Sans"})
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.6), layout="constrained")
    draw_energy(axes[0], runs, atoms)
    draw_lattice(axes[1], runs)
    late = len(held["Temp"]) // 2
    temperature = held["Temp"][late:].mean()
    peak = draw_rdf(axes[2], options.folder, options.out, temperature)
    figure.savefig(options.out, dpi=160)

    print(f"run                        {atoms} atoms, {int(held['Step'][-1])} steps and a relaxation")
    print(f"speed (held)               {read_speed(log)}")
    print(f"temperature (held)         {temperature:8.1f} K")
    print(f"lattice constant (held)    {held['v_edge'][late:].mean():8.4f} Å")
    print(f"lattice constant (relaxed) {runs[2]['v_edge'][-1]:8.4f} Å")
    print(f"energy (relaxed)           {runs[2]['PotEng'][-1] / atoms:8.4f} eV per atom")
    print(f"first peak of g(r)         {peak:8.2f} Å")
    print(f"picture                    {options.out}")


if __name__ == "__main__":
    main()
