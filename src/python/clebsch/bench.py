"""`clebsch bench`: time of one evaluation (energy, forces, virial) of a model on random atoms."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import torch

from .probe import random_structure
from .progress import Progress, silent
from .runtime import Model


@dataclass
class Timing:
    """Seconds a step: median, fastest and slowest of `steps` after two warm-up steps."""

    atoms: int
    edges: int
    threads: int
    dtype: str
    median: float
    fastest: float
    slowest: float

    def __str__(self) -> str:
        per_atom = 1e9 * self.median / self.atoms
        per_edge = 1e9 * self.median / max(self.edges, 1)
        return (
            f"{self.atoms} atoms, {self.edges} edges ({self.edges / self.atoms:.1f} an atom), {self.dtype}, "
            f"{self.threads} thread{'s' if self.threads > 1 else ''}\n"
            f"{1e3 * self.median:.2f} ms a step (fastest {1e3 * self.fastest:.2f}, slowest {1e3 * self.slowest:.2f}): "
            f"{per_atom:.0f} ns an atom, {per_edge:.1f} ns an edge"
        )


def bench_file(
    path: str | os.PathLike[str],
    *,
    side: int = 8,
    density: float = 0.1,
    steps: int = 10,
    threads: int = 0,
    dtype: str | None = None,
    radial: str = "table",
    progress: Progress = silent,
) -> Timing:
    """Times `steps` evaluations of side^3 atoms at `density` (atoms per cubic Angstrom; 0.1 is liquid water)."""
    model = Model(path, dtype=dtype, radial=radial, threads=threads, progress=progress)
    probe = random_structure(len(model.type_names), model.r_max, 0, side, density)
    vectors = probe.vectors
    times = []
    for step in range(steps + 2):
        start = time.perf_counter()
        model.compute(vectors, probe.types, probe.receivers, probe.senders)
        if step >= 2:
            times.append(time.perf_counter() - start)
        progress("steps", step + 1, steps + 2)
    times.sort()
    used = threads or torch.get_num_threads()
    return Timing(
        len(probe.types), len(vectors), used, model.dtype, times[len(times) // 2], times[0], times[-1]
    )  # fmt: skip
