"""Where the time of an ASE step of 64 atoms of the shipped carbon model goes: python benchmarks/ase/parts.py

Prints milliseconds: a step of velocity Verlet with its middle half, how much longer it is than the model's own (queued
steps from sorted edges), ASE's integrator alone, forces of moved atoms, the library's call, an empty call of it, what
the library says of its last run, and recorded steps from positions queued and one at a time. Needs a GPU, ase,
CLEBSCH_LIBRARY.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_ase import Nothing  # noqa: E402

from cases import atoms_of, diamond, dynamics, model_path  # noqa: E402
from clebsch.ase import ClebschCalculator  # noqa: E402
from clebsch.neighbours import NeighbourFinder  # noqa: E402


def middle(work: Callable[[], object], calls: int, repeats: int = 9) -> float:
    """Milliseconds a call."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        times.append(1e3 * (time.perf_counter() - begin) / calls)
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(8)
    atoms = atoms_of(diamond(2), [6])
    calculator, other = (ClebschCalculator(model_path("carbon-mace"), "cuda", "float32", threads=8) for _ in range(2))
    step, spread, run = dynamics(atoms, calculator, 200, 11, lambda now: now.get_forces())
    alone, _, _ = dynamics(atoms, Nothing(), 100, 7, lambda now: None)
    edges = NeighbourFinder(other.model.r_max).find(atoms.positions, atoms.cell, atoms.pbc)
    graph = (edges.vectors.contiguous(), torch.zeros(len(atoms), dtype=torch.int64), edges.receivers, edges.senders)
    for _ in range(4):
        other.model.compute(*graph)
    model_ms = statistics.median(other.model.time_device(50) for _ in range(9))
    random, moving, model = np.random.default_rng(1), run.atoms, calculator.model

    def forces() -> None:
        moving.positions[0, 0] += 1e-5 * random.uniform()
        moving.get_forces()

    forces_ms, told = middle(forces, 300), []
    for _ in range(300):
        forces()
        last = model.last_run
        told.append([last[key] for key in ("upload_ms", "compute_ms", "read_ms")])
    upload, compute, read = np.median(np.array(told), 0)
    queued, single = (statistics.median(model.time_device(n) for _ in range(9)) for n in (50, 1))
    given = (*calculator._views, calculator._starts, calculator._types)
    call = middle(lambda: model.step_of_system(*given, skin=1.0, gradients=True), 300)
    empty = middle(model._model.take_messages, 2000)
    print(
        f"step {step:.4f} +- {spread:.4f}, +{step - model_ms:.4f} over the model's {model_ms:.4f}; ase alone "
        f"{alone:.4f}, forces {forces_ms:.4f}, call {call:.4f}, an empty call {empty:.4f}; upload {upload:.4f}, "
        f"compute {compute:.4f}, read {read:.4f}; from positions queued {queued:.4f}, one at a time {single:.4f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
