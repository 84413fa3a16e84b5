"""Streamed attention on the CPU: against the linear form and the formula, masks, biases, gradients, softmax, errors."""

from __future__ import annotations

import pytest
import torch

from clebsch import ClebschError, library, multilinear_library
from clebsch.attention import (
    spherical_attention,
    spherical_attention_reference,
    stream_attention,
    stream_attention_reference,
)

BUILT = library.load().path is not None and multilinear_library.place().is_file()
pytestmark = pytest.mark.skipif(not BUILT, reason="libclebsch_multilinear.so was not built (CLEBSCH_MULTILINEAR)")
ERROR = {torch.float64: 1e-12, torch.float32: 3e-7, torch.float16: 6e-4, torch.bfloat16: 5e-3}


def normal(shape, dtype=torch.float64, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def tensors(batch, heads, key_heads, queries, keys, d, dv, dtype=torch.float64):
    shapes = (batch, heads, queries, d), (batch, key_heads, keys, d), (batch, key_heads, keys, dv)
    return [normal(shape, dtype, seed) for seed, shape in enumerate(shapes)]


def compare(found, expected, dtype=torch.float64) -> None:
    for a, b in zip(found, expected, strict=True):
        scale = b.double().square().mean().sqrt().item() if b.numel() else 0.0
        worst = (a.double() - b.double()).square().mean().sqrt().item() if b.numel() else 0.0
        assert worst <= ERROR[dtype] * scale + 1e-300, (worst, scale)


def wide(x):
    return x.double() if x is not None and x.is_floating_point() else x


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize("d", [8, 16, 32, 40, 64, 80, 128, 256])
def test_the_linear_form(dtype, d):
    """Linear = stream = formula: the identity of docs/attention.md."""
    q, k, v = tensors(1, 2, 1, 21, 65, d, d + 3 if d < 128 else 16, dtype)
    stream = spherical_attention(q, k, v, method="stream", eps=1e-2)
    compare(stream, spherical_attention_reference(q.double(), k.double(), v.double(), eps=1e-2), dtype)
    linear = spherical_attention(q, k, v, method="linear", eps=1e-2)
    for a, b in zip(stream, linear, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=2 * ERROR[dtype], atol=2 * ERROR[dtype])


@pytest.mark.parametrize("keys", [0, 1, 2, 63, 64, 65, 1000, 4097])
def test_lengths(keys):
    q, k, v = tensors(1, 2, 1, 5, keys, 8, 8)
    compare(spherical_attention(q, k, v, method="stream"), spherical_attention_reference(q, k, v))
    q, k, v = tensors(1, 1, 1, keys, 5, 8, 8)
    compare(spherical_attention(q, k, v, method="stream"), spherical_attention_reference(q, k, v))


PAIRS = {
    "full": (2, 4, 9, 13), "head": (4, 9, 13), "pair": (9, 13), "key": (13,), "query": (9, 1), "one": (),
    "batch": (2, 1, 1, 1),
}  # fmt: skip


PAIRS_OF_BIASES = [(2, 4, 20, 40), (4, 1, 40), (2, 1, 20, 1), (40,), ()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("mask", [None, "bool", "number"])
@pytest.mark.parametrize("pairs", list(PAIRS))
def test_masks_and_biases(dtype, mask, pairs):
    q, k, v = tensors(2, 4, 2, 9, 13, 8, 4, dtype)
    bias = normal(PAIRS[pairs], dtype, 5)
    of_mask = {None: None, "bool": normal(PAIRS[pairs], seed=6) > 0, "number": normal(PAIRS[pairs], dtype, 7)}[mask]
    found = spherical_attention(q, k, v, eps=0.1, mask=of_mask, bias=bias)
    expected = stream_attention_reference(*map(wide, (q, k, v)), eps=0.1, mask=wide(of_mask), bias=wide(bias))
    compare(found, expected, dtype)


def test_strides():
    """Expanded and transposed masks and biases are read in place."""
    q, k, v = tensors(2, 4, 2, 9, 13, 8, 4)
    bias = normal((13, 9), seed=3).t().expand(2, 4, 9, 13)
    mask = (normal((9, 26), seed=4) > 0)[:, ::2]
    found = spherical_attention(q, k, v, mask=mask, bias=bias)
    compare(found, spherical_attention(q, k, v, mask=mask.contiguous(), bias=bias.contiguous()))
    compare(found, stream_attention_reference(q, k, v, mask=mask, bias=bias))


def test_masked_queries():
    """A query that sees no key has output and gradients 0."""
    q, k, v = (x.requires_grad_() for x in tensors(1, 1, 1, 4, 6, 4, 3))
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[1] = False
    for normalise in ("l2", "softmax"):
        out, norm = stream_attention(q, k, v, mask=mask, normalise=normalise)
        assert (out[0, 0, 1] == 0).all() and norm[0, 0, 1] == (0 if normalise == "l2" else -torch.inf)
        grads = torch.autograd.grad(out.sum(), (q, k, v))
        assert (grads[0][0, 0, 1] == 0).all() and all(g.isfinite().all() for g in grads)


def test_causal_mask():
    q, k, v = tensors(1, 2, 1, 40, 40, 8, 8)
    mask = torch.ones(40, 40, dtype=torch.bool).tril()
    out = spherical_attention(q, k, v, mask=mask)[0]
    for i in (0, 17, 39):
        torch.testing.assert_close(
            out[:, :, i : i + 1], spherical_attention(q[:, :, i : i + 1], k[:, :, : i + 1], v[:, :, : i + 1])[0]
        )


@pytest.mark.parametrize("normalise", ["l2", "softmax"])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("pairs", [None, (2, 4, 4), (4,), (1, 1, 4, 1)])
def test_gradients(normalise, ragged, pairs):
    q, k, v = (x.requires_grad_() for x in tensors(1, 2, 1, 4, 4, 2, 1))
    m = torch.tensor([[0.5, 1.5, 0.7, 1.2]], dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, 0, 1, 4, 4], dtype=torch.int32) if ragged else None
    bias = None if pairs is None else normal(pairs, seed=8).requires_grad_()
    mask = None if normalise == "softmax" and pairs is None else normal((4, 4), seed=9) > -1
    if normalise == "l2" and mask is not None:
        mask = mask * normal((4, 4), seed=10)
    inputs = tuple(x for x in (q, k, v, m, bias) if x is not None)

    def call(q, k, v, m, bias=None):
        return stream_attention(q, k, v, m, offsets, 0.1, mask, bias, normalise)

    compare(call(*inputs), stream_attention_reference(q, k, v, m, offsets, 0.1, mask, bias, normalise))
    assert torch.autograd.gradcheck(call, inputs, fast_mode=pairs is not None or not ragged)
    if ragged:
        assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


def test_gradients_of_shared_biases():
    """The gradient of a bias sums over sequences, heads, queries or keys that share it."""
    q, k, v = tensors(2, 4, 2, 20, 40, 3, 2)
    for shape in PAIRS_OF_BIASES:
        bias = normal(shape, seed=8).requires_grad_()
        weight = normal((2, 4, 20, 2), seed=9)
        found = torch.autograd.grad(spherical_attention(q, k, v, bias=bias)[0], bias, weight)
        compare(found, torch.autograd.grad(stream_attention_reference(q, k, v, bias=bias)[0], bias, weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_of_dtypes(dtype):
    q, k, v = tensors(2, 4, 2, 40, 70, 16, 16, dtype)
    mask = normal((40, 70), seed=3) > -0.5
    weight = normal((2, 4, 40, 16), dtype, 4)
    x = [t.clone().requires_grad_() for t in (q, k, v)]
    y = [t.double().requires_grad_() for t in (q, k, v)]
    found = torch.autograd.grad(spherical_attention(*x, mask=mask)[0], x, weight)
    expected = torch.autograd.grad(stream_attention_reference(*y, mask=mask)[0], y, weight.double())
    compare(found, expected, dtype)


@pytest.mark.parametrize("masked", [False, True])
def test_softmax(masked):
    q, k, v = tensors(2, 4, 4, 19, 70, 16, 8)
    bias, mask = normal((4, 19, 70), seed=4), normal((19, 70), seed=5) > 0
    added = bias.masked_fill(~mask, -torch.inf) if masked else bias
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
    out, norm = stream_attention(q, k, v, mask=mask if masked else None, bias=bias, normalise="softmax")
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(norm, (q @ k.transpose(-1, -2) / 4 + added).logsumexp(-1))
    torch.testing.assert_close(stream_attention(q, k, v, bias=added, normalise="softmax")[0], expected)
    out = stream_attention(1e3 * q, k, v, normalise="softmax", scale=1.0)[0]
    torch.testing.assert_close(out, torch.nn.functional.scaled_dot_product_attention(1e3 * q, k, v, scale=1.0))


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize("where", ["query", "bias", "first keys", "every key", "masked key"])
def test_softmax_of_what_is_no_number(dtype, where):
    """A NaN that is seen is in the result, as in the formula's; one behind the mask is not."""
    q, k, v = tensors(1, 2, 1, 5, 130, 8, 8, dtype)
    bias, mask = torch.zeros(1, 2, 5, 130, dtype=dtype), torch.ones(1, 2, 5, 130, dtype=torch.bool)
    if where == "query":
        q[:, :, 1] = torch.nan
    elif where == "bias":
        bias[:, :, 2] = torch.nan
    else:
        k[:, :, {"first keys": slice(0, 64), "every key": slice(None), "masked key": slice(7, 8)}[where]] = torch.nan
        mask[..., 7] = where != "masked key"
    found = stream_attention(q, k, v, mask=mask, bias=bias, normalise="softmax")
    expected = stream_attention_reference(wide(q), wide(k), wide(v), mask=mask, bias=wide(bias), normalise="softmax")
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a.isnan(), b.isnan()), (a, b)
        compare([a.nan_to_num()], [b.nan_to_num()], dtype)


def test_offsets():
    q, k, v = tensors(1, 2, 1, 20, 20, 8, 4)
    offsets = torch.tensor([0, 0, 3, 3, 11, 20], dtype=torch.int32)
    bias, mask = normal((2, 20, 20), seed=4), normal((20, 20), seed=5) > 0
    found = spherical_attention(q, k, v, None, offsets, mask=mask, bias=bias)
    for a, b in ((0, 3), (3, 11), (11, 20)):
        run = (slice(None), slice(None), slice(a, b))
        part = spherical_attention(q[run], k[run], v[run], mask=mask[a:b, a:b], bias=bias[:, a:b, a:b])
        compare([x[run] for x in found], part)


def test_the_same_bits():
    q, k, v = (x.requires_grad_() for x in tensors(1, 2, 1, 50, 90, 8, 8, torch.float32))
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        out, norm = spherical_attention(q, k, v, method="stream")
        results.append((out, norm, *torch.autograd.grad(out.sum(), (q, k, v))))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_compile():
    q, k, v = (x.requires_grad_() for x in tensors(1, 2, 1, 9, 20, 8, 8, torch.float32))
    bias = normal((9, 20), torch.float32, 3).requires_grad_()

    def loss(q, k, v, bias):
        out, norm = spherical_attention(q * 2, k, v, eps=1e-3, bias=bias)
        return (out.sin() + norm[..., None]).sum()

    expected = torch.autograd.grad(loss(q, k, v, bias), (q, k, v, bias))
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for a, b in zip(torch.autograd.grad(compiled(q, k, v, bias), (q, k, v, bias)), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_errors():
    q, k, v = tensors(1, 4, 2, 5, 6, 8, 8)
    half = torch.ones(5, 6, dtype=torch.float16)
    for arguments, options, words in (
        ((q, k[..., :4], v), {}, "k: expected head size 8 as q, got 4"),
        ((q, k, v), {"mask": torch.ones(6, 5, dtype=torch.bool)},
         r"mask: expected \(1, 4, 5, 6\) or what broadcasts to it, got \(6, 5\)"),
        ((q, k, v), {"bias": torch.ones(1, 1, 1, 5, 6).double()}, r"bias: expected \(1, 4, 5, 6\) or what broadcasts"),
        ((q, k, v), {"mask": half}, "mask: expected Bool or Double as q, got Half"),
        ((q, k, v), {"mask": half.double(), "normalise": "softmax"}, "mask: expected Bool with softmax, got Double"),
        ((q, k, v), {"bias": half}, "bias: expected Double as q, got Half"),
        ((q, k, v), {"mask": [1]}, "mask: expected a tensor, got list"),
        ((q, k, v), {"mask": half.double().requires_grad_()}, "masks are not differentiated"),
        ((q, k, v), {"normalise": "l1"}, "normalise: expected one of l2, softmax, got 'l1'"),
        ((q, k, v), {"scale": float("inf")}, "scale: expected a finite number, got inf"),
        ((q, k, v), {"eps": -1.0}, "eps: expected a number that is not negative, got -1"),
    ):  # fmt: skip
        with pytest.raises(ClebschError, match=words):
            stream_attention(*arguments, **options)
    with pytest.raises(ClebschError, match="method=linear cannot take a mask or bias a pair; use method=stream"):
        spherical_attention(q, k, v, method="linear", bias=half)
    with pytest.raises(ClebschError, match="causal=True is linear"):
        spherical_attention(q, k, v, method="stream", causal=True)
