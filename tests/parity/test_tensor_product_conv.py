"""clebsch.TensorProductConv against e3nn's TensorProduct and a sum: values and derivatives of three orders."""

from __future__ import annotations

import pytest
import torch
from e3nn import o3
from torch import Tensor

import clebsch
from clebsch.tensor_product_conv import TensorProductConv
from conv_cases import CASES, GRAPHS, operands, upstream

pytestmark = pytest.mark.usefixtures("needs_library")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Many tiny calls: threads would only wait for each other."""
    torch.set_num_threads(1)


def conv_of(case: str, **options) -> TensorProductConv:
    return TensorProductConv(*CASES[case], **options)


def close(got: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    scale = max(1.0, float(expected.abs().max()) if expected.numel() else 1.0)
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance * scale)


def derivatives(function, inputs: list[Tensor], order: int) -> list[Tensor]:
    """The value and nested derivatives of a scalar made of the value, up to ``order``; exercises every mixed term."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    value = function(*inputs)
    results, scalar = [value], (value * torch.cos(torch.arange(value.numel()).view_as(value))).pow(2).sum()
    for level in range(order):
        grads = torch.autograd.grad(scalar, inputs, create_graph=True, allow_unused=True)
        grads = [torch.zeros_like(t) if g is None else g for g, t in zip(grads, inputs, strict=True)]
        results += grads
        scalar = sum((g * torch.sin(torch.arange(g.numel()) + level).view_as(g)).sum() for g in grads)
        if not scalar.requires_grad:
            break
    return [r.detach() for r in results]


@pytest.mark.parametrize("shared", [False, True], ids=["edge-weights", "shared"])
@pytest.mark.parametrize("case", CASES)
def test_three_derivatives_equal_e3nn(case: str, shared: bool) -> None:
    x, Y, W, senders, receivers, count, product = operands(case, "unsorted", shared)
    conv = conv_of(case, shared_weights=shared)
    assert conv.weight_numel == product.weight_numel
    ours = derivatives(lambda *t: conv(*t, senders, receivers, count), [x, Y, W], 3)
    theirs = derivatives(lambda *t: upstream(product, *t, senders, receivers, count), [x, Y, W], 3)
    assert len(ours) == len(theirs)
    for got, expected in zip(ours, theirs, strict=True):
        close(got, expected)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("case", ["uvu-uneven", "uvw"])
def test_graphs(case: str, graph: str) -> None:
    x, Y, W, senders, receivers, count, product = operands(case, graph)
    conv = conv_of(case)
    ours = derivatives(lambda *t: conv(*t, senders, receivers, count), [x, Y, W], 2)
    theirs = derivatives(lambda *t: upstream(product, *t, senders, receivers, count), [x, Y, W], 2)
    for got, expected in zip(ours, theirs, strict=True):
        close(got, expected)


@pytest.mark.parametrize("case", ["uvu-uneven", "uvw-diffdock", "mixed-modes"])
def test_float32(case: str) -> None:
    x, Y, W, senders, receivers, count, product = operands(case, "unsorted")
    got = conv_of(case)(x.float(), Y.float(), W.float(), senders, receivers.int(), count)
    assert got.dtype == torch.float32
    close(got.double(), upstream(product, x, Y, W, senders, receivers, count), 1e-5)


@pytest.mark.parametrize("shared", [False, True], ids=["edge-weights", "shared"])
@pytest.mark.parametrize("case", ["uvu-parity", "uvw", "mixed-modes"])
def test_gradcheck_and_gradgradcheck(case: str, shared: bool) -> None:
    x, Y, W, senders, receivers, count, _ = operands(case, "one-edge", shared)
    conv = conv_of(case, shared_weights=shared)
    inputs = [t.requires_grad_() for t in (x, Y, W)]
    assert torch.autograd.gradcheck(lambda *t: conv(*t, senders, receivers, count), inputs)
    assert torch.autograd.gradgradcheck(lambda *t: conv(*t, senders, receivers, count), inputs)


@pytest.mark.parametrize("case", ["uvu-uneven", "mixed-modes"])
def test_layouts(case: str) -> None:
    """Channel fastest in and out is the same numbers in another order."""
    x, Y, W, senders, receivers, count, _ = operands(case, "unsorted")

    def reorder(t: Tensor, irreps: str) -> Tensor:
        parts, start = [], 0
        for mul, ir in o3.Irreps(irreps).simplify():
            part = t[:, start : start + mul * ir.dim]
            parts.append(part.reshape(len(t), mul, ir.dim).transpose(1, 2).flatten(1))
            start += mul * ir.dim
        return torch.cat(parts, 1)

    in1, in2, out, _ = CASES[case]
    plain = conv_of(case)(x, Y, W, senders, receivers, count)
    fastest = conv_of(case, layout="ir_mul")(reorder(x, in1), reorder(Y, in2), W, senders, receivers, count)
    assert torch.equal(fastest, reorder(plain, out))


@pytest.mark.parametrize("options", [
    {"irrep_normalization": "norm"},
    {"irrep_normalization": "none", "path_normalization": "path"},
    {"path_normalization": "none", "in1_var": [0.5, 2.0], "in2_var": [1.0, 3.0], "out_var": [0.1, 0.2]},
    {"path_normalization": "path", "in1_var": [0.5, 2.0]},
])  # fmt: skip
def test_normalisations_of_e3nn(options: dict) -> None:
    in1, in2, out, instructions = CASES["uvw"]
    product = o3.TensorProduct(in1, in2, out, instructions, **options)
    conv = TensorProductConv(in1, in2, out, instructions, **options)
    paths = [p.split(",")[-1] for p in conv.problem.split("paths=")[1].split(";")]
    assert [float(p) for p in paths] == pytest.approx([i.path_weight for i in product.instructions], rel=1e-15)
    taken = TensorProductConv.from_e3nn(product)
    paths = [p.split(",")[-1] for p in taken.problem.split("paths=")[1].split(";")]
    assert [float(p) for p in paths] == pytest.approx([i.path_weight for i in product.instructions], rel=1e-15)


def test_signs_of_a_product_are_its_own() -> None:
    """A release of e3nn may have a coupling with the other sign: the product's own tensor counts."""
    x, Y, W, senders, receivers, count, product = operands("uvu-parity", "unsorted")
    flipped = [buffer for name, buffer in product.named_buffers() if name.endswith(("_w3j_1_1_1", "_w3j_1_2_2"))]
    assert flipped
    plain = TensorProductConv.from_e3nn(product)(x, Y, W, senders, receivers, count)
    for buffer in flipped:
        buffer.neg_()
    expected = upstream(product, x, Y, W, senders, receivers, count)
    assert not torch.allclose(plain, expected)
    close(TensorProductConv.from_e3nn(product)(x, Y, W, senders, receivers, count), expected)


def test_takes_e3nn_irreps() -> None:
    in1, in2, out, instructions = CASES["uvw"]
    conv = TensorProductConv(o3.Irreps(in1), o3.Irreps(in2), o3.Irreps(out), instructions)
    assert conv.problem == conv_of("uvw").problem


def test_repeats_bit_for_bit_in_any_thread_count() -> None:
    x, Y, W, senders, receivers, count, _ = operands("uvu-parity", "unsorted", dtype=torch.float32)
    conv = conv_of("uvu-parity")
    runs = []
    for threads in (1, 2, 2):
        torch.set_num_threads(threads)
        runs.append(derivatives(lambda *t: conv(*t, senders, receivers, count), [x, Y, W], 2))
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            assert torch.equal(a, b)


def test_given_graph() -> None:
    x, Y, W, senders, receivers, count, _ = operands("uvu-even", "bipartite")
    conv = conv_of("uvu-even")
    graph = clebsch.edge_graph(senders, receivers, max(len(x), count), count)
    assert torch.equal(conv(x, Y, W, senders, receivers, count, graph), conv(x, Y, W, senders, receivers, count))


def test_batch_product_equals_e3nn() -> None:
    _, Y, W, _, _, _, product = operands("uvu-uneven", "unsorted")
    conv = conv_of("uvu-uneven", layout="ir_mul")
    x = torch.randn(len(Y), product.irreps_in1.dim, dtype=torch.float64)
    identity = torch.arange(len(Y))
    for w in (W, W[0].clone()):
        module = conv if w.dim() == 2 else conv_of("uvu-uneven", layout="ir_mul", shared_weights=True)
        ours = derivatives(lambda *t: torch.ops.clebsch.tensor_product(*t, conv.problem), [x, Y, w], 3)
        same = derivatives(lambda *t, m=module: m(*t, identity, identity), [x, Y, w], 3)
        for got, expected in zip(ours, same, strict=True):
            close(got, expected)


@pytest.mark.parametrize("instructions, words", [
    ([(0, 0, 0, "uuu", True)], "mode uvu or uvw"),
    ([(0, 0, 0, "uvw", False)], "weighted uvw"),
    ([(0, 1, 0, "uvu", True)], "multiplicity 1"),
    ([(0, 0, 1, "uvu", True)], "output multiplicity 4"),
    ([(0, 0, 2, "uvu", True)], "do not couple"),
    ([(0, 0, 9, "uvu", True)], "blocks below"),
    ([(0, 0, 0, "uvu", True, -1.0)], "path_weight"),
    ([(0, 0, 0)], "expected (i_1"),
])  # fmt: skip
def test_refuses_by_name(instructions: list, words: str) -> None:
    with pytest.raises(clebsch.ClebschError) as error:
        TensorProductConv("4x0e", "1x0e+2x0e", "4x0e+3x0e+4x1o", instructions)
    assert words in str(error.value)


def test_degrees_that_the_kernels_do_not_have() -> None:
    with pytest.raises(clebsch.ClebschError, match="expected degrees l of at most 7, got 4x8e x 1x0e -> 4x8e"):
        TensorProductConv("4x8e", "1x0e", "4x8e", [(0, 0, 0, "uvu", True)])


@pytest.mark.parametrize("graph", ["unsorted", "bipartite"])
def test_operands_of_another_size(graph: str) -> None:
    """Rows or columns too many are not left out, whatever the order of the edges."""
    x, Y, W, senders, receivers, count, _ = operands("uvu-even", graph)
    conv = conv_of("uvu-even")
    for given, words in (
        ((torch.cat([x, x], 1), Y, W), "expected x of shape"),
        ((x[0], Y, W), "expected x of shape"),
        ((x, torch.cat([Y, Y]), W), "expected Y of shape"),
        ((x, Y[:, :-1], W), "expected Y of shape"),
        ((x, Y, torch.cat([W, W])), "expected W with"),
        ((x, Y, W[:, :-1]), "expected W with"),
    ):
        with pytest.raises(ValueError, match=words):
            conv(*given, senders, receivers, count)


def test_a_graph_of_more_nodes() -> None:
    x, Y, W, senders, receivers, count, _ = operands("uvu-even", "unsorted")
    conv = conv_of("uvu-even")
    graph = clebsch.edge_graph(senders, receivers, max(len(x), count) + 4, count)
    assert torch.equal(conv(x, Y, W, senders, receivers, count, graph), conv(x, Y, W, senders, receivers, count))


def test_no_path_gives_zeros() -> None:
    conv = TensorProductConv("4x0e", "0e", "4x0e+2x1o", [])
    none = torch.zeros(0, dtype=torch.int64)
    assert torch.equal(conv(torch.ones(3, 4), torch.ones(0, 1), torch.ones(0, 0), none, none, 5), torch.zeros(5, 10))


def test_bad_indices_are_named() -> None:
    x, Y, W, senders, receivers, count, _ = operands("uvw", "unsorted")
    wrong = ((senders + 7, receivers, "senders"), (senders, receivers - 7, "receivers"))
    for bad_senders, bad_receivers, word in wrong:
        with pytest.raises(RuntimeError, match=f"expected {word}"):
            conv_of("uvw")(x, Y, W, bad_senders, bad_receivers, count)
