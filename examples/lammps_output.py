"""Reads logs and trajectories of LAMMPS, and the look of the examples' pictures."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display needed

import matplotlib.pyplot as plt
import numpy as np

INK, MUTED, GRID = "#1f2430", "#6b7280", "#e5e7eb"
BLUE, ORANGE, BEHIND = "#2563a8", "#c2571a", "#b6bcc6"


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


def read_speed(path: Path) -> str:
    """LAMMPS's own speed line of the last run: ns/day, ..., timesteps/s, ..."""
    lines = [s for s in path.read_text().splitlines() if s.startswith("Performance:")]
    return lines[-1].removeprefix("Performance:").strip() if lines else "unknown"


def read_frames(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Types (N,), positions (F, N, 3) and box edges (F, 3) of a dump of an orthogonal box, atoms sorted by id."""
    lines = path.read_text().splitlines()
    atoms = int(lines[3])
    starts = range(0, len(lines), 9 + atoms)
    table = np.array([[line.split() for line in lines[k + 9 : k + 9 + atoms]] for k in starts])
    edges = np.array([[line.split() for line in lines[k + 5 : k + 8]] for k in starts], dtype=float)
    return table[0, :, 1].astype(int), table[:, :, 2:5].astype(float), edges[:, :, 1] - edges[:, :, 0]


def radial_distribution(a: np.ndarray, b: np.ndarray, boxes: np.ndarray, bins: np.ndarray) -> np.ndarray:
    """g(r) of positions a (F, n, 3) around b (F, m, 3), which may be the same, up to half the box (edges (F, 3))."""
    counts = np.zeros(len(bins) - 1)
    for frame_a, frame_b, box in zip(a, b, boxes, strict=True):
        d = frame_a[:, None] - frame_b[None]
        d -= box * np.round(d / box)
        counts += np.histogram(np.sqrt((d * d).sum(-1)), bins)[0] * np.prod(box)
    pairs = a.shape[1] * (b.shape[1] - (a is b))
    shell = 4 / 3 * np.pi * np.diff(bins**3)
    if a is b:
        counts[0] = 0.0  # an atom with itself
    return counts / (len(a) * pairs * shell)


def atoms_in(path: Path) -> int:
    """How many atoms the run of a LAMMPS log had."""
    for line in path.read_text().splitlines():
        if line.startswith("Loop time"):
            return int(line.split()[-2])
    raise SystemExit(f"{path}: expected a finished run ('Loop time of ...'), found none")


def style(axes: plt.Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Title, labels and quiet axes."""
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
