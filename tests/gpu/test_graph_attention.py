"""clebsch.attention.graph_attention on a GPU against the formula in float64: dtypes, sizes, groups, all graphs,
gradients and second ones, places in memory, bits of two runs, graph capture."""

from __future__ import annotations

import pytest
import torch

from clebsch.attention import EdgeRows, graph_attention, graph_attention_reference

pytestmark = pytest.mark.gpu
ERROR = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 6e-4, torch.bfloat16: 5e-3}
GRADIENT = {torch.float64: 1e-12, torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
ALL = ["none", "l2", "softmax"]


def tensors(receivers, senders, heads, key_heads, d, dv, dtype, device, seed=1):
    random = torch.Generator().manual_seed(seed)
    shapes = (receivers, heads, d), (senders, key_heads, d), (senders, key_heads, dv)
    q, k, v = (torch.randn(shape, generator=random) for shape in shapes)
    return [x.to(device, dtype) for x in (q / d**0.5, k, v)]


def edges_of(receivers, senders, share, device, seed=2):
    random = torch.Generator().manual_seed(seed)
    pairs = torch.nonzero(torch.rand(receivers, senders, generator=random) < share)
    pairs = pairs[torch.randperm(pairs.shape[0], generator=random)].to(device)
    f = 0.1 + 0.9 * torch.rand(pairs.shape[0], generator=random)
    return pairs[:, 1].contiguous(), pairs[:, 0].contiguous(), f.to(device)


def close(found, expected, bound, what="") -> None:
    if found.numel():
        scale = expected.double().square().mean().sqrt() + 1e-300
        error = ((found.double() - expected.double()).square().mean().sqrt() / scale).item()
        assert error <= bound, (what, error)


def compare(q, k, v, senders, receivers, f, normalise, bound=None, **options) -> None:
    real = torch.float64 if q.dtype == torch.float64 else torch.float32
    x = [
        None if t is None else t.detach().clone().requires_grad_() for t in (q, k, v, None if f is None else f.to(real))
    ]
    y = [None if t is None else t.detach().double().requires_grad_() for t in x]
    found = graph_attention(*x[:3], senders, receivers, x[3], normalise, **options)
    expected = graph_attention_reference(*y[:3], senders, receivers, y[3], normalise, **options)
    close(found, expected, bound or ERROR[q.dtype], "out")
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(9)).to(q.device, q.dtype)
    some = [at for at in range(4) if x[at] is not None]
    a = torch.autograd.grad(found, [x[at] for at in some], weight, materialize_grads=True)
    b = torch.autograd.grad(expected, [y[at] for at in some], weight.double(), materialize_grads=True)
    for at, one, two in zip(some, a, b, strict=True):
        close(one, two, max(bound or 0, GRADIENT[q.dtype]), "gradient of " + "qkvf"[at])


SIZES = [(1, 1, 256, 256), (4, 2, 32, 16), (2, 2, 17, 3), (3, 1, 512, 40)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", list(ERROR))
def test_sizes_and_groups(dtype, sizes, device):
    """Every normalisation, number type and size, not all of their combinations: each is compiled."""
    q, k, v = tensors(150, 190, *sizes, dtype, device)
    at = SIZES.index(sizes) + list(ERROR).index(dtype)
    compare(q, k, v, *edges_of(150, 190, 0.1, device), ALL[at % 3])


@pytest.mark.parametrize(
    ("dtype", "normalise"), [*((torch.float32, name) for name in ALL), (torch.bfloat16, "softmax")]
)
def test_keys_as_values(normalise, dtype, device):
    q, k, _ = tensors(150, 150, 2, 1, 64, 64, dtype, device)
    senders, receivers, f = edges_of(150, 150, 0.2, device)
    compare(q, k, None, senders, receivers, f, normalise)
    compare(q, k, None, senders, receivers, None, normalise, eps=0.0)


@pytest.mark.sanitize
@pytest.mark.parametrize("normalise", ALL)
@pytest.mark.parametrize(
    "nodes", [(5, 5, 0.0), (0, 4, 1.0), (4, 0, 1.0), (1, 1, 1.0), (9, 9, 0.2), (4, 40, 0.4), (37, 33, 1.0)]
)
def test_graphs(normalise, nodes, device):
    """No edges, no receivers, no senders, one atom, isolated ones, ghosts, all pairs."""
    receivers, senders, share = nodes
    q, k, v = tensors(receivers, senders, 2, 1, 8, 4, torch.float32, device)
    compare(q, k, v, *edges_of(*nodes, device), normalise)


def test_odd_places_in_memory(device):
    """Rows that do not begin at multiples of 16 bytes are read number by number."""
    q, k, v = tensors(50, 60, 1, 1, 32, 32, torch.float32, device)
    k = torch.cat((k.flatten(), k.new_zeros(1)))[1:].view_as(k)
    assert k.data_ptr() % 16
    senders, receivers, f = edges_of(50, 60, 0.2, device)
    found = graph_attention(q, k, v, senders, receivers, f)
    exact = graph_attention_reference(q.double(), k.double(), v.double(), senders, receivers, f.double())
    close(found, exact, 1e-6)


def test_long_rows(device):
    """One receiver with all edges, among many without: 20,000 numbers that nearly cancel are added one by one."""
    q, k, v = tensors(300, 20000, 1, 1, 64, 64, torch.float32, device)
    senders, receivers = torch.arange(20000, device=device), torch.full((20000,), 137, device=device)
    compare(q, k, v, senders, receivers, torch.rand(20000, device=device), "softmax", bound=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_scores_of_edges_that_the_envelope_hides(dtype, device):
    """Their exponentials are infinite: an envelope of zero takes them out of gradients, a tiny one leaves these
    finite."""
    size = 288.0 if dtype == torch.float32 else 2900.0
    place = {"dtype": dtype, "device": device, "requires_grad": True}
    q = torch.tensor([[[1.0, 0.0]]], **place)
    k = torch.tensor([[[size, 0.0]], [[0.0, 1.0]]], **place)
    v = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]], **place)
    senders, receivers = torch.tensor([0, 1], device=device), torch.tensor([0, 0], device=device)
    for smallest in (0.0, 1e-30):
        f = torch.tensor([smallest, 1.0], dtype=dtype, device=device)
        out = graph_attention(q, k, v, senders, receivers, f, "softmax", scale=1.0, eps=0.0)
        grads = torch.autograd.grad(out.sum(), (q, k, v))
        assert all(torch.isfinite(grad).all() for grad in grads)
        seen = torch.ones(2, dtype=dtype, device=device)
        torch.testing.assert_close(grads[2][1 if smallest == 0.0 else 0, 0], seen)


def test_second_derivatives(device):
    senders, receivers, f = edges_of(40, 50, 0.3, device)

    def step(dtype, attention, normalise):
        q, k, v = (t.requires_grad_() for t in tensors(40, 50, 2, 1, 16, 8, dtype, device))
        factors = f.to(dtype).requires_grad_()
        out = attention(q, k, v, senders, receivers, factors, normalise)
        forces = torch.autograd.grad(out.square().sum(), [factors, k], create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in forces), [q, k, v, factors])

    for normalise in ALL:
        expected = step(torch.float64, graph_attention_reference, normalise)
        for dtype, bound in ((torch.float64, 1e-11), (torch.float32, 2e-5)):
            for a, b in zip(step(dtype, graph_attention, normalise), expected, strict=True):
                close(a, b, bound, normalise)


def test_the_same_bits(device):
    q, k, v = (t.requires_grad_() for t in tensors(3000, 3000, 2, 1, 64, 64, torch.float32, device))
    senders, receivers, f = edges_of(3000, 3000, 0.01, device)
    f = f.requires_grad_()

    def step():
        out = graph_attention(q, k, v, senders, receivers, f)
        first = torch.autograd.grad(out.square().sum(), [q, k, v, f], create_graph=True)
        return [out, *first, *torch.autograd.grad(sum(x.square().sum() for x in first), [q, k, v, f])]

    assert all(torch.equal(a, b) for a, b in zip(step(), step(), strict=True))


def test_capture_in_a_graph(device):
    if device == "cpu":
        pytest.skip("a CPU has no CUDA graphs")
    q, k, v = tensors(300, 300, 2, 2, 64, 64, torch.float16, device)
    senders, receivers, f = edges_of(300, 300, 0.1, device)
    rows = EdgeRows(senders, receivers, 300, 300)
    expected = graph_attention(q, k, v, envelope=f, rows=rows)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = graph_attention(q, k, v, envelope=f, rows=rows)
    out.zero_()
    graph.replay()
    assert torch.equal(out, expected)
