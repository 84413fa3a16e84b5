"""Streamed attention on a GPU against the formula in float64: dtypes, sizes, masks, biases, multiplicity, offsets,
softmax, gradients, numbers at the ends of 16 bits, bits of two runs, graph capture."""

from __future__ import annotations

import pytest
import torch

from clebsch.attention import spherical_attention, stream_attention, stream_attention_reference

pytestmark = pytest.mark.gpu
#: Weights are rounded to 16 bits before they meet the values, and out once more.
ERROR = {torch.float64: 1e-12, torch.float32: 3e-7, torch.float16: 6e-4, torch.bfloat16: 5e-3}


def normal(shape, dtype, device, seed):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random, dtype=torch.float32).to(device=device, dtype=dtype)


def tensors(batch, heads, key_heads, queries, keys, d, dv, dtype, device):
    shapes = (batch, heads, queries, d), (batch, key_heads, keys, d), (batch, key_heads, keys, dv)
    return [normal(shape, dtype, device, seed) for seed, shape in enumerate(shapes)]


def errors(found, expected) -> list[float]:
    """Root mean squares of the differences in those of the expected numbers."""
    result = []
    for a, b in zip(found, expected, strict=True):
        scale = b.double().square().mean().sqrt() + 1e-300
        result.append(((a.double() - b.double()).square().mean().sqrt() / scale).item() if b.numel() else 0.0)
    return result


def compare(q, k, v, *, multiplicity=None, offsets=None, eps=0.0, mask=None, bias=None, normalise="l2", bound=None,
            gradients=True) -> None:  # fmt: skip
    bound = bound or ERROR[q.dtype]
    x = [None if t is None else t.detach().clone().requires_grad_() for t in (q, k, v, multiplicity, bias)]
    y = [None if t is None else t.detach().double().requires_grad_() for t in (q, k, v, multiplicity, bias)]
    wide = mask if mask is None or mask.dtype == torch.bool else mask.double()
    found = stream_attention(*x[:4], offsets, eps, mask, x[4], normalise)
    expected = stream_attention_reference(*y[:4], offsets, eps, wide, y[4], normalise)
    assert max(errors(found, expected)) <= bound, errors(found, expected)
    if not gradients:
        return
    weight, of_norm = normal(found[0].shape, q.dtype, q.device, 8), normal(found[1].shape, found[1].dtype, q.device, 9)
    a = torch.autograd.grad((found[0] * weight).sum() + (found[1] * of_norm).sum(), [t for t in x if t is not None])
    b = torch.autograd.grad(
        (expected[0] * weight.double()).sum() + (expected[1] * of_norm.double()).sum(), [t for t in y if t is not None]
    )
    assert max(errors(a, b)) <= 3 * bound, errors(a, b)


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize(("d", "dv"), [(8, 16), (40, 32), (64, 64), (128, 128), (16, 112), (80, 256)])
def test_sizes_and_groups(dtype, d, dv, device):
    compare(*tensors(2, 4, 2, 333, 525, d, dv, dtype, device))


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("keys", [0, 1, 2, 63, 65, 128, 300])
def test_lengths(dtype, keys, device):
    compare(*tensors(1, 2, 1, 137, keys, 64, 64, dtype, device), eps=0.1, bound=2e-3)
    compare(*tensors(1, 1, 1, keys, 50, 32, 32, dtype, device), bound=2e-3)


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("mask", [None, "bool", "number"])
def test_masks_and_biases(dtype, d, mask, device):
    q, k, v = tensors(2, 4, 2, 200, 264, d, d, dtype, device)
    for shape in ((2, 4, 200, 264), (200, 264), (4, 1, 264), (200, 1)):
        masks = {"bool": normal(shape, torch.float32, device, 5) > 0, "number": normal(shape, dtype, device, 6)}
        compare(q, k, v, eps=0.1, mask=masks.get(mask), bias=normal(shape, dtype, device, 7))
        if mask:
            compare(q, k, v, eps=0.1, mask=masks[mask])


@pytest.mark.parametrize("d", [32, 64, 128])
def test_masks_of_bytes(d, device):
    """Rows of a mask that begin at a multiple of 16 bytes take a way of their own."""
    q, k, v = tensors(2, 4, 2, 200, 272, d, d, torch.float16, device)
    for shape in ((2, 4, 200, 272), (200, 272), (272,)):
        compare(q, k, v, eps=0.1, mask=normal(shape, torch.float32, device, 5) > 0)


def test_strides(device):
    """Expanded, transposed and misaligned masks and biases are read in place."""
    q, k, v = tensors(2, 4, 2, 200, 300, 64, 64, torch.float16, device)
    bias = normal((300, 200), torch.float16, device, 3).t().expand(2, 4, 200, 300)
    mask = (normal((200, 603), torch.float32, device, 4) > 0)[:, 1:601:2]
    compare(q, k, v, mask=mask, bias=bias, gradients=False)
    compare(q, k, v, mask=mask)


@pytest.mark.parametrize("dtype", list(ERROR))
def test_multiplicity_and_offsets(dtype, device):
    q, k, v = tensors(1, 4, 2, 500, 500, 64, 64, dtype, device)
    offsets = torch.tensor([0, 1, 1, 130, 131, 400, 500], dtype=torch.int32, device=device)
    m = (torch.arange(500, device=device) % 4).to(dtype)[None]
    bias, mask = normal((4, 500, 500), dtype, device, 5), normal((500, 500), torch.float32, device, 6) > -1
    compare(q, k, v, multiplicity=m, eps=0.01)
    compare(q, k, v, multiplicity=m, offsets=offsets, eps=0.01, bound=2 * ERROR[dtype])
    compare(q, k, v, multiplicity=m, offsets=offsets, eps=0.01, mask=mask, bias=bias, bound=2 * ERROR[dtype])


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize("d", [24, 64, 128])
def test_softmax(dtype, d, device):
    q, k, v = tensors(2, 4, 4, 200, 300, d, d, dtype, device)
    mask, bias = normal((200, 300), torch.float32, device, 6) > 0, normal((4, 200, 300), dtype, device, 5)
    compare(q, k, v, normalise="softmax")
    compare(q, k, v, normalise="softmax", mask=mask, bias=bias)
    out = stream_attention(q, k, v, normalise="softmax")[0]
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert max(errors([out], [expected])) <= ERROR[dtype]


@pytest.mark.parametrize("d", [32, 64, 128])
def test_numbers_at_the_ends_of_16_bits(d, device):
    q, k, v = tensors(1, 2, 1, 200, 600, d, d, torch.float16, device)
    compare(60 * q, 100 * k, v)  # scores up to 1e6
    compare(1e-3 * q, 1e-2 * k, v)
    compare(q, k, v, bias=3e4 * torch.ones(200, 600, device=device, dtype=q.dtype), mask=q[0, 0, :, :1])
    k[0, 0, 7] *= 1e4
    v[0, 0, 3] = 6e4
    q[0, 0, 6] = 0
    # The value of one key decides: the rounding of its weight, up to 4.9e-4, has no others to be averaged with.
    compare(q, k, v, gradients=False, bound=1e-3)
    q, k, v = tensors(1, 1, 1, 100, 600, d, d, torch.bfloat16, device)
    compare(q * 1e-25, k, v, gradients=False)
    compare(q * 1e25, k, v, gradients=False)


def test_uneven_queries(device):
    """Sizes of queries far apart: gradients of keys are sums over all of them."""
    q, k, v = tensors(1, 2, 1, 600, 700, 64, 64, torch.float16, device)
    compare(q * 2.0 ** -(torch.arange(600, device=device) % 8)[None, None, :, None].to(q.dtype), k, v)


def test_the_linear_form(device):
    q, k, v = tensors(1, 4, 2, 1000, 4097, 64, 64, torch.float16, device)
    a, b = spherical_attention(q, k, v, method="stream"), spherical_attention(q, k, v, method="linear")
    assert max(errors(a, b)) < 1e-3


@pytest.mark.parametrize("d", [64, 128])
def test_the_same_bits(d, device):
    x = [t.requires_grad_() for t in tensors(1, 8, 2, 3000, 5000, d, d, torch.float16, device)]
    mask = normal((3000, 5000), torch.float32, device, 6) > 0
    weight = normal((1, 8, 3000, d), torch.float16, device, 7)
    results = []
    for _ in range(2):
        out, norm = spherical_attention(*x, mask=mask)
        results.append((out, norm, *torch.autograd.grad(out, x, weight)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_memory(device):
    """No quadratic memory: an expanded mask, 64 MiB of pairs a head."""
    if device == "cpu":
        pytest.skip("the CPU's memory is not counted by torch")
    x = [t.requires_grad_() for t in tensors(1, 4, 4, 8192, 8192, 64, 64, torch.float16, device)]
    mask = (torch.arange(8192, device=device) % 3 > 0).expand(1, 4, 8192, 8192)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = spherical_attention(*x, mask=mask)[0]
    torch.autograd.grad(out.sum(), x)
    assert torch.cuda.max_memory_allocated() - before < 40 * 2**20


def test_capture_in_a_graph(device):
    if device == "cpu":
        pytest.skip("a CPU has no CUDA graphs")
    q, k, v = tensors(1, 2, 2, 300, 904, 64, 64, torch.float16, device)
    mask, bias = normal((300, 904), torch.float16, device, 6), normal((300, 904), torch.float16, device, 7)
    expected = spherical_attention(q, k, v, mask=mask, bias=bias)[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = spherical_attention(q, k, v, mask=mask, bias=bias)[0]
    out.zero_()
    graph.replay()
    assert torch.equal(out, expected)


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize("batch, queries, keys", [(0, 5, 6), (2, 0, 6), (2, 5, 0)])
def test_gradients_of_nothing(batch, queries, keys, dtype, device):
    """Of a bias that sequences share, and of keys that nobody asks, gradients are zeros, not what memory held."""
    q, k, v = tensors(batch, 2, 1, queries, keys, 16, 16, dtype, device)
    bias = normal((1, 1, 1, keys or 1), dtype, device, 3)
    x = [t.detach().requires_grad_() for t in (q, k, v, bias)]
    out, norm = stream_attention(*x[:3], bias=x[3], eps=1e-3)
    held = [torch.full((4096,), torch.nan, dtype=dtype, device=device) for _ in range(64)]
    del held
    for gradient in torch.autograd.grad(out.sum() + norm.sum(), x):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize("where", ["query", "first keys"])
def test_softmax_of_what_is_no_number(where, dtype, device):
    q, k, v = tensors(1, 2, 1, 5, 130, 16, 16, dtype, device)
    (q[:, :, 1] if where == "query" else k[:, :, :64])[:] = torch.nan
    found = stream_attention(q, k, v, normalise="softmax")
    expected = stream_attention_reference(q.double(), k.double(), v.double(), normalise="softmax")
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a.isnan(), b.isnan())
