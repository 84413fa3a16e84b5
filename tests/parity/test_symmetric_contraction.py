"""clebsch::symmetric_contraction against its slow reference and mace-torch's SymmetricContraction."""

from __future__ import annotations

import random as python_random

import pytest
import torch

import mace_environment
import reference_ops
from clebsch.errors import ClebschError
from clebsch.product_basis import ProductBasis

pytestmark = pytest.mark.usefixtures("needs_library")
OPS = torch.ops.clebsch
F64 = torch.float64
NONE = torch.zeros(0, dtype=torch.int32)
PROBLEM = (
    "symmetric in=3x0e+3x1o out=3x0e+3x1o "
    "terms=0,0.0,1.1,0.0.0,0.2.2,0.0.1.1,1.1.2.3;1,0.1,0.0.0.1;;0.3,1.2.3,3.3.3,0.1.2.3"
)


@pytest.fixture(scope="module")
def mace() -> dict:
    return mace_environment.run("mace_symmetric.py", str(python_random.randrange(10**6)))


def arguments(rows: int = 5, layer: int = -1) -> dict:
    """Six rows of which layer 0 computes `rows`, two types."""
    limits = torch.tensor([rows], dtype=torch.int32)
    return {
        "x": torch.randn(6, 12, dtype=F64),
        "coefficients": torch.randn(2, 14, 3, dtype=F64),
        "types": torch.tensor([0, 1, 1, 0, 1, 0], dtype=torch.int32),
        "graph": [NONE, NONE, NONE, NONE, NONE, limits, limits],
        "layer": layer,
        "problem": PROBLEM,
    }


@pytest.mark.parametrize(
    "name", ["mace-M", "mace-L", "89 elements", "linear", "correlation 4", "use_so3", "nothing of 1e"]
)
def test_same_as_mace(mace: dict, name: str) -> None:
    result = mace[name]
    assert result["same_state_dict"]
    assert max(result["errors"].values()) < 1e-12, result
    assert max(result["errors_float32"].values()) < 1e-5, result
    assert result["equivariance"] < 1e-12, result


@pytest.mark.parametrize(("rows", "layer"), [(6, -1), (4, 0), (0, 0)])
def test_values(rows: int, layer: int) -> None:
    a = arguments(rows, layer)
    out = OPS.symmetric_contraction(**a)
    assert torch.allclose(out, reference_ops.symmetric_contraction(**a), rtol=1e-12, atol=1e-13)
    assert not out[rows:].any()


@pytest.mark.parametrize("layer", [-1, 0])
def test_two_derivatives(layer: int) -> None:
    a = arguments(4, layer)
    rest = (a["types"], a["graph"], layer, PROBLEM)

    def op(x: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
        return OPS.symmetric_contraction(x, coefficients, *rest)

    x, coefficients = a["x"].requires_grad_(), a["coefficients"].requires_grad_()
    assert torch.autograd.gradcheck(op, (x, coefficients))
    assert torch.autograd.gradgradcheck(op, (x, coefficients))
    # One of the two alone.
    assert torch.autograd.gradgradcheck(lambda x: op(x, coefficients.detach()), (x,))
    assert torch.autograd.gradgradcheck(lambda c: op(x.detach(), c), (coefficients,))


def test_third_derivatives_are_refused() -> None:
    """Never a silent zero."""
    a = arguments()
    x = a["x"].requires_grad_()
    (first,) = torch.autograd.grad(OPS.symmetric_contraction(**a).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="third derivative"):
        torch.autograd.grad(second.sum(), x)


def test_on_meta_and_without_rows() -> None:
    a = arguments()
    moved = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in a.items()}
    assert OPS.symmetric_contraction(**{**moved, "graph": [t.to("meta") for t in a["graph"]]}).shape == (6, 12)
    x = torch.zeros(0, 12, dtype=F64, requires_grad=True)
    coefficients = a["coefficients"].requires_grad_()
    out = OPS.symmetric_contraction(x, coefficients, NONE, a["graph"], -1, PROBLEM)
    out.sum().backward()
    assert out.shape == (0, 12) and x.grad.shape == (0, 12) and not coefficients.grad.any()


def test_bad_arguments_are_named() -> None:
    good = arguments()
    bad = {
        r"x of shape \(any, 12\)": {"x": good["x"][:, :9].contiguous()},
        "x of dtype Float or Double": {"x": good["x"].half()},
        "x to be contiguous": {"x": torch.randn(12, 6, dtype=F64).T},
        "coefficients of dtype Double": {"coefficients": good["coefficients"].float()},
        r"coefficients of shape \(any, 14, 3\)": {"coefficients": good["coefficients"][:, :13].contiguous()},
        r"types\[0\] in \[0, 2\), got 7": {"types": good["types"] + 7},
        r"types of shape \(6\)": {"types": good["types"][:5]},
        "types of dtype Int": {"types": good["types"].long()},
        "graph of 7 or 8 tensors": {"graph": good["graph"][:6]},
        r"layer -1 or in \[0, 1\)": {"layer": 1},
        r"layer_rows\[0\] in \[0, 6\], got 99": {
            "layer": 0,
            "graph": [*good["graph"][:5], torch.tensor([99], dtype=torch.int32), NONE],
        },
        "symmetric problem, field 'terms'": {"problem": PROBLEM.replace("3.3.3", "3.3.4")},
    }
    for match, change in bad.items():
        with pytest.raises(RuntimeError, match=match):
            OPS.symmetric_contraction(**{**good, **change})
    with pytest.raises(RuntimeError, match="grad_out of shape"):
        rest = [good[k] for k in ("x", "coefficients", "types", "graph", "layer", "problem")]
        OPS.symmetric_contraction_backward(torch.zeros(6, 11, dtype=F64), *rest, [True, True])


def test_bad_tensors_are_named() -> None:
    u = [torch.ones(4, 1), torch.ones(4, 4, 2)]
    basis = ProductBasis("2x0e+2x1o", "2x0e", [u])
    assert basis.monomials[0][:5] == [(0,), (1,), (2,), (3,), (0, 0)]
    assert basis.coefficients([[torch.ones(1, 1, 2), torch.ones(1, 2, 2)]])[0, 5].tolist() == [4.0, 4.0]  # 0.1 and 1.0
    for match, case in {
        "same multiplicity": ("2x0e+3x1o", "2x0e", [u]),
        "adjacent blocks": ("2x0e+2x0e", "2x0e", [u]),
        "U of 2 blocks, got 1": ("2x0e+2x1o", "2x0e+2x1o", [u]),
        "correlation 1 to 4, got 0": ("2x0e+2x1o", "2x0e", [[]]),
        "U of order 1 of shape": ("2x0e", "2x0e", [u]),
    }.items():
        with pytest.raises(ClebschError, match=match):
            ProductBasis(*case)
    with pytest.raises(ClebschError, match="expected mace-torch's SymmetricContraction, got torch.nn"):
        ProductBasis.from_mace(torch.nn.Linear(1, 1))
