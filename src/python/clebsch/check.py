"""What `clebsch check` runs: is a model file sound by itself, and does it agree with its upstream model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .compare import FORCE_FLOOR, Values, compare_file, errors, evaluate
from .probe import Probe, random_structure
from .progress import Progress, silent
from .runtime import Model


@dataclass
class Finding:
    """One line of the check: a measured number and the limit it must keep."""

    name: str
    value: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.value <= self.limit  # False for nan

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name:52} {self.value:9.1e}  (limit {self.limit:.0e})"


def check_file(path: str | os.PathLike[str], seed: int = 0, progress: Progress = silent) -> list[Finding]:
    """Invariances, gradients, tables and precision of a model file by itself. Loading it validates it first."""
    exact = Model(path, dtype="float64", radial="exact")
    table = Model(path, dtype="float64", progress=progress)
    single = Model(path, dtype="float32", progress=progress)
    probe = random_structure(len(exact.type_names), exact.r_max, seed)
    reference = evaluate(exact, probe)
    of_table = evaluate(table, probe)
    checks: list[tuple[str, Callable[[], float], float]] = [
        ("forces against finite differences of the energy", lambda: gradient_error(exact, probe), 1e-6),
        ("the same with radial tables", lambda: gradient_error(table, probe), 1e-6),
        ("rotation (energy, forces)", lambda: rotation_error(exact, probe), 1e-9),
        ("sum of forces", lambda: float(reference.forces.sum(0).abs().max()) / FORCE_FLOOR, 1e-9),
        ("forces with radial tables against exact", lambda: errors(of_table, reference)["forces"], 1e-5),
        ("forces in float32 against float64", lambda: errors(evaluate(single, probe), of_table)["forces"], 1e-4),
    ]
    findings = []
    for done, (name, measure, limit) in enumerate(checks):
        progress("checks", done, len(checks))
        findings.append(Finding(name, measure(), limit))
    progress("checks", len(checks), len(checks))
    for entry in table.report_tables(progress):
        findings.append(
            Finding(f"layer {entry['layer']} radial tables ({entry['pieces']} pieces)", entry["value_error"], 1e-4)
        )
    return findings


def check_against(
    path: str | os.PathLike[str], upstream: Callable[[Probe], Values], dtype: str, progress: Progress = silent
) -> list[Finding]:
    """Errors against the answers of an upstream model computing in its own dtype (`dtype`)."""
    limits = {"float64": (1e-10, 1e-6), "float32": (1e-5, 1e-5)}[dtype]
    findings = []
    for radial, limit in zip(("exact", "table"), limits, strict=True):
        for key, value in compare_file(path, upstream, dtype=dtype, radial=radial, progress=progress).items():
            scale = 10 if key == "forces_max" else 1
            findings.append(
                Finding(f"{key.replace('_', ' ')} against upstream, {dtype}, radial {radial}", value, limit * scale)
            )
    return findings


def gradient_error(model: Model, probe: Probe, step: float = 1e-4, directions: int = 4) -> float:
    """Largest difference between -dE/ds by central differences and the forces, along random directions, relative to
    the RMS force. Fourth order in `step` (Angstrom), so that truncation stays below 1e-8."""
    generator = torch.Generator().manual_seed(1)
    forces = evaluate(model, probe).forces
    scale = max(float(forces.pow(2).mean().sqrt()), FORCE_FLOOR)
    worst = 0.0
    for _ in range(directions):
        direction = torch.randn(probe.positions.shape, generator=generator, dtype=torch.float64)
        direction /= direction.norm()

        def energy(s: float, along: torch.Tensor = direction) -> float:
            moved = probe.moved(probe.positions + s * along)
            return float(evaluate(model, moved).atomic.sum())

        slope = (8 * (energy(step) - energy(-step)) - (energy(2 * step) - energy(-2 * step))) / (12 * step)
        worst = max(worst, abs(slope + float((forces * direction).sum())) / scale)
    return worst


def rotation_error(model: Model, probe: Probe) -> float:
    """Change of energy, and of forces turned back, under a random rotation with reflection, relative."""
    generator = torch.Generator().manual_seed(2)
    matrix = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
    if torch.det(matrix) > 0:
        matrix = -matrix
    turned = probe.moved(probe.positions @ matrix.T, probe.cell @ matrix.T)
    before, after = evaluate(model, probe), evaluate(model, turned)
    after.forces = after.forces @ matrix
    after.virial = matrix.T @ after.virial @ matrix
    return max(errors(after, before).values())
