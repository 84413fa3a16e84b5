"""clebsch.triangle on a GPU against torch's composition in float64: precisions and types, odd sizes, the tests of the
TriMul leaderboard, numbers that are hard to sum, masks, 2^31 elements, memory, bits of two runs, CUDA graphs,
torch.compile and autocast, errors, cuEquivariance where it is installed. Gradients: test_triangle_backward.py."""

from __future__ import annotations

import pytest
import torch

from clebsch import ClebschError
from clebsch.triangle import triangle_multiplicative_update, triangle_multiplicative_update_reference

pytestmark = pytest.mark.gpu
VARIANTS = [(direction, gate) for direction in ("outgoing", "incoming") for gate in ("after", "before")]
#: Root mean square errors in that of what is right.
ERROR = {"double": 1e-12, "ieee": 3e-6, "tf32x3": 1e-5, "tf32": 1e-3, "fp16": 1.5e-3, "bf16": 8e-3}
OF_TYPE = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def weights(d, hidden, out, gate, device, dtype=torch.float32, bias=True, seed=1) -> dict[str, torch.Tensor]:
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=random, device=device, dtype=torch.float64)

    gates = hidden if gate == "before" else out
    made = {"norm_in_weight": normal(d), "norm_in_bias": normal(d)}
    made |= {"norm_out_weight": normal(hidden), "norm_out_bias": normal(hidden)}
    for name, rows, columns in (
        ("p_in", 2 * hidden, d),
        ("g_in", 2 * hidden, d),
        ("p_out", out, hidden),
        ("g_out", gates, d),
    ):
        made[f"{name}_weight"] = normal(rows, columns) / columns**0.5
        if bias:
            made[f"{name}_bias"] = normal(rows)
    return {name: value.to(dtype) for name, value in made.items()}


def pairs(*shape, device, dtype=torch.float32, seed=2) -> torch.Tensor:
    random = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=random, device=device, dtype=torch.float32).to(dtype)


def a_mask(kind, *shape, device) -> torch.Tensor | None:
    some = torch.rand(shape, generator=torch.Generator(device).manual_seed(3), device=device)
    if kind == "none":
        return None
    if kind == "bool":
        return some > 0.3
    return torch.zeros_like(some) if kind == "zeros" else some * (some > 0.3)


def error(found, expected) -> float:
    return ((found.double() - expected).square().mean().sqrt() / (expected.square().mean().sqrt() + 1e-300)).item()


@torch.no_grad()
def exact(x, direction, mask, w, gate):
    wide = {name: value.double() for name, value in w.items()}
    return triangle_multiplicative_update_reference(x.double(), direction, mask, **wide, gate=gate)


def check(x, w, direction="outgoing", mask=None, gate="after", precision=None, bound=None) -> torch.Tensor:
    found = triangle_multiplicative_update(x, direction, mask, **w, precision=precision, gate=gate)
    assert found.dtype == x.dtype
    limit = bound or ERROR[precision or OF_TYPE.get(x.dtype, "double" if x.dtype == torch.float64 else "ieee")]
    size = error(found, exact(x, direction, mask, w, gate))
    assert size < limit, (size, limit)
    return found


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "tf32", "fp16", "bf16"])
@pytest.mark.parametrize(("direction", "gate"), VARIANTS)
def test_precisions(precision, direction, gate, device):
    at = VARIANTS.index((direction, gate))
    x, mask = (
        pairs(2, 96, 96, 128, device=device),
        a_mask(("none", "bool", "number", "number")[at], 2, 96, 96, device=device),
    )
    check(x, weights(128, 128, 128, gate, device), direction, mask, gate, precision)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("direction", "gate"), VARIANTS)
def test_types(dtype, direction, gate, device):
    """x and weights of 16 bits; x alone."""
    x, mask = pairs(1, 100, 100, 128, device=device, dtype=dtype), a_mask("bool", 1, 100, 100, device=device)
    w = weights(128, 128, 128, gate, device, dtype)
    check(x, w, direction, mask, gate)
    check(x, {name: value.float() for name, value in w.items()}, direction, None, gate)
    if (direction, gate) == VARIANTS[0]:
        x, w = (
            pairs(1, 40, 40, 48, device=device, dtype=torch.float64),
            weights(48, 32, 16, gate, device, torch.float64),
        )
        check(x, w, direction, mask[:, :40, :40], gate)


SHAPES = [(2, 1, 128, 128, 128), (1, 2, 128, 128, 128), (1, 3, 32, 32, 32), (2, 17, 64, 32, 64), (1, 33, 96, 64, 128),
          (2, 64, 256, 128, 256), (1, 100, 384, 128, 384), (1, 129, 128, 256, 64), (1, 65, 768, 128, 768),
          (3, 40, 48, 80, 16), (1, 300, 128, 128, 128)]  # fmt: skip


@pytest.mark.sanitize
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape, device):
    """Over the shapes directions, gates, masks and biases take turns."""
    batch, n, d, hidden, out = shape
    at = SHAPES.index(shape)
    kind, (direction, gate) = ("none", "bool", "number", "zeros")[at // 2 % 4], VARIANTS[at % 4]
    x, mask = pairs(batch, n, n, d, device=device), a_mask(kind, batch, n, n, device=device)
    w = weights(d, hidden, out, gate, device, bias=at % 3 > 0)
    for precision in ("fp16", "bf16", "tf32x3"):
        check(x, w, direction, mask, gate, precision)


LEADERBOARD = [(32, 1, 128, False), (32, 1, 128, True), (64, 2, 256, False), (64, 2, 256, True), (128, 1, 768, False),
               (256, 1, 128, True), *(pytest.param(case, marks=pytest.mark.alone) for case in (
                   (768, 2, 128, False), (1024, 1, 384, True), (1024, 1, 768, False)))]  # fmt: skip


@pytest.mark.parametrize("law", ["normal", "cauchy"])
@pytest.mark.parametrize("case", LEADERBOARD, ids=str)
def test_leaderboard(case, law, device):
    """The 18 tests of the TriMul leaderboard by its own limit, 2e-2 absolute and relative, and by ours."""
    n, batch, d, masked = case
    if device == "cpu" and n > 128:
        pytest.skip("too slow: some 10^12 operations in float64")
    random = torch.Generator(device).manual_seed(n + d)
    x = torch.empty(batch, n, n, d, device=device)
    x = x.normal_(generator=random) if law == "normal" else x.cauchy_(0, 2, generator=random)
    mask = (torch.rand(batch, n, n, generator=random, device=device) > 0.5).float() if masked else None

    def normal(*shape, scale=1.0):
        return torch.randn(shape, generator=random, device=device) * scale

    w = {"norm_in_weight": normal(d), "norm_in_bias": normal(d)}
    w |= {"norm_out_weight": normal(128), "norm_out_bias": normal(128)}
    w |= {
        name: normal(rows, d, scale=128**-0.5)
        for name, rows in (("p_in_weight", 256), ("g_in_weight", 256), ("g_out_weight", 128))
    }
    w["p_out_weight"] = normal(d, 128, scale=d**-0.5)
    found = check(x, w, "outgoing", mask, "before", "fp16")
    expected = exact(x, "outgoing", mask, w, "before")
    assert torch.allclose(found.double(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("precision", ["ieee", "fp16", "bf16"])
@pytest.mark.parametrize("case", ["cauchy", "large", "shifted", "constant", "coherent"])
def test_hard_numbers(case, precision, device):
    x, w = pairs(1, 200, 200, 128, device=device), weights(128, 128, 128, "after", device)
    if case == "cauchy":
        x = x.cauchy_(0, 2, generator=torch.Generator(device).manual_seed(4))
    if case == "coherent":  # all terms of the sums over k have one sign: they overflow fp16 unless they are scaled
        w["p_in_bias"] = 30 * torch.ones_like(w["p_in_bias"])
        w["g_in_bias"] = 9 * torch.ones_like(w["g_in_bias"])
    x = {"large": x * 1e4, "shifted": x + 1e3, "constant": x[..., :1].expand_as(x)}.get(case, x)
    # Channels that are almost equal: what the norm leaves of them has the rounding of their common size.
    bounds = {("coherent", "ieee"): 1e-4, ("coherent", "fp16"): 0.02, ("coherent", "bf16"): 0.1}
    bound = (bounds | {("shifted", "ieee"): 1e-4, ("constant", "ieee"): 1e-4}).get((case, precision))
    assert check(x, w, precision=precision, bound=bound).isfinite().all()


@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16"])
@pytest.mark.parametrize("kind", ["bool", "number"])
def test_nothing_leaks_from_behind_a_mask(kind, precision, device):
    w, x = weights(128, 128, 128, "after", device), pairs(1, 70, 70, 128, device=device)
    mask = a_mask(kind, 1, 70, 70, device=device)
    dirty = torch.where(mask[..., None] == 0, torch.full_like(x, float("nan")), x)
    seen = mask != 0
    for direction in ("outgoing", "incoming"):
        a = triangle_multiplicative_update(x, direction, mask, **w, precision=precision)
        b = triangle_multiplicative_update(dirty, direction, mask, **w, precision=precision)
        assert torch.equal(a[seen], b[seen])


@pytest.mark.parametrize(("direction", "gate"), VARIANTS)
def test_residues_may_be_permuted(direction, gate, device):
    x, w, mask = (
        pairs(1, 77, 77, 64, device=device),
        weights(64, 64, 64, gate, device),
        a_mask("number", 1, 77, 77, device=device),
    )
    order = torch.randperm(77, generator=torch.Generator().manual_seed(6)).to(device)
    whole = triangle_multiplicative_update(x, direction, mask, **w, gate=gate, precision="bf16").double()
    x, mask = x[:, order][:, :, order], mask[:, order][:, :, order]
    found = triangle_multiplicative_update(x, direction, mask, **w, gate=gate, precision="bf16")
    assert error(found, whole[:, order][:, :, order]) < 8e-3


def test_strides_batches_and_nothing(device):
    x, w = pairs(2, 3, 24, 24, 64, device=device), weights(64, 64, 64, "after", device)
    mask = a_mask("bool", 24, 24, device=device)
    whole = triangle_multiplicative_update(x, mask=mask, **w, precision="bf16")
    assert torch.equal(triangle_multiplicative_update(x[1, 2], mask=mask, **w, precision="bf16"), whole[1, 2])
    turned = x.transpose(-2, -3).contiguous().transpose(-2, -3)
    assert torch.equal(
        triangle_multiplicative_update(turned, mask=mask.expand(2, 3, 24, 24), **w, precision="bf16"), whole
    )
    odd = torch.empty(x.numel() + 1, device=device)[1:].view(x.shape).copy_(x)
    assert torch.equal(triangle_multiplicative_update(odd, mask=mask, **w, precision="bf16"), whole)
    for shape in ((0, 5, 5, 64), (2, 0, 0, 64)):
        assert triangle_multiplicative_update(torch.zeros(shape, device=device), **w).shape == shape


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "fp16", "bf16"])
def test_the_same_bits(precision, device):
    """In two runs, and whether operands are kept for a gradient or lie in the result's memory."""
    x, w = pairs(1, 256, 256, 128, device=device), weights(128, 128, 128, "after", device)
    first, second = (triangle_multiplicative_update(x, **w, precision=precision) for _ in range(2))
    assert torch.equal(first, second)
    kept = triangle_multiplicative_update(x.requires_grad_(), **w, precision=precision)
    assert kept.requires_grad and error(kept.detach(), first.double()) < 1e-6


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_call_of_a_size_where_blocks_take_many_parts(dtype, masked, device):
    """A row that was overwritten before it was read changes one part in a thousand: only every bit shows it."""
    x, w = pairs(1, 384, 384, 128, device=device).to(dtype), weights(128, 128, 128, "after", device)
    mask = a_mask("bool", 1, 384, 384, device=device) if masked else None
    precision = "fp16" if dtype == torch.float16 else "bf16"
    exact = triangle_multiplicative_update(x.float(), mask=mask, **w, precision="ieee")
    calls = [triangle_multiplicative_update(x, mask=mask, **w, precision=precision) for _ in range(6)]
    assert all(torch.equal(call, calls[0]) for call in calls[1:])
    assert error(calls[0], exact.double()) < (8e-4 if precision == "fp16" else 5e-3)


@torch.no_grad()
def rows_of_the_result(x, w, rows, columns) -> torch.Tensor:
    """Of the outgoing update in float64, at some rows and columns of a large x (1, N, N, D)."""
    wide = {name: value.double() for name, value in w.items()}
    d, hidden = x.shape[-1], w["norm_out_weight"].shape[0]

    def normal(part):
        return torch.nn.functional.layer_norm(part.double(), (d,), wide["norm_in_weight"], wide["norm_in_bias"])

    def project(part, half):
        name = slice(half * hidden, (half + 1) * hidden)
        p = normal(part) @ wide["p_in_weight"][name].T + wide["p_in_bias"][name]
        return p * (normal(part) @ wide["g_in_weight"][name].T + wide["g_in_bias"][name]).sigmoid()

    o = torch.einsum("ikh,jkh->ijh", project(x[0, rows], 0), project(x[0, columns], 1))
    o = torch.nn.functional.layer_norm(o, (hidden,), wide["norm_out_weight"], wide["norm_out_bias"])
    gates = normal(x[0, rows][:, columns]) @ wide["g_out_weight"].T + wide["g_out_bias"]
    return (o @ wide["p_out_weight"].T + wide["p_out_bias"]) * gates.sigmoid()


@pytest.mark.alone
def test_two_to_the_31_elements(device):
    """N = 4096, D = 128: offsets need more than 32 bits."""
    if device == "cpu":
        pytest.skip("a GPU's memory and speed are needed: 10^13 operations")
    if torch.cuda.mem_get_info()[0] < 30 << 30:
        pytest.skip("28 GB of the GPU's memory are needed")
    x = pairs(1, 4096, 4096, 128, device=device, dtype=torch.bfloat16)
    w = weights(128, 128, 128, "after", device)
    out = triangle_multiplicative_update(x, **w)
    some = torch.tensor([0, 1, 2047, 3000, 4094, 4095], device=device)
    assert error(out[0, some][:, some], rows_of_the_result(x, w, some, some)) < ERROR["bf16"]
    assert out.isfinite().all()


@pytest.mark.alone
def test_memory(device):
    """Without gradients: x, the result with the left operand in its memory, the right operand and o."""
    if device == "cpu":
        pytest.skip("the CPU's memory is not counted by torch")
    x, w = pairs(1, 1024, 1024, 128, device=device, dtype=torch.bfloat16), weights(128, 128, 128, "after", device)
    triangle_multiplicative_update(x[:, :64, :64], **w)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() - x.nbytes
    triangle_multiplicative_update(x, **w)
    sizes = (torch.cuda.max_memory_allocated() - before) / x.nbytes
    assert sizes < 4.2, sizes


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_capture_in_a_graph(precision, device):
    if device == "cpu":
        pytest.skip("a CPU has no CUDA graphs")
    x, w = pairs(1, 128, 128, 128, device=device), weights(128, 128, 128, "after", device)
    expected = triangle_multiplicative_update(x, **w, precision=precision)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = triangle_multiplicative_update(x, **w, precision=precision)
    out.zero_()
    graph.replay()
    assert torch.equal(out, expected)
    other = pairs(1, 128, 128, 128, device=device, seed=9)
    expected = triangle_multiplicative_update(other, **w, precision=precision)
    x.copy_(other)
    graph.replay()
    assert torch.equal(out, expected)


def test_compile_and_autocast(device):
    x, w = pairs(1, 64, 64, 128, device=device), weights(128, 128, 128, "after", device)

    def loss(x):
        return triangle_multiplicative_update(x * 2, "incoming", **w, precision="tf32x3").sin().sum()

    x.requires_grad_()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    (expected,), (found,) = torch.autograd.grad(loss(x), x), torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(found, expected)
    with torch.autocast(device, torch.bfloat16):
        out = triangle_multiplicative_update(x, **w)
    assert out.dtype == torch.bfloat16 and error(out, exact(x, "outgoing", None, w, "after")) < ERROR["bf16"]


def test_errors(device):
    if device == "cpu":
        pytest.skip("the CPU takes any width")
    x, w = pairs(1, 8, 8, 24, device=device), weights(24, 32, 32, "after", device)
    with pytest.raises(ClebschError, match="on a GPU D must be a multiple of 16, got 24: pad it to 32"):
        triangle_multiplicative_update(x, **w)
    x, w = pairs(1, 8, 8, 32, device=device), weights(32, 32, 32, "after", "cpu")
    with pytest.raises(ClebschError, match="expected a tensor on cuda:0 as x, got one on cpu"):
        triangle_multiplicative_update(x, **w)


def test_against_cuequivariance(device):
    """The same function by the same arguments, where cuEquivariance is installed."""
    if device == "cpu":
        pytest.skip("cuEquivariance's kernels are for GPUs")
    peer = pytest.importorskip("cuequivariance_torch").triangle_multiplicative_update
    for dtype in (torch.float32, torch.bfloat16):
        w, mask = weights(128, 128, 128, "after", device, dtype), a_mask("bool", 1, 256, 256, device=device).to(dtype)
        x = pairs(1, 256, 256, 128, device=device, dtype=dtype)
        for direction in ("outgoing", "incoming"):
            theirs = peer(x, direction, mask, **w).double()
            ours = triangle_multiplicative_update(
                x, direction, mask, **w, precision="bf16" if dtype.itemsize == 2 else "tf32"
            )
            assert error(ours, theirs) < (1.5e-2 if dtype == torch.bfloat16 else 3e-3)
