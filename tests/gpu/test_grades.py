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


@pytest.mark.parametrize("grade", ["leverage", "maxvol", "squares"])
@pytest.mark.parametrize("rows", [0, 1, 31, 33, 100])
@pytest.mark.parametrize(("width", "matrices"), [(5, 1), (64, 1), (7, 3), (70, 3), (136, 3)])
def test_rows(grade: str, rows: int, width: int, matrices: int) -> None:
    """No row, one, and parts of a block; by all elements or each element's own matrix; any number of features."""
    from clebsch import library

    if grade == "squares" and (matrices > 1 or width > 64):
        pytest.skip("squares are pooled")
    library.load()
    random = np.random.default_rng(rows)
    x = torch.from_numpy(random.normal(size=(rows, width)))
    types = torch.from_numpy(random.integers(3, size=rows).astype(np.int32))
    shape = (1, 3 * width + 1, 2 * width + 1) if grade == "squares" else (matrices, width, width)
    transform = torch.from_numpy(random.normal(size=shape) / np.sqrt(width))
    counts = torch.tensor([5.0, 0.0, 2.0], dtype=torch.float64)
    expected = torch.ops.clebsch.extrapolation(x, types, transform, counts, 0, grade)
    there = [tensor.cuda() for tensor in (x, types, transform, counts)]
    got = [torch.ops.clebsch.extrapolation(*there, 0, grade).cpu() for _ in range(2)]
    assert got[0].shape == (rows,) and torch.equal(*got)
    torch.testing.assert_close(got[0], expected, rtol=1e-12, atol=1e-14)


def test_of_the_same_step(tmp_path: Path) -> None:
    """Grades of steps that are replayed are those of their positions, not of the step before."""
    from clebsch.ase import ClebschCalculator

    path = write_graded(tmp_path / "model.pt", "nequip", "float64")
    atoms = structures(1, seed=9)[0]
    there, here = (ClebschCalculator(path, device, extrapolation=True) for device in ("cuda", "cpu"))
    random = np.random.default_rng(4)
    before = None
    for _ in range(12):
        atoms.positions += 0.02 * random.normal(size=atoms.positions.shape)
        for calculator in (there, here):
            calculator.calculate(atoms, ["energy", "forces"])
        right, got = (calculator.results["extrapolation"] for calculator in (here, there))
        assert np.abs(got - right).max() <= 1e-9 * right.max()
        assert before is None or np.abs(right - before).max() > 1e-6 * right.max()
        before = right.copy()
    assert there.model.last_run["replayed"]
