"""How far a run at constant energy drifts, and the record that benchmarks/record.py takes of it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

BLOCKS = 10
#: eV in 1 amu A^2/ps^2.
EV_OF_AMU_A2_PS2 = 1.0364270e-4


def block_means(values: np.ndarray) -> np.ndarray:
    """Means of ten blocks of equal length."""
    return np.array([part.mean() for part in np.array_split(values, BLOCKS)])


def energy_drift(time_ps: np.ndarray, energy: np.ndarray) -> tuple[float, float]:
    """Slope and its standard error, meV per atom and ns, of energies (eV per atom) at times (ps).

    The error is that of a straight line through the means of ten blocks, as neighbouring samples depend on each other.
    """
    t, e = block_means(time_ps), block_means(energy)
    residual = e - np.polyval(np.polyfit(t, e, 1), t)
    error = np.sqrt((residual**2).sum() / (BLOCKS - 2) / ((t - t.mean()) ** 2).sum())
    return float(np.polyfit(time_ps, energy, 1)[0] * 1e6), float(error * 1e6)


def shadow_energy(energy: np.ndarray, force2_over_mass: np.ndarray, timestep: float) -> np.ndarray:
    """The energy (eV per atom) that velocity Verlet conserves up to fourth order in the timestep h (ps), but for a time
    derivative, which averages out: H + h^2/24 sum F^2/m, from H (eV per atom) and sum F^2/m per atom (eV^2/A^2/amu).

    Kick, drift, kick conserves H + h^2 (v.V''v/12 - F.F/m/24) (E. Hairer, C. Lubich, G. Wanner, Acta Numerica 12, 399
    (2003)), and v.V''v = F.F/m - d(F.v)/dt. So a slope of it is the slope of H, without what H owes to the ups and
    downs of the potential energy.
    """
    return energy + timestep**2 / 24 * force2_over_mass / EV_OF_AMU_A2_PS2


def drift_record(name: str, slope: float, error: float, dtype: str, on_gpu: bool, details: dict) -> dict:
    """|slope| and two standard errors under `name` of benchmarks/targets.json, with machine, versions and command."""
    import torch

    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = os.environ.get("CLEBSCH_COMMIT") or subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return {
        "name": name, "value": abs(slope) + 2 * error, "unit": "meV/atom/ns", "spread": error, "dtype": dtype,
        "deterministic": True, "error": None, "peer": None,
        "machine": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "torch": torch.__version__.split("+")[0], "driver": "", "commit": (commit or "unknown").removesuffix("-dirty"),
        "dirty": commit.endswith("-dirty"), "date": datetime.now(UTC).date().isoformat(),
        "command": "python3 " + " ".join(sys.argv), "details": details,
    }  # fmt: skip
