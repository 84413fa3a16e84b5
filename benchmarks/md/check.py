"""Whether an answer is right enough to be timed: forces and energy of the start, energy during the run."""

from __future__ import annotations

import numpy as np
from engine import Loop, Outcome

#: RMS(dF)/RMS(F) and |dE|/max(|E|, 1 eV) per atom beyond which nothing is timed; the reference has
#: exact radial networks, so the error of tables counts in either dtype.
LIMITS = {"float32": 1e-4, "float64": 1e-4}
#: Change of the total energy over the run, as a part of the kinetic energy.
DRIFT = 0.02


def start_errors(outcome: Outcome, reference: Outcome, copies: int) -> tuple[float, float]:
    """Relative errors of forces and energy against the base cell's. LAMMPS's replicate numbers copy after copy."""
    size = len(reference.ids)
    exact = reference.forces[(outcome.ids - 1) % size]
    force = np.sqrt(((outcome.forces - exact) ** 2).mean() / (exact**2).mean())
    energy = outcome.energy / (size * copies) - reference.energy / size
    return float(force), float(abs(energy) / max(abs(reference.energy / size), 1.0))


def drift(loop: Loop) -> float:
    """|change of the total energy| over the run, relative to the kinetic energy at its start."""
    first, last = loop.thermo[0], loop.thermo[-1]
    return float(abs(last["TotEng"] - first["TotEng"]) / first["KinEng"])


def verdict(force: float, energy: float, change: float | None, dtype: str) -> str:
    """What is wrong, or nothing."""
    limit = LIMITS[dtype]
    if not force <= limit:
        return f"forces of the start: expected a relative error of at most {limit:g}, got {force:.2g}"
    if not energy <= limit:
        return f"energy of the start: expected a relative error of at most {limit:g}, got {energy:.2g}"
    if change is not None and not change <= DRIFT:
        return f"total energy: expected to stay within {DRIFT:g} of the kinetic energy, it moved by {change:.2g}"
    return ""
