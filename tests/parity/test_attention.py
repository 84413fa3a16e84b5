"""clebsch.attention on the CPU: values, gradients, second derivatives, edge cases, errors, torch.compile."""

from __future__ import annotations

import pytest
import torch

from clebsch import ClebschError, library, multilinear_library
from clebsch.attention import spherical_attention, spherical_attention_reference

BUILT = library.load().path is not None and multilinear_library.place().is_file()
pytestmark = pytest.mark.skipif(not BUILT, reason="libclebsch_multilinear.so was not built (CLEBSCH_MULTILINEAR)")
ERROR = {torch.float64: 1e-12, torch.float32: 3e-7, torch.float16: 6e-4, torch.bfloat16: 5e-3}


def tensors(batch, heads, key_heads, queries, keys, d, dv, dtype=torch.float64, seed=1):
    random = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, queries, d), (batch, key_heads, keys, d), (batch, key_heads, keys, dv)
    return [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def compare(found, expected, dtype) -> None:
    for a, b in zip(found, expected, strict=True):
        scale = b.double().square().mean().sqrt().item() if b.numel() else 0.0
        worst = (a.double() - b.double()).square().mean().sqrt().item() if b.numel() else 0.0
        assert worst <= ERROR[dtype] * scale + 1e-300, (worst, scale)


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize(("d", "dv"), [(8, 16), (1, 3), (32, 40), (64, 64), (128, 80), (17, 256)])
def test_values(dtype, d, dv):
    q, k, v = tensors(2, 4, 2, 33, 70, d, dv, dtype)
    found = spherical_attention(q, k, v)
    compare(found, spherical_attention_reference(q.double(), k.double(), v.double()), dtype)
    assert found[0].dtype == dtype and found[1].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("keys", [0, 1, 2, 63, 64, 65, 1000, 4097])
def test_lengths(keys):
    q, k, v = tensors(1, 2, 1, 5, keys, 8, 8)
    compare(spherical_attention(q, k, v, eps=1e-3), spherical_attention_reference(q, k, v, eps=1e-3), torch.float64)
    q, k, v = tensors(1, 1, 1, keys, 5, 8, 8)
    compare(spherical_attention(q, k, v), spherical_attention_reference(q, k, v), torch.float64)


def call(q, k, v, multiplicity=None, offsets=None, eps=0.0):
    return spherical_attention(q, k, v, multiplicity, offsets, eps)


@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize("ragged", [False, True])
def test_gradients(eps, ragged):
    q, k, v = (x.requires_grad_() for x in tensors(1 if ragged else 2, 4, 2, 7, 7, 3, 2))
    m = torch.rand(q.shape[0], 7, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
    offsets = torch.tensor([0, 0, 3, 7, 7], dtype=torch.int32) if ragged else None
    assert torch.autograd.gradcheck(lambda *x: call(*x, offsets, eps), (q, k, v, m))
    assert torch.autograd.gradgradcheck(lambda *x: call(*x, offsets, eps), (q, k, v, m))
    found = spherical_attention(q, k, v, m, offsets, eps)
    compare(found, spherical_attention_reference(q, k, v, m, offsets, eps), torch.float64)


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("ragged", [False, True])
def test_causal(rows, ragged):
    """Values and gradients of query i over keys j <= i; every sequence starts afresh."""
    q, k, v = (x.requires_grad_() for x in tensors(1 if ragged else 2, 4, 2, rows, rows, 9, 5))
    m = torch.rand(q.shape[0], rows, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
    offsets = torch.tensor([0, 0, rows // 3, rows], dtype=torch.int32) if ragged else None
    found = spherical_attention(q, k, v, m, offsets, 0.01, causal=True)
    expected = spherical_attention_reference(q, k, v, m, offsets, 0.01, causal=True)
    compare(found, expected, torch.float64)
    random = torch.Generator().manual_seed(3)
    weights = [torch.randn(x.shape, generator=random, dtype=torch.float64) for x in found]
    gradients = [
        torch.autograd.grad(sum((x * w).sum() for x, w in zip(both, weights, strict=True)), (q, k, v, m))
        for both in (found, expected)
    ]
    compare(*gradients, torch.float64)


@pytest.mark.parametrize("ragged", [False, True])
def test_causal_second_derivatives(ragged):
    q, k, v = (x.requires_grad_() for x in tensors(1, 2, 1, 4, 4, 2, 2))
    m = torch.rand(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
    offsets = torch.tensor([0, 1, 4], dtype=torch.int32) if ragged else None

    def call(*x):
        return spherical_attention(*x, offsets, 0.1, causal=True)

    assert torch.autograd.gradcheck(call, (q, k, v, m))
    assert torch.autograd.gradgradcheck(call, (q, k, v, m))


def test_causal_sees_nothing_ahead():
    """The first query has one weight; keys and values ahead change nothing; queries that see nothing are 0."""
    q, k, v = tensors(1, 1, 1, 200, 200, 16, 8, torch.float32)
    k[0, 0, :3], q[0, 0, 5] = 0, 0
    out, norm = spherical_attention(q, k, v, causal=True)
    assert (out[0, 0, :3] == 0).all() and (norm[0, 0, :3] == 0).all() and (out[0, 0, 5] == 0).all()
    sign = torch.sign(q[0, 0, 3] @ k[0, 0, 3])
    torch.testing.assert_close(out[0, 0, 3], sign * v[0, 0, 3], rtol=2e-7, atol=0)
    k[0, 0, 100:], v[0, 0, 100:] = 1e4, -7
    again, _ = spherical_attention(q, k, v, causal=True)
    assert torch.equal(again[0, 0, :100], out[0, 0, :100])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_causal_gradients_of_dtypes(dtype):
    q, k, v = tensors(1, 4, 2, 300, 300, 32, 32, dtype)
    x = [t.clone().requires_grad_() for t in (q, k, v)]
    y = [t.double().requires_grad_() for t in (q, k, v)]
    weight = torch.randn(1, 4, 300, 32, generator=torch.Generator().manual_seed(3)).to(dtype)
    found = spherical_attention(*x, eps=1.0, causal=True)
    expected = spherical_attention_reference(*y, eps=1.0, causal=True)
    compare(found, expected, dtype)
    found = torch.autograd.grad((found[0] * weight).sum(), x)
    expected = torch.autograd.grad((expected[0] * weight.double()).sum(), y)
    compare(found, expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_of_dtypes(dtype):
    q, k, v = tensors(2, 4, 2, 130, 300, 32, 32, dtype)
    x = [t.clone().requires_grad_() for t in (q, k, v)]
    y = [t.double().requires_grad_() for t in (q, k, v)]
    weight = torch.randn(2, 4, 130, 32, generator=torch.Generator().manual_seed(3))
    found = torch.autograd.grad((spherical_attention(*x)[0] * weight.to(dtype)).sum(), x)
    expected = torch.autograd.grad((spherical_attention_reference(*y)[0] * weight.to(dtype).double()).sum(), y)
    compare(found, expected, dtype)


def test_nothing_to_see():
    """Queries orthogonal to all keys, no keys, zeros: output and gradients are zeros for eps = 0."""
    q, k, v = tensors(1, 1, 1, 4, 6, 4, 3)
    k[..., 2:] = 0
    q[0, 0, 0] = torch.tensor([0.0, 0.0, 1.0, -2.0])
    q[0, 0, 1] = 0
    x = [t.requires_grad_() for t in (q, k, v)]
    out, norm = spherical_attention(*x)
    assert (out[0, 0, :2] == 0).all() and (norm[0, 0, :2] == 0).all() and (norm[0, 0, 2:] > 0).all()
    grad_q, grad_k, grad_v = torch.autograd.grad(out.sum(), x)
    assert (grad_q[0, 0, :2] == 0).all() and grad_k.isfinite().all() and grad_v.isfinite().all()
    out, norm = spherical_attention(q, k[:, :, :0], v[:, :, :0])
    assert (out == 0).all() and (norm == 0).all()


@pytest.mark.parametrize("condition", [1e1, 1e2, 1e3, 1e4])
def test_ill_conditioned_keys(condition):
    q, k, v = tensors(1, 1, 1, 50, 400, 16, 16)
    u, s, w = torch.linalg.svd(k, full_matrices=False)
    k = u * torch.logspace(0, -torch.log10(torch.tensor(condition)).item(), 16, dtype=torch.float64) @ w
    q = (w.transpose(-1, -2)[..., 8:] @ torch.randn(8, 50, dtype=torch.float64)).transpose(-1, -2)
    for dtype, bound in ((torch.float64, 1e-13 * condition**2), (torch.float32, 1e-6)):
        a, b, c = (x.to(dtype) for x in (q, k, v))
        found, expected = (
            spherical_attention(a, b, c),
            spherical_attention_reference(a.double(), b.double(), c.double()),
        )
        assert (found[0] - expected[0]).abs().max() < bound * 20


def test_symmetries():
    q, k, v = tensors(1, 2, 2, 9, 50, 8, 8)
    out, norm = spherical_attention(q, k, v)
    torch.testing.assert_close(spherical_attention(3 * q, k, v)[0], out)
    torch.testing.assert_close(spherical_attention(q, -2 * k, v)[0], -out)
    torch.testing.assert_close(spherical_attention(q, k, -v)[0], -out)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(spherical_attention(q, k[:, :, order], v[:, :, order])[0], out)
    assert torch.equal(spherical_attention(q, k, v)[0], out)


def test_multiplicity():
    """Keys are scaled, so z gets m^2: this is not the same as repeating a key. 0 leaves it out."""
    q, k, v = tensors(1, 1, 1, 9, 20, 8, 8)
    m = torch.ones(1, 20, dtype=torch.float64)
    m[0, 5:] = 0
    torch.testing.assert_close(spherical_attention(q, k, v, m)[0], spherical_attention(q, k[:, :, :5], v[:, :, :5])[0])
    m[0, 4] = 2
    repeated = torch.cat((k[:, :, :5], k[:, :, 4:5]), 2), torch.cat((v[:, :, :5], v[:, :, 4:5]), 2)
    assert not torch.allclose(spherical_attention(q, k, v, m)[0], spherical_attention(q, *repeated)[0])


def test_large_numbers():
    q, k, v = tensors(1, 1, 1, 20, 60, 32, 32, torch.float16)
    k[0, 0, 7] *= 1e4
    v[0, 0, 3] = 6e4
    compare(spherical_attention(q, k, v), spherical_attention_reference(q.double(), k.double(), v.double()), q.dtype)


def test_compile():
    q, k, v = (x.requires_grad_() for x in tensors(1, 2, 1, 9, 20, 8, 8, torch.float32))

    def loss(q, k, v):
        out, norm = spherical_attention(q * 2, k, v, eps=1e-3)
        return (out.sin() + norm[..., None]).sum()

    expected = torch.autograd.grad(loss(q, k, v), (q, k, v))
    found = torch.autograd.grad(torch.compile(loss, backend="aot_eager", fullgraph=True)(q, k, v), (q, k, v))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_errors():
    q, k, v = tensors(1, 4, 2, 5, 6, 8, 8)
    for arguments, options, words in (
        ((q, k[..., :4], v), {}, "k: expected head size 8 as q, got 4"),
        ((q[:, :3], k, v), {}, "key heads must divide the heads of q, got 3 heads and 2"),
        ((q, k, v), {"eps": -1.0}, "eps: expected a number that is not negative, got -1"),
        ((q, k.float(), v), {}, "k: expected Double as q, got Float"),
        ((q.int(), k, v), {}, "expected float64, float32, float16 or bfloat16, got Int"),
        ((q, k, v), {"mask": torch.ones(5, 6)}, "mask: expected Bool or Double as q, got Float"),
        ((q, k, v), {"bias": torch.ones(5, 6), "method": "linear"}, "cannot take a mask or bias"),
        ((q, k, v), {"causal": True}, "causal=True needs as many queries as keys, got 5 queries and 6 keys"),
        ((q, k, v), {"method": "fast"}, "expected one of auto, linear, stream, got 'fast'"),
        ((q, k, v), {"multiplicity": torch.ones(1, 5).double()}, r"multiplicity: expected \(1, 6\)"),
        ((q[:, :, :5], k[:, :, :5], v[:, :, :5]), {"offsets": torch.tensor([0, 4], dtype=torch.int32)},
         "expected 5 rows at the end, got 4"),
        ((q[:, :, :5], k[:, :, :5], v[:, :, :5]), {"offsets": torch.tensor([0, 4, 3, 5], dtype=torch.int32)},
         "do not fall, got 3 after 4"),
        ((q[0], k, v), {}, r"q: expected \(sequences, heads, queries, d\)"),
    ):  # fmt: skip
        with pytest.raises(ClebschError, match=words):
            spherical_attention(*arguments, **options)
