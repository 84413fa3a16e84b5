"""clebsch.attention on a GPU against the formula in float64: dtypes, sizes, groups, offsets, multiplicity, queries that
the guard flags, gradients, bits of two runs, graph capture."""

from __future__ import annotations

import pytest
import torch

from clebsch.attention import spherical_attention, spherical_attention_reference

pytestmark = pytest.mark.gpu
ERROR = {torch.float64: 1e-12, torch.float32: 3e-7, torch.float16: 5e-4, torch.bfloat16: 4e-3}


def tensors(batch, heads, key_heads, queries, keys, d, dv, dtype, device, seed=1):
    random = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, queries, d), (batch, key_heads, keys, d), (batch, key_heads, keys, dv)
    return [torch.randn(s, generator=random, dtype=torch.float32).to(device=device, dtype=dtype) for s in shapes]


def errors(found, expected) -> list[float]:
    """Root mean squares of the differences in those of the expected numbers."""
    result = []
    for a, b in zip(found, expected, strict=True):
        scale = b.double().square().mean().sqrt() + 1e-300
        result.append(((a.double() - b.double()).square().mean().sqrt() / scale).item() if b.numel() else 0.0)
    return result


def compare(q, k, v, multiplicity=None, offsets=None, eps=0.0, bound=None, gradients=True, causal=False) -> None:
    bound = bound or ERROR[q.dtype]
    x = [None if t is None else t.detach().clone().requires_grad_() for t in (q, k, v, multiplicity)]
    y = [None if t is None else t.detach().double().requires_grad_() for t in (q, k, v, multiplicity)]
    found = spherical_attention(*x, offsets, eps, causal=causal)
    expected = spherical_attention_reference(*y, offsets, eps, causal=causal)
    assert max(errors(found, expected)) <= bound, errors(found, expected)
    with torch.no_grad():  # which keeps less, and in other places
        alone = spherical_attention(q, k, v, multiplicity, offsets, eps, causal=causal)
    assert max(errors(alone, expected)) <= bound, errors(alone, expected)
    if not gradients:
        return
    random = torch.Generator().manual_seed(9)
    weight = torch.randn(found[0].shape, generator=random).to(q.device, q.dtype)
    of_norm = torch.randn(found[1].shape, generator=random).to(q.device)
    a = torch.autograd.grad((found[0] * weight).sum() + (found[1] * of_norm).sum(), [t for t in x if t is not None])
    b = torch.autograd.grad(
        (expected[0] * weight.double()).sum() + (expected[1] * of_norm).sum(), [t for t in y if t is not None]
    )
    assert max(errors(a, b)) <= 2 * bound, errors(a, b)


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize(
    ("d", "dv"), [(8, 16), (32, 40), (64, 64), (128, 128), (64, 128), (128, 64), (96, 32), (80, 256)]
)
def test_sizes_and_groups(dtype, d, dv, device):
    compare(*tensors(2, 4, 2, 333, 1025, d, dv, dtype, device))


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("keys", [0, 1, 2, 63, 65, 300])
def test_lengths(dtype, keys, device):
    compare(*tensors(1, 2, 1, 37, keys, 32, 32, dtype, device), eps=0.1, bound=2e-3)
    compare(*tensors(1, 1, 1, keys, 50, 32, 32, dtype, device), bound=2e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_offsets_and_multiplicity(dtype, device):
    q, k, v = tensors(1, 4, 2, 500, 500, 64, 64, dtype, device)
    offsets = torch.tensor([0, 1, 1, 130, 131, 400, 500], dtype=torch.int32, device=device)
    multiplicity = (torch.arange(500, device=device) % 4).to(dtype)[None]
    compare(q, k, v, None, offsets, 0.01, bound=5e-3 if dtype == torch.bfloat16 else 1e-3)
    compare(q, k, v, multiplicity, offsets, 0.01, bound=5e-3 if dtype == torch.bfloat16 else 1e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "d"), [(torch.float16, 64), (torch.bfloat16, 128), (torch.float16, 32)])
def test_masks_of_keys(dtype, d, causal, device):
    """Multiplicities 0 and 1 stay on 16-bit tensor cores; the gradient of the multiplicities too."""
    q, k, v = tensors(2, 4, 2, 700, 700, d, d, dtype, device)
    mask = (torch.arange(1400, device=device).view(2, 700) % 3 > 0).to(dtype)
    compare(q, k, v, mask, eps=0.01, bound=6e-3 if dtype == torch.bfloat16 else 1e-3, causal=causal)


@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize(
    ("d", "dv", "rows"), [(8, 16, 333), (64, 64, 1000), (128, 128, 600), (96, 32, 300), (80, 256, 70)]
)
def test_causal(d, dv, rows, dtype, device):
    compare(*tensors(2, 4, 2, rows, rows, d, dv, dtype, device), eps=1.0, causal=True)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("rows", [0, 1, 2, 63, 65, 300])
def test_causal_lengths(dtype, rows, device):
    compare(*tensors(1, 2, 1, rows, rows, 32, 32, dtype, device), eps=0.1, bound=2e-3, causal=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_causal_offsets_and_multiplicity(dtype, device):
    q, k, v = tensors(1, 4, 2, 900, 900, 64, 64, dtype, device)
    offsets = torch.tensor([0, 1, 1, 130, 131, 400, 900], dtype=torch.int32, device=device)
    multiplicity = (torch.arange(900, device=device) % 4).to(dtype)[None]
    compare(q, k, v, None, offsets, 0.01, bound=1e-3, causal=True)
    compare(q, k, v, multiplicity, offsets, 0.01, bound=1e-3, causal=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_causal_first_queries(dtype, device):
    """A query that sees one key has its value, to rounding, with the sign of the score."""
    q, k, v = tensors(1, 2, 2, 5, 5, 64, 64, dtype, device)
    out, norm = spherical_attention(q, k, v, causal=True)
    score = (q.double() * k.double()).sum(-1)[..., 0]
    torch.testing.assert_close(out[:, :, 0], torch.sign(score)[..., None].to(dtype) * v[:, :, 0])
    torch.testing.assert_close(norm[..., 0].double(), score.abs(), rtol=1e-5, atol=0)


def low_rank(keys, d, rank, noise, dtype, device):
    random = torch.Generator().manual_seed(3)
    k = torch.randn(keys, rank, generator=random) @ torch.randn(rank, d, generator=random)
    return (k + noise * torch.randn(keys, d, generator=random))[None, None].to(device, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_flagged_queries(dtype, device):
    """Keys of rank 8 with noise, queries orthogonal to the eight directions: q^T G q cancels in 32 bits."""
    q, _, v = tensors(1, 1, 1, 700, 5000, 64, 64, dtype, device)
    k = low_rank(5000, 64, 8, 1e-2, dtype, device)
    _, _, w = torch.linalg.svd(k[0, 0].double(), full_matrices=False)
    q[0, 0, ::2] = ((q[0, 0, ::2].double() @ w[8:].T) @ w[8:]).to(dtype)
    compare(q, k, v, bound=2 * ERROR[dtype])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("d", [64, 128])
def test_flagged_heads_beside_others(d, dtype, device):
    """Of two key heads with two heads each one is flagged: its partial sums lie in results of its own alone."""
    q, k, v = tensors(2, 4, 2, 3000, 3000, d, d, dtype, device)
    k[1, 0] = low_rank(3000, d, 8, 1e-2, dtype, device)[0, 0]
    _, _, w = torch.linalg.svd(k[1, 0].double(), full_matrices=False)
    q[1, 0, ::3] = ((q[1, 0, ::3].double() @ w[8:].T) @ w[8:]).to(dtype)
    compare(q, k, v, bound=2 * ERROR[dtype])


@pytest.mark.parametrize("flagged", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("d", "heads", "queries", "keys"),
    [
        (64, 64, 1030, 1100),
        (64, 130, 1030, 1100),
        (64, 134, 900, 1200),
        (64, 34, 2049, 2177),
        (64, 64, 512, 1184),
        (64, 64, 513, 1183),
        (64, 64, 100, 2000),
        (64, 64, 2000, 100),
        (64, 64, 1, 1300),
        (128, 64, 1030, 1100),
        (128, 34, 1100, 2400),
    ],
)
def test_many_heads(d, heads, queries, keys, dtype, flagged, device):
    """What lies between the kernels of many heads lies where their outputs and gradients go, also of heads that are
    flagged; where there is room: else in memory of its own."""
    q, k, v = tensors(1, heads, heads, queries, keys, d, d, dtype, device)
    for head in (0, 5, heads - 1) if flagged else ():
        k[0, head] = low_rank(keys, d, 8, 1e-2, dtype, device)[0, 0]
        _, _, w = torch.linalg.svd(k[0, head].double(), full_matrices=True)
        q[0, head, ::3] = ((q[0, head, ::3].double() @ w[8:].T) @ w[8:]).to(dtype)
    compare(q, k, v, bound=2 * ERROR[dtype])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("d", "rows"), [(64, 4100), (64, 3), (128, 2051), (256, 515)])
def test_odd_lengths(d, rows, dtype, causal, device):
    """Last tiles that are not full, and heads of fewer rows than blocks."""
    compare(*tensors(2, 3, 3, rows, rows, d, d, dtype, device), eps=1.0, causal=causal)


@pytest.mark.parametrize("others", [False, True])
def test_multiplicities_of_many_heads(others, device):
    """Zeros and ones stay on 16-bit tensor cores, others flag their sequence's heads."""
    q, k, v = tensors(2, 20, 20, 1200, 1500, 64, 64, torch.float16, device)
    multiplicity = (torch.arange(3000, device=device).view(2, 1500) % 3 > 0).to(q.dtype)
    if others:
        multiplicity[1, ::7] = 2
    compare(q, k, v, multiplicity, eps=0.01, bound=1e-3)


def test_the_same_bits_of_many_heads(device):
    """Whoever does the last rows of a head."""
    tensor = [t.requires_grad_() for t in tensors(4, 16, 16, 2100, 2100, 64, 64, torch.float16, device)]
    weight = torch.randn(4, 16, 2100, 64, device=device).half()

    def results():
        out, norm = spherical_attention(*tensor)
        return out, norm, *torch.autograd.grad(out, tensor, weight)

    first = results()
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, results(), strict=True))


def test_sums_that_are_kept(device):
    """A gradient takes the forward pass's sums where there are some (as torch.compile keeps them), and makes them where
    there are none."""
    q, k, v = tensors(1, 64, 64, 2000, 2000, 64, 64, torch.float16, device)
    spherical_attention(q[:, :, :8], k[:, :, :8], v[:, :, :8])  # whose library has the ops
    on_hopper = device != "cpu" and torch.cuda.get_device_capability() == (9, 0)
    assert torch.ops.clebsch.spherical_attention_makes_sums_again(q, k, v, None) == on_hopper
    grad, found = torch.randn_like(v), []
    for keep in (False, True):
        results = torch.ops.clebsch.spherical_attention(q, k, v, None, None, 0.0, False, keep)
        assert (results[2].numel() > 0) == keep
        given = q, k, v, None, None, *results, 0.0, False
        found.append(torch.ops.clebsch.spherical_attention_backward(grad, None, *given)[:3])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("shape", "bound"), [((8, 16, 2048, 64), 0.01), ((4, 16, 4096, 64), 0.01), ((4, 16, 4096, 128), 0.01)]
)
def test_memory_of_many_heads(shape, bound, device):
    """Below 1% of the inputs on Hopper, forward and with backward, beyond results."""
    if device == "cpu":
        pytest.skip("the CPU's memory is not counted by torch")
    batch, heads, length, d = shape
    q, k, v = tensors(batch, heads, heads, length, length, d, d, torch.float16, device)
    weight = torch.randn_like(v)
    inputs = 3 * q.numel() * q.element_size()

    def taken(call) -> int:
        call()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        results = call()
        size = sum(x.untyped_storage().nbytes() for x in results)
        return torch.cuda.max_memory_allocated() - before - size

    def both():
        results = spherical_attention(*x)
        return *results, *torch.autograd.grad(results[0], x, weight)

    with torch.no_grad():
        forward = taken(lambda: spherical_attention(q, k, v))
    x = [t.requires_grad_() for t in (q, k, v)]
    backward = taken(both)
    hopper = torch.cuda.get_device_capability() == (9, 0)
    assert forward <= (bound if hopper else 0.13) * inputs, forward / inputs
    assert backward <= (bound if hopper else 0.2) * inputs * 4 / 3, backward / inputs


def test_causal_flagged_queries(device):
    q, _, v = tensors(1, 2, 1, 3000, 3000, 64, 64, torch.float16, device)
    k = low_rank(3000, 64, 8, 1e-2, torch.float16, device)
    _, _, w = torch.linalg.svd(k[0, 0].double(), full_matrices=False)
    q[0, 0, ::2] = ((q[0, 0, ::2].double() @ w[8:].T) @ w[8:]).half()
    compare(q, k, v[:, :1], eps=1e-4, bound=2e-3, causal=True)


def test_misaligned_tensors(device):
    """Rows that do not begin at multiples of 16 bytes."""
    data = torch.randn(3 * 2 * 100 * 64 + 1, device=device).half()[1:]
    q, k, v = (x.view(1, 2, 100, 64) for x in data.chunk(3))
    compare(q, k, v, gradients=False)


def test_large_and_small_numbers(device):
    q, k, v = tensors(1, 1, 1, 100, 600, 64, 64, torch.float16, device)
    k[0, 0, 7] *= 1e4
    v[0, 0, 3] = 6e4
    q[0, 0, 5] *= 1e-4
    q[0, 0, 6] = 0
    compare(q, k, v, gradients=False)
    q, k, v = tensors(1, 1, 1, 100, 600, 64, 64, torch.bfloat16, device)
    compare(q * 1e-25, k, v, gradients=False)
    compare(q * 1e25, k, v, gradients=False)


def test_the_same_bits(device):
    q, k, v = tensors(1, 8, 2, 3000, 41472, 64, 64, torch.float16, device)
    first, second = spherical_attention(q, k, v), spherical_attention(q, k, v)
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


def test_the_same_bits_of_gradients(device):
    tensor = [t.requires_grad_() for t in tensors(1, 8, 2, 3000, 5000, 64, 64, torch.float16, device)]
    weight = torch.randn(1, 8, 3000, 64, device=device).half()
    first, second = (torch.autograd.grad(spherical_attention(*tensor)[0], tensor, weight) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_gradients_of_uneven_queries(device):
    """Sizes of queries and of gradients far apart, within a head and between heads."""
    q, k, v = tensors(1, 4, 2, 600, 700, 64, 64, torch.bfloat16, device)
    q = q * 2.0 ** -(torch.arange(600, device=device) % 16)[None, None, :, None].to(q.dtype)
    v = v * torch.tensor([1e-6, 1e6], device=device, dtype=q.dtype)[None, :, None, None]
    for head in range(4):
        part = [t[:, at : at + 1] for t, at in ((q, head), (k, head // 2), (v, head // 2))]
        compare(*part)


def test_capture_in_a_graph(device):
    if device == "cpu":
        pytest.skip("a CPU has no CUDA graphs")
    q, k, v = tensors(1, 2, 2, 300, 900, 64, 64, torch.float16, device)
    expected = spherical_attention(q, k, v)[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = spherical_attention(q, k, v)[0]
    out.zero_()
    graph.replay()
    assert torch.equal(out, expected)
