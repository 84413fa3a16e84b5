"""Gradients of clebsch.triangle on a GPU against torch's composition in float64: precisions, directions, gate orders,
masks, sizes that the fused kernels take and others; bits of two runs; capture in a CUDA graph."""

from __future__ import annotations

import pytest
import torch

from clebsch.triangle import triangle_multiplicative_update, triangle_multiplicative_update_reference

pytestmark = pytest.mark.gpu
# Root mean square errors of the output and of gradients, in those of what is right.
ERROR = {"double": (1e-12, 1e-11), "ieee": (2e-6, 1e-5), "tf32x3": (1e-5, 3e-5), "tf32": (2e-3, 4e-3),
         "fp16": (2e-3, 4e-3), "bf16": (1.5e-2, 3e-2)}  # fmt: skip


def tensors(n, d, hidden, out, *, batch=1, gate="after", mask="number", biases=True, x_dtype=torch.float32,
            weight_dtype=torch.float32, device="cuda", seed=1):  # fmt: skip
    random = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(shape, generator=random, dtype=torch.float64)  # noqa: E731
    gates = out if gate == "after" else hidden
    shapes = {"p_in": (2 * hidden, d), "g_in": (2 * hidden, d), "p_out": (out, hidden), "g_out": (gates, d)}
    weights = {}
    for name, shape in shapes.items():
        weights[name + "_weight"] = normal(*shape) / shape[1] ** 0.5
        if biases:
            weights[name + "_bias"] = 0.3 * normal(shape[0])
    if biases:
        for name, width in (("norm_in", d), ("norm_out", hidden)):
            weights[name + "_weight"] = 1 + 0.2 * normal(width)
            weights[name + "_bias"] = 0.2 * normal(width)
    weights = {name: w.to(device, weight_dtype).requires_grad_() for name, w in weights.items()}
    x = (normal(batch, n, n, d) + 0.5).to(device, x_dtype).requires_grad_()
    entries = None
    if mask in ("number", "fixed"):  # fixed: its gradient is not wanted, which other kernels take
        entries = (torch.rand(batch, n, n, generator=random) - 0.1).clamp(min=0).to(device)
        entries.requires_grad_(mask == "number")
    elif mask == "bool":
        entries = (torch.rand(batch, n, n, generator=random) > 0.1).to(device)
    grad = normal(batch, n, n, out).to(device, x_dtype)
    return x, entries, weights, grad


def run(update, x, mask, weights, grad, **options):
    wanted = [t for t in (x, mask, *weights.values()) if t is not None and t.requires_grad]
    out = update(x, mask=mask, **weights, **options)
    return [out, *torch.autograd.grad(out, wanted, grad.to(out.dtype))]


def error(found, expected) -> float:
    scale = expected.double().square().mean().sqrt() + 1e-300
    return ((found.double() - expected.double()).square().mean().sqrt() / scale).item()


def compare(precision, device, n, d, hidden, out, direction="outgoing", gate="after", size=1.0, errors=None,
            **options) -> None:  # fmt: skip
    x, mask, weights, grad = tensors(n, d, hidden, out, gate=gate, device=device, **options)
    found = run(triangle_multiplicative_update, x, mask, weights, size * grad, direction=direction, gate=gate,
                precision=None if precision == "double" else precision)  # fmt: skip
    wide = lambda t: t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t  # noqa: E731
    expected = run(triangle_multiplicative_update_reference, wide(x), None if mask is None else wide(mask),
                   {name: wide(w) for name, w in weights.items()}, size * grad.double(), direction=direction,
                   gate=gate)  # fmt: skip
    names = [
        "out",
        *[name for name, t in (("x", x), ("mask", mask), *weights.items()) if t is not None and t.requires_grad],
    ]
    of_out, of_gradients = ERROR[errors or precision]
    all_errors = {name: error(a, b) for name, a, b in zip(names, found, expected, strict=True)}
    bad = {name: e for name, e in all_errors.items() if not e < (of_out if name == "out" else of_gradients)}
    assert not bad, bad


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "tf32", "fp16", "bf16"])
@pytest.mark.parametrize("gate", ["after", "before"])
@pytest.mark.parametrize("direction", ["outgoing", "incoming"])
def test_precisions(precision, gate, direction, device):
    compare(precision, device, 48, 128, 128, 128, direction, gate, batch=2)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(("n", "d", "hidden", "out"), [(33, 128, 128, 128), (64, 48, 32, 80), (40, 64, 96, 32),
                                                       (100, 128, 64, 128), (72, 384, 128, 384)])  # fmt: skip
def test_sixteen_bits(precision, n, d, hidden, out, device):
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    compare(precision, device, n, d, hidden, out, x_dtype=dtype, weight_dtype=dtype, mask="bool")
    compare(precision, device, n, d, hidden, out, "incoming", mask="number", biases=False)


@pytest.mark.parametrize(("n", "batch"), [(8, 1), (24, 3), (136, 1), (200, 2)])
@pytest.mark.parametrize("mask", [None, "bool", "fixed"])
@pytest.mark.parametrize("x_bits", [16, 32])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_widths_of_128(precision, x_bits, mask, n, batch, device):
    """Kernels by warpgroups that sum for the weights themselves: warpgroups without a tile, several tiles, batches."""
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    compare(precision, device, n, 128, 128, 128, ("outgoing", "incoming")[batch % 2], batch=batch, mask=mask,
            x_dtype=half if x_bits == 16 else torch.float32, weight_dtype=half, biases=n != 24)  # fmt: skip


@pytest.mark.parametrize(("precision", "x_dtype"), [("fp16", torch.bfloat16), ("bf16", torch.float16)])
def test_x_of_the_other_sixteen_bits(precision, x_dtype, device):
    compare(precision, device, 72, 128, 128, 128, mask="bool", x_dtype=x_dtype, errors="bf16")


@pytest.mark.parametrize("mask", ["bool", "fixed", "number"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_nothing_leaks_from_behind_a_mask(precision, mask, device):
    x, entries, weights, grad = tensors(40, 128, 128, 128, mask=mask, device=device)
    hidden = (entries == 0).detach()
    grad[hidden] = 0  # of the output's gate, which has the x of its own pair
    found = []
    for what in (0.0, float("nan"), float("inf"), 1e30):
        there = x.detach().clone()
        there[hidden] = what
        gradients = run(triangle_multiplicative_update, there.requires_grad_(), entries, weights, grad,
                        precision=precision)  # fmt: skip
        found.append(gradients[-len(weights) :])
    for others in found[1:]:
        for name, a, b in zip(weights, others, found[0], strict=True):
            assert error(a, b) < ERROR[precision][1], name


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("mask", ["bool", "fixed"])
@pytest.mark.parametrize("precision", ["fp16", "bf16", "tf32"])
def test_masked_rows_without_a_deviation(precision, mask, width, device):
    """Without an eps 1 / deviation of padding is infinite."""
    x, entries, weights, grad = tensors(40, width, width, width, mask=mask, device=device)
    hidden = (entries == 0).detach()
    grad[hidden] = 0
    padded = x.detach().clone()
    padded[hidden] = 2.0
    expected, found = (run(triangle_multiplicative_update, rows, entries, weights, grad, precision=precision, eps=0.0)
                       for rows in (x, padded.requires_grad_()))  # fmt: skip
    names = ["x", *weights]
    expected[1][hidden] = found[1][hidden] = 0
    for name, a, b in zip(names, found[1:], expected[1:], strict=True):
        assert error(a, b) < ERROR[precision][1], name


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("x_bits", [16, 32])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_row_that_is_no_number(precision, x_bits, width, device):
    """Without a mask: all that depends on it is no number either, and nothing else."""
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    x, _, weights, grad = tensors(24, width, width, width, batch=2, mask=None, device=device,
                                  x_dtype=half if x_bits == 16 else torch.float32)  # fmt: skip
    with torch.no_grad():
        x[0, 5, 9] = float("nan")
    grad[grad == 0] = 1
    found = run(triangle_multiplicative_update, x, None, weights, grad, precision=precision)
    wide = {name: w.detach().double().requires_grad_() for name, w in weights.items()}
    expected = run(triangle_multiplicative_update_reference, x.detach().double().requires_grad_(), None, wide,
                   grad.double())  # fmt: skip
    for name, a, b in zip(["out", "x", *weights], found, expected, strict=True):
        assert torch.equal(a.isnan(), b.isnan()), name
    if device == "cpu":
        return
    # Kernels on a GPU keep a gradient of 0.
    grad[0, 5, :, 3] = 0
    grad[0, :, 5, 3] = 0
    found = run(triangle_multiplicative_update, x, None, weights, grad, precision=precision)
    finite = (torch.arange(width, device=device) == 3).tolist()
    for name, t in zip(["out", "x", *weights], found, strict=True):
        if name in ("p_out_bias", "g_out_bias"):
            assert t.isfinite().tolist() == finite, name


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("mask", ["bool", "fixed"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_only_what_is_wanted(precision, mask, width, device):
    """Whatever else is wanted, a gradient is the same bits."""
    x, entries, weights, grad = tensors(40, width, width, width, mask=mask, device=device)
    given = {"x": x, **weights}
    everything = dict(zip(given, run(triangle_multiplicative_update, x, entries, weights, grad,
                                     precision=precision)[1:], strict=True))  # fmt: skip
    for wanted in (["x"], list(weights), ["g_in_weight", "norm_out_bias"], ["x", "p_out_weight", "norm_in_weight"],
                   ["g_out_bias"], ["p_in_bias", "g_out_weight"]):  # fmt: skip
        for name, t in given.items():
            t.requires_grad_(name in wanted)
        found = run(triangle_multiplicative_update, x, entries, weights, grad, precision=precision)[1:]
        for name, a in zip([name for name in given if name in wanted], found, strict=True):
            assert torch.equal(a, everything[name]), (name, wanted)


@pytest.mark.parametrize("larger", [1, 16])
@pytest.mark.parametrize("width", [64, 96, 128])
@pytest.mark.parametrize("mask", ["bool", "fixed", "number"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_padded_lines(precision, mask, width, larger, device):
    """A padded row of o is zeros, so that its gradient is large, for large weights more than float16 has; nothing of
    that may be seen."""
    x, entries, weights, _ = tensors(128, width, width, width, mask=mask, device=device)
    with torch.no_grad():
        entries[:, 96:] = 0
        entries[:, :, 96:] = 0
        weights["p_out_weight"] *= larger
    grad = torch.ones(1, 128, 128, width, device=device)
    found = run(triangle_multiplicative_update, x, entries, weights, grad, precision=precision)
    names = ["out", "x", *(["mask"] if mask == "number" else []), *weights]
    for name, t in zip(names, found, strict=True):
        if name != "mask":
            assert torch.isfinite(t).all(), name


@pytest.mark.sanitize
@pytest.mark.parametrize(("precision", "width"), [("tf32x3", 32), ("fp16", 48), ("fp16", 64), ("bf16", 64)])
def test_every_kernel(precision, width, device):
    compare(precision, device, 16, width, width, width)


@pytest.mark.parametrize("gate", ["after", "before"])
def test_double(gate, device):
    compare("double", device, 19, 48, 32, 16, gate=gate, x_dtype=torch.float64, weight_dtype=torch.float64, mask=None)


@pytest.mark.parametrize("x_dtype", [torch.float32, torch.bfloat16])
def test_many_tiles(x_dtype, device):
    """Every warpgroup has several tiles of rows, and not all have as many."""
    compare("bf16", device, 136, 128, 128, 128, "incoming", x_dtype=x_dtype, weight_dtype=torch.bfloat16)


@pytest.mark.parametrize("size", [1e-8, 1e6])
@pytest.mark.parametrize("mask", ["number", "fixed"])
def test_gradients_of_any_size_in_fp16(mask, size, device):
    compare("fp16", device, 64, 128, 128, 128, size=size, mask=mask)


@pytest.mark.alone
def test_many_rows(device):
    """More than one chunk of rows."""
    if device == "cpu":
        pytest.skip("too slow: some 10^12 operations in float64")
    compare("bf16", device, 600, 128, 128, 128, x_dtype=torch.bfloat16, weight_dtype=torch.bfloat16, mask="bool")
    compare("tf32x3", device, 320, 128, 64, 64)


@pytest.mark.alone
def test_more_than_two_to_the_31_numbers(device):
    """Offsets in tensors of 17 times the same item."""
    if device == "cuda":
        torch.cuda.empty_cache()
    if device == "cpu" or torch.cuda.mem_get_info()[0] < 70e9:
        pytest.skip("takes 60 GB of a GPU's memory")
    x, mask, weights, grad = tensors(1024, 128, 128, 128, mask="bool", device=device, x_dtype=torch.bfloat16,
                                     weight_dtype=torch.bfloat16)  # fmt: skip
    one = run(triangle_multiplicative_update, x, mask, weights, grad, precision="bf16")
    many = lambda t: t.detach().expand(17, *t.shape[1:]).contiguous()  # noqa: E731
    found = run(triangle_multiplicative_update, many(x).requires_grad_(), many(mask), weights, many(grad),
                precision="bf16")  # fmt: skip
    for name, all_items, item in (("out", found[0], one[0]), ("x", found[1], one[1])):
        for i in (0, 15, 16):
            assert torch.equal(all_items[i], all_items[0]), (name, i)
            assert error(all_items[i], item[0]) < ERROR["bf16"][1], (name, i)
    for name, a, b in zip(weights, found[2:], one[2:], strict=True):
        assert error(a, 17 * b.double()) < ERROR["bf16"][1], name


@pytest.mark.parametrize(("precision", "kind", "n", "batch"),
                         [("ieee", "number", 96, 1), ("tf32", "bool", 96, 1), ("bf16", "number", 96, 1),
                          ("bf16", "bool", 96, 1), ("fp16", "fixed", 96, 1), ("bf16", "fixed", 200, 2),
                          ("fp16", "bool", 200, 2)])  # fmt: skip
def test_two_runs_give_the_same_bits(precision, kind, n, batch, device):
    """With n of 200 every warpgroup has several tiles, so that memory is used again."""
    x, mask, weights, grad = tensors(n, 128, 128, 128, batch=batch, mask=kind, device=device)
    first, second = (run(triangle_multiplicative_update, x, mask, weights, grad, precision=precision)
                     for _ in range(2))  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_in_a_cuda_graph(device):
    if device != "cuda":
        pytest.skip("a CPU has no CUDA graphs")
    x, mask, weights, grad = tensors(64, 128, 128, 128, mask="fixed")
    for precision in ("bf16", "tf32"):
        step = lambda: run(triangle_multiplicative_update, x, mask, weights, grad, precision=precision)  # noqa: B023, E731
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            expected = [t.clone() for t in step()]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step()
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
