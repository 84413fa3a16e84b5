"""Draws water.png from a finished run of in.water, and prints what the picture shows.

Usage: python plot.py [--log FILE] [--rdf FILE] [--out FILE]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display needed

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
INK, MUTED, GRID = "#1f2430", "#6b7280", "#e5e7eb"
MODEL, REFERENCE, OXYGEN_HYDROGEN = "#2563a8", "#111827", "#c2571a"


def read_thermo(path: Path) -> list[dict[str, np.ndarray]]:
    """The thermo tables of a LAMMPS log, one dict of columns a run."""
    runs, header, rows = [], None, []
    for line in path.read_text().splitlines():
        words = line.split()
        if words[:1] == ["Step"]:
            header, rows = words, []
        elif line.startswith("Loop time") and header:
            runs.append(dict(zip(header, np.array(rows, dtype=float).T, strict=True)))
            header = None
        elif header and len(words) == len(header):
            try:
                rows.append([float(w) for w in words])
            except ValueError:  # a warning between two lines of the table
                continue
    return runs


def read_loops(path: Path) -> list[str]:
    return [s for s in path.read_text().splitlines() if s.startswith(("Loop time", "Performance"))]


def read_rdf(path: Path) -> np.ndarray:
    """Last block of a fix ave/time vector file: index, r, g_OO, n_OO, g_OH, n_OH."""
    rows = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    starts = [k for k, row in enumerate(rows) if len(row) == 2]
    return np.array(rows[starts[-1] + 1 :], dtype=float)


def atoms_in(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith("Loop time"):
            return int(line.split()[-2])
    raise SystemExit(f"{path}: expected a finished run ('Loop time of ...'), found none")


def smooth(y: np.ndarray, width: int) -> np.ndarray:
    kernel = np.ones(width) / width
    return np.convolve(np.pad(y, width // 2, mode="edge"), kernel, mode="valid")[: len(y)]


def style(axes: plt.Axes, title: str, xlabel: str, ylabel: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, fontweight="bold", pad=8)
    axes.set_xlabel(xlabel, color=MUTED)
    axes.set_ylabel(ylabel, color=MUTED)
    axes.tick_params(colors=MUTED, length=3)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)


def draw_temperature(axes: plt.Axes, nvt: dict, nve: dict) -> float:
    offset = nvt["Time"][-1]
    axes.axvspan(0, offset, color="#f3f4f6", zorder=0)
    axes.plot(nvt["Time"], nvt["Temp"], color=MODEL, linewidth=1.4)
    axes.plot(nve["Time"] + offset, nve["Temp"], color=MODEL, linewidth=1.4)
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
    axes.plot(t, 1e6 * e, color=MODEL, linewidth=1.2, label="total energy")
    axes.plot(t, 1e6 * (slope * t + start), color=REFERENCE, linewidth=1.2, linestyle=(0, (4, 3)),
              label=f"slope {1e6 * slope:+.1f} µeV/atom/ps")
    style(axes, "Energy conservation (NVE)", "time / ps", "E(t) − E(0)  /  µeV per atom")
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    axes.margins(y=0.25)
    return float(slope)


def draw_rdf(axes: plt.Axes, rdf: np.ndarray, reference: np.ndarray) -> float:
    """g(r) of the run and the reference; returns the mean absolute difference of g_OO over 2 to 7 A."""
    r = rdf[:, 1]
    outside = r > 1.4  # the O-H bond itself is far off the scale
    ref_r = reference[:, 0]
    ref_outside = (ref_r > 1.4) & (ref_r < r[-1])
    for column, ref_column, color, name in ((2, 1, MODEL, "O–O"), (4, 2, OXYGEN_HYDROGEN, "O–H")):
        axes.plot(r[outside], rdf[outside, column], color=color, linewidth=1.6, label=f"{name}, this run")
        axes.plot(ref_r[ref_outside], smooth(reference[:, ref_column], 3)[ref_outside], color=REFERENCE, linewidth=1.0,
                  linestyle=(0, (3, 2)), label="reference" if column == 2 else None)
    style(axes, "Radial distribution", "r / Å", "g(r)")
    axes.set_ylim(0, None)
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    window = (r > 2) & (r < 7)
    return float(np.abs(rdf[window, 2] - np.interp(r[window], ref_r, reference[:, 1])).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, default=HERE / "log.lammps")
    parser.add_argument("--rdf", type=Path, default=HERE / "output" / "nve.rdf")
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
    difference = draw_rdf(axes[2], read_rdf(options.rdf), reference)
    figure.savefig(options.out, dpi=160)

    steps = int(sum(run["Step"][-1] - run["Step"][0] for run in runs))
    print(f"{atoms} atoms, {steps} steps; " + "; ".join(s for s in read_loops(options.log) if s.startswith("Perf")))
    print(f"mean temperature (NVE)     {temperature:8.1f} K")
    print(f"energy drift (NVE)         {1e6 * slope:8.2f} µeV/atom/ps")
    print(f"g_OO, mean |run - ref|     {difference:8.3f}   (2 to 7 Å; this run averages {nve['Time'][-1]:.1f} ps)")
    print(f"picture                    {options.out}")


if __name__ == "__main__":
    main()
