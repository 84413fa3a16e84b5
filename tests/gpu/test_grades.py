"""Grades of extrapolation on a GPU against the CPU, of every family, and that a step that gives them is the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize("grade", ["leverage", "maxvol", "squares"])
@pytest.mark.parametrize("width", [1, 17, 63, 64, 65, 128, 129])
def test_widths(grade: str, width: int) -> None:
    """Up to 128 columns a kernel's, of squares up to 64 features, else cuBLAS's; columns of a wider tensor; a type
    without atoms."""
    from clebsch import library

    library.load()
    random = np.random.default_rng(width)
    x = torch.from_numpy(random.normal(size=(1000, width + 7)))
    types = torch.from_numpy(random.integers(3, size=1000).astype(np.int32))
    shape = (1, 3 * width + 1, 2 * width + 1) if grade == "squares" else (1, width, width)
    transform = torch.from_numpy(random.normal(size=shape) / np.sqrt(width))
    counts = torch.tensor([5.0, 0.0, 2.0], dtype=torch.float64)
    expected = torch.ops.clebsch.extrapolation(x, types, transform, counts, 3, grade)
    assert torch.isinf(expected[types == 1]).all() and torch.isfinite(expected[types != 1]).all()
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        there = [tensor.cuda() for tensor in (x.to(dtype), types, transform, counts)]
        got = torch.ops.clebsch.extrapolation(*there, 3, grade).cpu()
        assert torch.equal(torch.isinf(got), types == 1)
        finite = types != 1
        assert (got - expected)[finite].abs().max() <= tolerance * expected[finite].max()
