"""clebsch.triangle on the CPU: values against loops and against torch, gradients, numbers that are hard to sum, masks,
symmetries, edge cases, errors, autocast."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
import torch

from clebsch import ClebschError, library, multilinear_library
from clebsch.triangle import triangle_multiplicative_update, triangle_multiplicative_update_reference

BUILT = library.load().path is not None and multilinear_library.place().is_file()
pytestmark = pytest.mark.skipif(not BUILT, reason="libclebsch_multilinear.so was not built (CLEBSCH_MULTILINEAR)")
ERROR = {torch.float64: 2e-14, torch.float32: 1e-6, torch.float16: 1.5e-3, torch.bfloat16: 8e-3}
VARIANTS = [(direction, gate) for direction in ("outgoing", "incoming") for gate in ("after", "before")]
F64 = torch.float64


def weights(d, hidden, out, gate, bias=True, dtype=F64, seed=1) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=random, dtype=F64)

    width = hidden if gate == "before" else out
    made = {"norm_in_weight": normal(d), "norm_in_bias": normal(d)}
    made |= {"norm_out_weight": normal(hidden), "norm_out_bias": normal(hidden)}
    for name, rows, columns in (
        ("p_in", 2 * hidden, d),
        ("g_in", 2 * hidden, d),
        ("p_out", out, hidden),
        ("g_out", width, d),
    ):
        made[f"{name}_weight"] = normal(rows, columns) / columns**0.5
        if bias:
            made[f"{name}_bias"] = normal(rows)
    return {name: value.to(dtype) for name, value in made.items()}


def pairs(*shape, dtype=F64, seed=2) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def a_mask(kind, *shape, dtype=F64) -> torch.Tensor | None:
    some = torch.rand(shape, generator=torch.Generator().manual_seed(3), dtype=F64)
    if kind == "none":
        return None
    if kind == "bool":
        return some > 0.3
    return torch.zeros_like(some) if kind == "zeros" else (some * (some > 0.3)).to(dtype)


def error(found, expected) -> float:
    expected = expected.double()
    if not expected.numel():
        return 0.0
    return ((found.double() - expected).square().mean().sqrt() / (expected.square().mean().sqrt() + 1e-300)).item()


def by_loops(x, direction, mask, w, gate, eps=1e-5):
    """The formulas, one number after another, in double precision."""

    def norm(row, weight, bias):
        mean = sum(row) / len(row)
        variance = sum((value - mean) ** 2 for value in row) / len(row)
        return [(v - mean) / (variance + eps) ** 0.5 * a + b for v, a, b in zip(row, weight, bias, strict=True)]

    def apply(name, row):
        rows, biases = w[f"{name}_weight"].tolist(), w[f"{name}_bias"].tolist()
        return [sum(a * b for a, b in zip(r, row, strict=True)) + c for r, c in zip(rows, biases, strict=True)]

    def sigmoid(row):
        return [1 / (1 + 2.718281828459045**-value) for value in row]

    n, hidden = x.shape[0], w["p_in_weight"].shape[0] // 2
    side = range(n)
    of = {name: value.tolist() for name, value in w.items()}
    xn = [[norm(x[i, j].tolist(), of["norm_in_weight"], of["norm_in_bias"]) for j in side] for i in side]
    both = [[[0.0] * 2 * hidden for _ in side] for _ in side]
    for i in side:
        for j in side:
            factor = 1.0 if mask is None else float(mask[i, j])
            if factor != 0:
                p, g = apply("p_in", xn[i][j]), sigmoid(apply("g_in", xn[i][j]))
                both[i][j] = [factor * a * b for a, b in zip(p, g, strict=True)]
    out = torch.empty(n, n, w["p_out_weight"].shape[0], dtype=F64)
    for i in side:
        for j in side:
            o = [0.0] * hidden
            for k in side:
                a, b = (both[i][k], both[j][k]) if direction == "outgoing" else (both[k][i], both[k][j])
                for h in range(hidden):
                    o[h] += a[h] * b[hidden + h]
            y, g = norm(o, of["norm_out_weight"], of["norm_out_bias"]), sigmoid(apply("g_out", xn[i][j]))
            if gate == "before":
                row = apply("p_out", [a * b for a, b in zip(y, g, strict=True)])
            else:
                row = [a * b for a, b in zip(apply("p_out", y), g, strict=True)]
            out[i, j] = torch.tensor(row, dtype=F64)
    return out


@pytest.mark.parametrize(("direction", "gate"), VARIANTS)
@pytest.mark.parametrize("kind", ["none", "bool", "number"])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_against_loops(direction, gate, kind, n):
    x, w, mask = pairs(n, n, 6), weights(6, 3, 5, gate), a_mask(kind, n, n)
    expected = by_loops(x, direction, mask, w, gate)
    assert error(triangle_multiplicative_update(x, direction, mask, **w, gate=gate), expected) < 1e-13
    assert error(triangle_multiplicative_update_reference(x, direction, mask, **w, gate=gate), expected) < 1e-13


SHAPES = [(1, 3, 32, 32, 32), (2, 17, 64, 32, 64), (1, 33, 128, 128, 128), (1, 64, 96, 64, 48), (1, 32, 384, 128, 384),
          (2, 1, 256, 256, 256), (1, 100, 16, 16, 16), (1, 65, 17, 5, 33)]  # fmt: skip


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_and_types(shape, dtype):
    """Over the shapes directions, gates, masks and biases take turns."""
    batch, n, d, hidden, out = shape
    at = SHAPES.index(shape) + list(ERROR).index(dtype)
    direction, gate = VARIANTS[at % 4]
    w = weights(d, hidden, out, gate, bias=at % 3 > 0, dtype=dtype)
    x, mask = pairs(batch, n, n, d, dtype=dtype), a_mask(("none", "bool", "number", "zeros")[at // 2 % 4], batch, n, n)
    found = triangle_multiplicative_update(x, direction, mask, **w, gate=gate)
    wide = {name: value.double() for name, value in w.items()}
    expected = triangle_multiplicative_update_reference(x.double(), direction, mask, **wide, gate=gate)
    assert found.dtype == dtype and found.shape == (batch, n, n, out)
    assert error(found, expected) < ERROR[dtype]


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "fp16", "bf16"])
def test_precisions_of_floats(precision):
    x, w = pairs(1, 40, 40, 32, dtype=torch.float32), weights(32, 32, 32, "after", dtype=torch.float32)
    expected = triangle_multiplicative_update_reference(x.double(), **{k: v.double() for k, v in w.items()})
    found = triangle_multiplicative_update(x, **w, precision=precision)
    assert found.dtype == torch.float32 and error(found, expected) < {"fp16": 1.5e-3, "bf16": 8e-3}.get(precision, 1e-6)


def gradients(function, x, mask, w, direction, gate, seed=5):
    tensors = [x, *w.values()] + ([mask] if mask is not None and mask.dtype != torch.bool else [])
    tensors = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    count = 1 + len(w)
    given = dict(zip(w, tensors[1:count], strict=True))
    out = function(tensors[0], direction, tensors[count] if len(tensors) > count else mask, **given, gate=gate)
    weight = pairs(*out.shape, seed=seed).to(out.dtype)
    return out, torch.autograd.grad(out, tensors, weight)


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize(("direction", "gate"), VARIANTS)
@pytest.mark.parametrize("kind", ["none", "bool", "number"])
def test_gradients(direction, gate, kind, dtype):
    w, x = weights(24, 16, 40, gate, dtype=dtype), pairs(2, 13, 13, 24, dtype=dtype)
    mask = a_mask(kind, 2, 13, 13, dtype=F64 if dtype == F64 else torch.float32)
    found = gradients(triangle_multiplicative_update, x, mask, w, direction, gate)
    wide = {name: value.double() for name, value in w.items()}
    mask = mask.double() if kind == "number" else mask
    expected = gradients(triangle_multiplicative_update_reference, x.double(), mask, wide, direction, gate)
    for a, b in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        assert error(a, b) < 2 * ERROR[dtype]


@pytest.mark.parametrize(("direction", "gate"), VARIANTS)
def test_gradcheck(direction, gate):
    w, x, mask = weights(4, 3, 2, gate), pairs(1, 3, 3, 4), a_mask("number", 1, 3, 3)
    tensors = [tensor.requires_grad_() for tensor in (x, mask, *w.values())]

    def update(x, mask, *values):
        # eps: rows of o that are zeros would have derivatives too steep for finite differences.
        given = dict(zip(w, values, strict=True))
        return triangle_multiplicative_update(x, direction, mask, **given, gate=gate, eps=0.1)

    assert torch.autograd.gradcheck(update, tensors)
    with pytest.raises(ClebschError, match="second derivatives are not implemented"):
        first = torch.autograd.grad(update(*tensors).square().sum(), x, create_graph=True)[0]
        first.sum().backward()


def test_some_gradients_only():
    w, x = weights(16, 16, 16, "after"), pairs(1, 5, 5, 16)
    every = gradients(triangle_multiplicative_update, x, None, w, "outgoing", "after")[1]
    x.requires_grad_()
    out = triangle_multiplicative_update(x, **w)
    assert torch.equal(torch.autograd.grad(out, x, pairs(*out.shape, seed=5))[0], every[0])
    w["g_in_bias"].requires_grad_()
    out = triangle_multiplicative_update(x.detach(), **w)
    found = torch.autograd.grad(out, w["g_in_bias"], pairs(*out.shape, seed=5))[0]
    assert torch.equal(found, every[1 + list(w).index("g_in_bias")])
    assert not triangle_multiplicative_update(x.detach(), **w | {"g_in_bias": None}).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", ["cauchy", "large", "shifted", "constant"])
def test_hard_numbers(case, dtype):
    """Heavy tails, large numbers, means that cancel in the norm, rows without variance."""
    x = pairs(1, 24, 24, 32)
    if case == "cauchy":
        x = 2 * torch.tan(3.1415 * (torch.rand(x.shape, generator=torch.Generator().manual_seed(4), dtype=F64) - 0.5))
    x = {"large": x * 1e4, "shifted": x + 1e3, "constant": x[..., :1].expand_as(x)}.get(case, x).to(dtype)
    w = weights(32, 32, 32, "after", dtype=dtype)
    found = triangle_multiplicative_update(x, **w)
    expected = triangle_multiplicative_update_reference(x.double(), **{k: v.double() for k, v in w.items()})
    assert found.isfinite().all() and error(found, expected) < ERROR[dtype] * (5 if case == "shifted" else 1)


@pytest.mark.parametrize("kind", ["bool", "number"])
def test_nothing_leaks_from_behind_a_mask(kind):
    w, x, mask = weights(16, 16, 16, "after"), pairs(1, 9, 9, 16), a_mask(kind, 1, 9, 9)
    clean = torch.where(mask[..., None] == 0, torch.zeros_like(x), x).requires_grad_()
    dirty = torch.where(mask[..., None] == 0, torch.full_like(x, float("nan")), x).requires_grad_()
    seen = mask != 0
    given = [{name: value.clone().requires_grad_() for name, value in w.items()} for _ in range(2)]
    for direction in ("outgoing", "incoming"):
        a = triangle_multiplicative_update(clean, direction, mask, **given[0])
        b = triangle_multiplicative_update(dirty, direction, mask, **given[1])
        assert torch.equal(a[seen], b[seen]) and b[~seen].isnan().all()
        of_a = torch.autograd.grad(a[seen].square().sum(), [clean, *given[0].values()])
        of_b = torch.autograd.grad(b[seen].square().sum(), [dirty, *given[1].values()])
        for first, second in zip(of_a, of_b, strict=True):
            assert torch.equal(first, second)


@pytest.mark.parametrize(("direction", "gate"), VARIANTS)
def test_residues_may_be_permuted(direction, gate):
    x, w, mask = pairs(2, 11, 11, 16), weights(16, 16, 16, gate), a_mask("number", 2, 11, 11)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(6))
    whole = triangle_multiplicative_update(x, direction, mask, **w, gate=gate)
    turned = triangle_multiplicative_update(
        x[:, order][:, :, order], direction, mask[:, order][:, :, order], **w, gate=gate
    )
    assert error(turned, whole[:, order][:, :, order]) < 1e-14


def test_incoming_is_outgoing_of_the_transposed():
    """o of incoming(x) is that of outgoing(x^T); the gate is the output's own, so it is held at a constant."""
    x, w = pairs(1, 9, 9, 16), weights(16, 16, 16, "after")
    w["g_out_weight"] = torch.zeros_like(w["g_out_weight"])
    incoming = triangle_multiplicative_update(x, "incoming", **w)
    assert error(triangle_multiplicative_update(x.transpose(1, 2), "outgoing", **w), incoming) < 1e-14


def test_strides_batches_and_expanded_masks():
    x, w = pairs(2, 3, 7, 7, 16), weights(16, 16, 16, "after")
    whole = triangle_multiplicative_update(x, **w, mask=a_mask("bool", 7, 7))
    assert whole.shape == x.shape
    for a in range(2):
        for b in range(3):
            mask = a_mask("bool", 7, 7)
            assert torch.equal(triangle_multiplicative_update(x[a, b], mask=mask, **w), whole[a, b])
    turned = x.transpose(-2, -3).contiguous().transpose(-2, -3)
    assert torch.equal(triangle_multiplicative_update(turned, mask=a_mask("bool", 7, 7).expand(2, 3, 7, 7), **w), whole)
    odd = torch.empty(x.numel() + 1, dtype=F64)[1:].view(x.shape).copy_(x)
    assert torch.equal(triangle_multiplicative_update(odd, mask=a_mask("bool", 7, 7), **w), whole)


@pytest.mark.parametrize("shape", [(0, 5, 5, 16), (2, 0, 0, 16), (0, 0, 16)])
def test_nothing(shape):
    x, w = torch.zeros(shape, dtype=F64, requires_grad=True), weights(16, 16, 32, "after")
    w = {name: value.requires_grad_() for name, value in w.items()}
    out = triangle_multiplicative_update(x, **w)
    assert out.shape == (*shape[:-1], 32)
    grads = torch.autograd.grad(out.sum(), [x, *w.values()])
    assert grads[0].shape == shape and all((grad == 0).all() for grad in grads)


def digest() -> str:
    """Of results and gradients of every type."""
    made = hashlib.sha256()
    for dtype in ERROR:
        w, x = weights(32, 32, 48, "after", dtype=dtype), pairs(2, 31, 31, 32, dtype=dtype)
        out, grads = gradients(triangle_multiplicative_update, x, None, w, "outgoing", "after")
        for tensor in (out, *grads):
            made.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return made.hexdigest()


def test_the_same_bits():
    """In two runs, and for any number of threads."""
    environment = os.environ | {"OMP_NUM_THREADS": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    program = "import test_triangle; print(test_triangle.digest())"
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    assert found.stdout.strip() == digest() == digest()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    """As torch's linear: computed in autocast's type, which the result has; float64 is left alone."""
    x, w = pairs(1, 9, 9, 16, dtype=torch.float32), weights(16, 16, 16, "after", dtype=torch.float32)
    precision = {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    expected = triangle_multiplicative_update(x, **w, precision=precision).to(dtype)
    w["p_in_weight"].requires_grad_()
    with torch.autocast("cpu", dtype):
        found = triangle_multiplicative_update(x, **w)
        assert torch.equal(found, expected)
        found.float().sum().backward()
        assert triangle_multiplicative_update(x.double(), **weights(16, 16, 16, "after")).dtype == F64
    assert w["p_in_weight"].grad.dtype == torch.float32


def test_mixed_types():
    """x of 16 bits and weights of 32; norms of 32 bits among weights of 16."""
    x, w = pairs(1, 9, 9, 16, dtype=torch.bfloat16), weights(16, 16, 16, "after", dtype=torch.float32)
    expected = triangle_multiplicative_update_reference(x.double(), **{k: v.double() for k, v in w.items()})
    assert error(triangle_multiplicative_update(x, **w), expected) < 8e-3
    mixed = {k: v if k.startswith("norm") else v.bfloat16() for k, v in w.items()}
    assert error(triangle_multiplicative_update(x, **mixed), expected) < 2e-2


def test_errors():
    x, w = pairs(2, 8, 8, 16), weights(16, 32, 48, "after")
    for options, words in (
        ({"x": x[:, :7]}, r"x must be \(..., N, N, D\), got \(2, 7, 8, 16\): its two pair dimensions differ"),
        ({"x": x[0, 0]}, r"x must be \(..., N, N, D\), got \(8, 16\)"),
        ({"x": x.int()}, "x: expected float64, float32, float16 or bfloat16, got Int"),
        ({"x": 1.0}, "x: expected a tensor, got float"),
        ({"x": x.float()}, "float64 both or neither, got Float and Double"),
        ({"direction": "left"}, "direction: expected outgoing or incoming, got 'left'"),
        ({"gate": "both"}, "gate: expected after or before, got 'both'"),
        ({"gate": "before"}, r"gate=before needs an output gate of width H = 32, got 48 \(gate=after is the AlphaFold"),
        ({"g_out_weight": w["g_out_weight"][:32]}, "gate=after needs an output gate of width D_out = 48, got 32"),
        ({"p_in_weight": None}, "p_in_weight is missing"),
        ({"p_in_weight": w["p_in_weight"][:, :8]}, r"p_in_weight must be \(2 H, D\) with D = 16 as x.*got \(64, 8\)"),
        ({"p_in_weight": w["p_in_weight"][:63]}, r"p_in_weight must be \(2 H, D\)"),
        ({"g_in_weight": w["g_in_weight"][:8]}, r"g_in_weight must be \(2 H, D\) = \(64, 16\), got \(8, 16\)"),
        ({"p_out_weight": w["p_out_weight"][:, :8]}, r"p_out_weight must be \(D_out, H\) = \(48, 32\), got \(48, 8\)"),
        ({"norm_in_weight": x[0, 0, 0, :8]}, r"norm_in_weight must be \(D\) = \(16\), got \(8\)"),
        ({"norm_out_bias": x[0, 0, 0]}, r"norm_out_bias must be \(H\) = \(32\), got \(16\)"),
        ({"p_in_bias": x[0, 0, 0]}, r"p_in_bias must be \(2 H\) = \(64\), got \(16\)"),
        ({"g_out_bias": x[0, 0, 0]}, r"g_out_bias must be \(D_out\) = \(48\), got \(16\)"),
        ({"p_out_weight": x[0, 0, 0]}, "p_out_weight must be a matrix"),
        ({"p_in_bias": w["p_in_bias"].float()}, "p_in_bias: expected Double as p_in_weight, got Float: convert one"),
        ({"mask": torch.ones(2, 7, 8)}, r"mask must be \(..., N, N\) = \(2, 8, 8\) as x.*got \(2, 7, 8\)"),
        ({"precision": "fp8"}, "precision: expected ieee or tf32 or tf32x3 or fp16 or bf16, got 'fp8'"),
        ({"precision": "tf32"}, "float64 tensors are computed in IEEE double precision, got 'tf32'"),
        ({"eps": -1.0}, "eps: expected a number that is not negative, got -1"),
    ):  # fmt: skip
        with pytest.raises(ClebschError, match=words):
            triangle_multiplicative_update(**{"x": x} | w | options)
