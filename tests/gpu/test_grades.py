"""Grades of extrapolation on a GPU against the CPU, of every family, and that a step that gives them is the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "parity"))
from clebsch.batch import Evaluator  # noqa: E402
from graded_models import structures, write_graded  # noqa: E402


@pytest.mark.parametrize("family", ["nequip", "mace", "allegro"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-2)])
def test_as_on_the_cpu(tmp_path: Path, family: str, dtype: str, tolerance: float) -> None:
    path = write_graded(tmp_path / "model.pt", family, dtype)
    # Of several sizes, so that rows are padded, and one atom alone.
    probe = [*structures(3, seed=9), *structures(2, seed=3, atoms=7), *structures(1, seed=1, atoms=1)]
    cpu, gpu = Evaluator(path, "cpu", "float64"), Evaluator(path, "cuda", dtype)
    expected = np.concatenate(cpu(probe, outputs=["extrapolation"]).outputs["extrapolation"])
    plain = gpu(probe)
    for _ in range(4):  # recorded from the second step on
        found = gpu(probe, outputs=["extrapolation"])
        got = np.concatenate(found.outputs["extrapolation"])
        assert np.abs(got - expected).max() <= tolerance * expected.max()
        assert np.abs(found.energies - plain.energies).max() <= 1e-5 * np.abs(plain.energies).max()
        for a, b in zip(found.forces, plain.forces, strict=True):
            assert np.abs(a - b).max() <= 1e-5 * max(1.0, np.abs(b).max())
