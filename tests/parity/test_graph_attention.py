"""clebsch.attention.graph_attention on the CPU: values, gradients, second derivatives, all graphs, what happens at a
cutoff, rotations, errors, torch.compile."""

from __future__ import annotations

import pytest
import torch

from clebsch import ClebschError, library, multilinear_library
from clebsch.attention import EdgeRows, graph_attention, graph_attention_reference

BUILT = library.load().path is not None and multilinear_library.place().is_file()
pytestmark = pytest.mark.skipif(not BUILT, reason="libclebsch_multilinear.so was not built (CLEBSCH_MULTILINEAR)")
ERROR = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 6e-4, torch.bfloat16: 5e-3}
ALL = ["none", "l2", "softmax"]


def tensors(receivers, senders, heads, key_heads, d, dv, dtype=torch.float64, seed=1):
    random = torch.Generator().manual_seed(seed)
    shapes = (receivers, heads, d), (senders, key_heads, d), (senders, key_heads, dv)
    return [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def edges_of(receivers, senders, share, seed=2, smallest=0.1):
    """Some of all pairs, in any order, without pairs that occur twice; and an envelope between 0.1 and 1."""
    random = torch.Generator().manual_seed(seed)
    pairs = torch.nonzero(torch.rand(receivers, senders, generator=random) < share)
    pairs = pairs[torch.randperm(pairs.shape[0], generator=random)]
    f = smallest + (1 - smallest) * torch.rand(pairs.shape[0], generator=random, dtype=torch.float64)
    return pairs[:, 1].contiguous(), pairs[:, 0].contiguous(), f


def close(found, expected, bound) -> None:
    assert found.shape == expected.shape
    if found.numel():
        scale = expected.double().square().mean().sqrt() + 1e-300
        assert ((found.double() - expected.double()).square().mean().sqrt() / scale).item() <= bound


@pytest.mark.parametrize("normalise", ALL)
@pytest.mark.parametrize("dtype", list(ERROR))
@pytest.mark.parametrize(
    ("heads", "key_heads", "d", "dv"), [(1, 1, 256, 256), (4, 2, 8, 16), (2, 2, 17, 3), (3, 1, 1, 5)]
)
def test_values(normalise, dtype, heads, key_heads, d, dv):
    q, k, v = tensors(30, 25, heads, key_heads, d, dv, dtype)
    if normalise == "none":
        q = (q / d**0.5).to(dtype)
    senders, receivers, f = edges_of(30, 25, 0.3)
    f = f.to(dtype)
    found = graph_attention(q, k, v, senders, receivers, f, normalise)
    assert found.dtype == dtype
    exact = [x.double() for x in (q, k, v)]
    close(found, graph_attention_reference(*exact, senders, receivers, f.double(), normalise), ERROR[dtype])
    again = graph_attention(q, k, v, senders.int(), receivers.int(), f, normalise)
    assert torch.equal(found, again)


@pytest.mark.parametrize("normalise", ALL)
@pytest.mark.parametrize("graph", ["empty", "no receivers", "no senders", "one atom", "isolated", "ghosts", "full"])
def test_graphs(normalise, graph):
    n_receivers, n_senders, share = {
        "empty": (5, 5, 0.0), "no receivers": (0, 4, 1.0), "no senders": (4, 0, 1.0), "one atom": (1, 1, 1.0),
        "isolated": (9, 9, 0.5), "ghosts": (4, 40, 0.4), "full": (6, 6, 1.0),
    }[graph]  # fmt: skip
    senders, receivers, f = edges_of(n_receivers, n_senders, share)
    if graph == "isolated":  # the first, a middle and the last atom have no edge
        some = ((senders != 0) & (senders != 4) & (senders != 8) & (receivers != 0) & (receivers != 4)
                & (receivers != 8))  # fmt: skip
        senders, receivers, f = senders[some], receivers[some], f[some]
    x = [t.requires_grad_() for t in (*tensors(n_receivers, n_senders, 2, 1, 4, 3), f)]
    found = graph_attention(*x[:3], senders, receivers, x[3], normalise)
    expected = graph_attention_reference(*x[:3], senders, receivers, x[3], normalise)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    gradients = [torch.autograd.grad(out, x, weight, materialize_grads=True) for out in (found, expected)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
    if graph == "isolated":
        assert (found[[0, 4, 8]] == 0).all()


@pytest.mark.parametrize("normalise", ALL)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_derivatives(normalise, shared, eps):
    """Against finite differences: grouped heads, an empty row, ghosts, edges that occur twice."""
    q, k, v = tensors(4, 6, 2, 1, 3, 3 if shared else 2)
    senders, receivers, f = edges_of(3, 6, 0.5)
    senders, receivers, f = (torch.cat((x, x[:2])) for x in (senders, receivers, f))

    def call(q, k, f, *v):
        return graph_attention(q, k, *(v or (None,)), senders, receivers, f, normalise, eps)

    x = [t.requires_grad_() for t in (q, k, f, *([] if shared else [v]))]
    assert torch.autograd.gradcheck(call, x)
    assert torch.autograd.gradgradcheck(call, x)
    # Without an envelope, and of some arguments alone.
    assert torch.autograd.gradcheck(lambda q: graph_attention(q, k, v, senders, receivers, None, normalise, eps), x[:1])
    assert torch.autograd.gradgradcheck(lambda k: call(q, k, f.detach(), *x[3:]), x[1:2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("normalise", ALL)
def test_gradients_of_dtypes(dtype, normalise):
    senders, receivers, f = edges_of(30, 40, 0.3)
    q, k, v = tensors(30, 40, 4, 2, 32, 16, dtype)
    x = [t.requires_grad_() for t in (q / 8, k, v, f.float())]
    y = [t.detach().double().requires_grad_() for t in x]
    weight = torch.randn(30, 4, 16, generator=torch.Generator().manual_seed(3)).to(dtype)
    found = torch.autograd.grad(graph_attention(*x[:3], senders, receivers, x[3], normalise), x, weight)
    expected = graph_attention_reference(*y[:3], senders, receivers, y[3], normalise)
    expected = torch.autograd.grad(expected, y, weight.double())
    for a, b in zip(found, expected, strict=True):
        close(a, b, {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype])


def test_second_derivatives_of_single_precision():
    """A loss of forces, as in training."""
    senders, receivers, f = edges_of(12, 12, 0.4)

    def step(dtype, attention):
        q, k, v = (t.requires_grad_() for t in tensors(12, 12, 2, 2, 8, 8, dtype))
        factors = f.to(dtype).requires_grad_()
        out = attention(q, k, v, senders, receivers, factors)
        forces = torch.autograd.grad(out.square().sum(), [factors, k], create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in forces), [q, k, v, factors])

    for a, b in zip(step(torch.float32, graph_attention), step(torch.float64, graph_attention_reference), strict=True):
        close(a, b, 1e-5)


def test_rows_are_kept():
    """A graph that is made once gives the same as its edges, and so do its edges in another order."""
    q, k, v = tensors(20, 30, 2, 1, 8, 8)
    senders, receivers, f = edges_of(20, 30, 0.3)
    rows = EdgeRows(senders, receivers, 20, 30)
    out = graph_attention(q, k, v, envelope=f, rows=rows)
    assert torch.equal(out, graph_attention(q, k, v, senders, receivers, f))
    order = torch.argsort(receivers, stable=True)
    in_order = EdgeRows(senders[order], receivers[order], 20, 30)
    assert in_order.order is None and torch.equal(in_order.row_ptr, rows.row_ptr)
    assert torch.equal(out, graph_attention(q, k, v, envelope=f[order], rows=in_order))
    assert rows.col_ptr.tolist() == [int((senders < j).sum()) for j in range(31)]
    assert torch.equal(rows.senders[rows.col_edge.long()], senders.sort().values.int())


def test_edges_that_occur_twice_count_twice():
    q, k, v = tensors(3, 3, 1, 1, 4, 4)
    senders, receivers = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 0, 2])
    f = torch.tensor([1.0, 0.7, 0.5, 1.0], dtype=torch.float64)
    found = graph_attention(q, k, v, senders, receivers, f, "none")
    expected = graph_attention(
        q, k, v, senders[[0, 1, 3]], receivers[[0, 1, 3]], f[[0, 1, 3]] + f.new_tensor([0, 0.5, 0]), "none"
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("normalise", ALL)
def test_the_order_of_nodes_and_edges(normalise):
    q, k, v = tensors(20, 20, 2, 2, 8, 8)
    senders, receivers, f = edges_of(20, 20, 0.4)
    out = graph_attention(q, k, v, senders, receivers, f, normalise)
    random = torch.Generator().manual_seed(7)
    nodes, edges = torch.randperm(20, generator=random), torch.randperm(senders.shape[0], generator=random)
    place = torch.argsort(nodes)
    moved = graph_attention(
        q[nodes], k[nodes], v[nodes], place[senders][edges], place[receivers][edges], f[edges], normalise
    )
    torch.testing.assert_close(moved, out[nodes], rtol=1e-12, atol=1e-13)


def test_keys_as_values_and_one_head():
    q, k, _ = tensors(20, 30, 1, 1, 16, 16)
    senders, receivers, f = edges_of(20, 30, 0.3)
    out = graph_attention(q, k, None, senders, receivers, f)
    torch.testing.assert_close(out, graph_attention(q, k, k.clone(), senders, receivers, f), rtol=1e-13, atol=0)
    assert torch.equal(out, graph_attention(q, k, k, senders, receivers, f))
    assert torch.equal(out[:, 0], graph_attention(q[:, 0], k[:, 0], None, senders, receivers, f))


def test_threads_do_not_matter():
    q, k, v = tensors(400, 400, 1, 1, 32, 32, torch.float32)
    senders, receivers, f = edges_of(400, 400, 0.1)
    x = [t.requires_grad_() for t in (q, k, v)]
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            out = graph_attention(*x, senders, receivers, f.float())
            found.append([out, *torch.autograd.grad(out.sum(), x)])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def cutoff(r: torch.Tensor) -> torch.Tensor:
    """1 at 0, and 0 with two derivatives at 1 and beyond."""
    x = r.clamp(max=1)
    return 1 - 10 * x**3 + 15 * x**4 - 6 * x**5


@pytest.mark.parametrize("normalise", ["l2", "softmax"])
def test_a_sole_neighbour_leaves_smoothly(normalise):
    """One neighbour crosses the cutoff: energy, force and its slope end at zero with the default eps, and differences
    of the energy are the force. Without eps the energy would jump."""
    q, k, v = tensors(1, 1, 1, 1, 8, 8)

    def energy(r, **options):
        """Of pairs of atoms at these distances, each for itself."""
        each = torch.arange(r.shape[0])
        many = [x.expand(r.shape[0], 1, 8) for x in (q, k, v)]
        return graph_attention(*many, each, each, cutoff(r), normalise, **options).square().sum((1, 2))

    def force(r):
        r = r.clone().requires_grad_()
        return -torch.autograd.grad(energy(r).sum(), r)[0]

    inside, ends = (
        energy(torch.tensor([0.5], dtype=torch.float64)).item(),
        torch.tensor([1.0, 1.1], dtype=torch.float64),
    )
    assert inside > 0.1 and (energy(ends) == 0).all() and (force(ends) == 0).all()
    r, h = torch.linspace(0.8, 1.02, 45, dtype=torch.float64), 1e-5
    difference = (energy(r - h) - energy(r + h)) / (2 * h)
    torch.testing.assert_close(force(r), difference, rtol=0, atol=1e-7 * inside)
    # Steps of the energy and of the force along a fine path stay in proportion to the path's.
    path = torch.linspace(0.9, 1.01, 2201, dtype=torch.float64)
    energies, forces = energy(path), force(path)
    assert energies.diff().abs().max() < 2e-3 * inside and forces.diff().abs().max() < 2e-2 * forces.abs().max()
    near = torch.tensor([1 - 1e-4], dtype=torch.float64)
    assert force(near).abs().item() < 1e-3 * forces.abs().max()
    assert energy(near, eps=0.0).item() > 0.1 * inside  # what eps is there for


def test_rotations():
    """q.k over the components of irreps is invariant, so the sum of equivariant values is equivariant."""
    o3 = pytest.importorskip("e3nn.o3")
    irreps = o3.Irreps("4x0e+3x1o+2x2e")
    random = torch.Generator().manual_seed(5)
    x = torch.randn(3, 12, irreps.dim, generator=random, dtype=torch.float64)
    senders, receivers, f = edges_of(12, 12, 0.4)
    angles = torch.tensor([0.3, 1.1, -2.0], dtype=torch.float64)
    turn = irreps.D_from_angles(*angles).to(torch.float64)
    for normalise in ALL:
        out = graph_attention(x[0], x[1], x[2], senders, receivers, f, normalise)
        turned = graph_attention(*(x @ turn.T), senders, receivers, f, normalise)
        torch.testing.assert_close(turned, out @ turn.T, rtol=1e-10, atol=1e-10)
        assert not torch.allclose(turned, out)


def test_large_scores():
    """Softmax neither overflows nor loses what is small; an envelope of zero takes the largest score out."""
    q, k, v = tensors(4, 6, 1, 1, 8, 8)
    senders, receivers, _ = edges_of(4, 6, 1.0)
    for size in (1e3, -1e3):
        out = graph_attention(size * q, k, v, senders, receivers, None, "softmax")
        assert out.isfinite().all()
    torch.testing.assert_close(
        graph_attention(30 * q, k, v, senders, receivers, None, "softmax"),
        graph_attention_reference(30 * q, k, v, senders, receivers, None, "softmax"),
        rtol=1e-12, atol=1e-13,
    )  # fmt: skip
    x = [t.requires_grad_() for t in (100 * q, k, v)]
    f = (senders != 2).double().requires_grad_()
    out = graph_attention(*x, senders, receivers, f, "softmax")
    some = senders != 2
    torch.testing.assert_close(out, graph_attention(*x, senders[some], receivers[some], None, "softmax"))
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), [*x, f]))


def test_rows_keep_numbers_of_their_own():
    """A neighbour list's buffer may be written again."""
    senders, receivers = (torch.tensor(numbers, dtype=torch.int32) for numbers in ([1, 0], [0, 1]))
    rows = EdgeRows(senders, receivers, 2, 2)
    senders += 1000
    assert rows.senders.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_scores_of_edges_that_the_envelope_hides(dtype):
    """An envelope of zero takes an edge out of gradients as well, and a tiny one leaves numbers finite."""
    size = 288.0 if dtype == torch.float32 else 2900.0
    q = torch.tensor([[[1.0, 0.0]]], dtype=dtype, requires_grad=True)
    k = torch.tensor([[[size, 0.0]], [[0.0, 1.0]]], dtype=dtype, requires_grad=True)
    v = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]], dtype=dtype, requires_grad=True)
    senders, receivers = torch.tensor([0, 1]), torch.tensor([0, 0])
    for smallest in (0.0, 1e-30):
        f = torch.tensor([smallest, 1.0], dtype=dtype)
        out = graph_attention(q, k, v, senders, receivers, f, "softmax", scale=1.0, eps=0.0)
        first = torch.autograd.grad(out.sum(), (q, k, v), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (q, k, v))
        assert all(torch.isfinite(g).all() for g in (*first, *second))
        if smallest == 0.0:
            alone = graph_attention(q, k, v, senders[1:], receivers[1:], f[1:], "softmax", scale=1.0, eps=0.0)
            for got, wanted in zip(first, torch.autograd.grad(alone.sum(), (q, k, v)), strict=True):
                torch.testing.assert_close(got, wanted)
        else:  # here the first edge has nearly all
            torch.testing.assert_close(first[2][0, 0], torch.ones(2, dtype=dtype))


def test_compile():
    q, k, v = (x.requires_grad_() for x in tensors(9, 9, 2, 1, 8, 8, torch.float32))
    senders, receivers, f = edges_of(9, 9, 0.5)
    rows, f = EdgeRows(senders, receivers, 9, 9), f.float()
    assert rows.col_ptr.shape == (10,)  # made before, outside of what is compiled

    def loss(q, k, v):
        return graph_attention(q * 2, k, v, envelope=f, rows=rows).sin().sum()

    expected = torch.autograd.grad(loss(q, k, v), (q, k, v))
    found = torch.autograd.grad(torch.compile(loss, backend="aot_eager", fullgraph=True)(q, k, v), (q, k, v))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_errors():
    q, k, v = tensors(5, 6, 4, 2, 8, 8)
    senders, receivers = torch.tensor([0, 5, 2]), torch.tensor([0, 1, 4])
    rows = EdgeRows(senders, receivers, 5, 6)
    edges = (senders, receivers)
    for arguments, options, words in (
        ((q, k[..., :4], v, *edges), {}, "k: expected head size 8 as q, got 4"),
        ((q[:, :3], k, v, *edges), {}, "key heads must divide the heads of q, got 3 heads and 2"),
        ((q, k, v[:, :1], *edges), {}, r"v: expected \(6, 2, dv\) as k, got \(6, 1, 8\)"),
        ((q, k.float(), v, *edges), {}, "k: expected Double as q, got Float"),
        ((q.int(), k, v, *edges), {}, "expected float64, float32, float16 or bfloat16, got Int"),
        ((q, k, v, *edges), {"eps": -1.0}, "eps: expected a number that is not negative, got -1"),
        ((q, k, v, *edges), {"scale": float("nan")}, "scale: expected a finite number, got nan"),
        ((q, k, v, *edges), {"normalise": "l1"}, "expected one of none, l2, softmax, got 'l1'"),
        ((q, k, v, *edges), {"envelope": torch.ones(2).double()}, r"expected Double \(3\), .* got Double \(2\)"),
        ((q, k, v, *edges), {"envelope": torch.ones(3)}, r"envelope: expected Double \(3\), .* got Float \(3\)"),
        ((q, k, v), {}, "expected senders and receivers, or rows=EdgeRows"),
        ((q, k, v, *edges), {"rows": rows}, "expected senders and receivers or rows, got both"),
        ((q[:4], k, v), {"rows": rows}, "expected edges from 6 senders to 4 receivers, .* got 6 and 5"),
        ((q[0], k, v, *edges), {}, r"k: expected \(nodes, heads, d\), or \(nodes, d\)"),
        ((q, k, v, senders.float(), receivers), {}, "senders: expected int32 or int64 .*, got torch.float32"),
        ((q, k, v, senders[:2], receivers), {}, "as many senders as receivers on one device, got 2 on cpu and 3"),
        ((q, k, v, senders + 1, receivers), {}, "senders: expected numbers from 0 to 5, got 1 to 6"),
        ((q, k, v, senders, receivers - 1), {}, "receivers: expected numbers from 0 to 4, got -1 to 3"),
        ((q.repeat(1, 1, 65), k.repeat(1, 1, 65), v, *edges), {}, "expected head sizes of 1 to 512, got d = 520"),
    ):  # fmt: skip
        with pytest.raises(ClebschError, match=words):
            graph_attention(*arguments, **options)
