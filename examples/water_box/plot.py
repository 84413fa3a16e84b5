"""Draws water.png from a finished run of in.water, and prints what the picture shows.

Usage: python plot.py [--log FILE] [--dump FILE] [--out FILE]
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

BIN = 0.04  # Angstrom, twice the reference's


def draw_temperature(axes: plt.Axes, nvt: dict, nve: dict) -> float:
    offset = nvt["Time"][-1]
    axes.axvspan(0, offset, color="#f3f4f6", zorder=0)
    axes.plot(nvt["Time"], nvt["Temp"], color=BLUE, linewidth=1.4)
    axes.plot(nve["Time"] + offset, nve["Temp"], color=BLUE, linewidth=1.4)
    axes.axhline(300, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    style(axes, "Temperature", "time / ps", "T / K")
    top = axes.get_ylim()[1]
    axes.text(0.5 * offset, top, "NVT", ha="center", va="top", color=MUTED, fontsize=9)
    axes.text(offset + 0.5 * nve["Time"][-1], top, "NVE", ha="center", va="top", color=MUTED, fontsize=9)
    return float(nve["Temp"].mean())


def draw_energy(axes: plt.Axes, nve: dict, atoms: int) -> float:
    """Total energy of the NVE part; returns its slope in eV per atom and ps."""
    t, e = nve["Time"], (nve["TotEng"] - nve["TotEng"][0]) / atoms
    slope, start = np.polyfit(t, e, 1)
    axes.plot(t, 1e6 * e, color=BLUE, linewidth=1.2, label="total energy")
    axes.plot(
        t,
        1e6 * (slope * t + start),
        color=INK,
        linewidth=1.2,
        linestyle=(0, (4, 3)),
        label=f"slope {1e6 * slope:+.1f} µeV/atom/ps",
    )
    style(axes, "Energy conservation (NVE)", "time / ps", "E(t) − E(0)  /  µeV per atom")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    axes.margins(y=0.25)
    return float(slope)


def draw_rdf(axes: plt.Axes, r: np.ndarray, g: dict[str, np.ndarray], reference: np.ndarray) -> float:
    """g(r) of the run over the reference; returns the mean absolute difference of g_OO over 2 to 7 A."""
    for k, (name, color) in enumerate((("O–O", BLUE), ("O–H", ORANGE))):
        label = "reference (classical)" if k == 0 else None
        axes.plot(reference[:, 0], reference[:, 1 + k], color=BEHIND, linewidth=4.5, label=label)
        axes.plot(r, g[name], color=color, linewidth=1.6, label=f"{name}, this run")
    style(axes, "Radial distribution", "r / Å", "g(r)")
    axes.set_xlim(1.4, 7.5)  # the O-H bond, at 1 A, is far off the scale
    axes.set_ylim(0, 3.6)
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    window = (r > 2) & (r < 7)
    return float(np.abs(g["O–O"] - np.interp(r, reference[:, 0], reference[:, 1]))[window].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, default=HERE / "log.lammps")
    parser.add_argument("--dump", type=Path, default=HERE / "nve.dump")
    parser.add_argument("--out", type=Path, default=HERE / "water.png")
    options = parser.parse_args()

    runs = read_thermo(options.log)
    if len(runs) != 2:
        raise SystemExit(f"{options.log}: expected two finished runs (NVT, NVE), found {len(runs)}")
    nvt, nve = runs
    reference = np.loadtxt(HERE / "reference_rdf.csv", delimiter=",", skiprows=1)
    atoms = atoms_in(options.log)

    plt.rcParams.update({"font.size": 9.5, "font.family": "DejaVu Sans"})
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.6), layout="constrained")
    temperature = draw_temperature(axes[0], nvt, nve)
    slope = draw_energy(axes[1], nve, atoms)
    types, x, box = read_frames(options.dump)
    bins = np.arange(0.0, 9.0 + BIN, BIN)
    r = 0.5 * (bins[1:] + bins[:-1])
    oxygen, hydrogen = x[:, types == 1], x[:, types == 2]
    g = {
        "O–O": radial_distribution(oxygen, oxygen, box, bins),
        "O–H": radial_distribution(oxygen, hydrogen, box, bins),
    }
    columns = np.column_stack([r, *g.values()])
    np.savetxt(options.out.with_name("rdf.csv"), columns, "%.5f", ",", header="r,g_OO,g_OH", comments="")
    difference = draw_rdf(axes[2], r, g, reference)
    figure.savefig(options.out, dpi=160)

    steps = int(sum(run["Step"][-1] - run["Step"][0] for run in runs))
    print(f"run                        {atoms} atoms, {steps} steps")
    print(f"speed (NVE)                {read_speed(options.log)}")
    print(f"mean temperature (NVE)     {temperature:8.1f} K")
    print(f"energy drift (NVE)         {1e6 * slope:8.2f} µeV/atom/ps")
    print(f"g_OO, mean |run - ref|     {difference:8.3f}   (2 to 7 Å; this run averages {nve['Time'][-1]:.1f} ps)")
    print(f"picture                    {options.out}")


if __name__ == "__main__":
    main()
