"""CLEBSCH_CUDA_CHECK=1 on a CUDA device: every kind of index out of range is refused by every op, naming the place, and
the process goes on; right graphs give the same bits as without the switch."""

import functools

import pytest
import torch

NODES, EDGES, PADDING, TYPES = 40, 600, 32, 2
HARMONICS = "1x0e+1x1o"
CONV = f"conv in1=8x0e+8x1o in2={HARMONICS} out=8x0e+8x1o paths=uvu:0,0,0,1;uvu:0,1,1,1;uvu:1,0,1,1;uvu:1,1,0,1"
RADIAL = f"{CONV} radial=bessel,0.4,6,8-32,silu"
CUTOFF = 4.0


def make_graph(device):
    """A graph list with its transpose and unused room, types, edge vectors."""
    torch.manual_seed(3)
    receivers, senders = torch.randint(NODES, (EDGES,)).sort().values, torch.randint(NODES, (EDGES,))
    unread = torch.full((PADDING,), 2**30, dtype=torch.int32)
    row_ptr, col_ptr = torch.zeros(NODES + 1, dtype=torch.int32), torch.zeros(NODES + 1, dtype=torch.int32)
    row_ptr[1:] = torch.cumsum(torch.bincount(receivers, minlength=NODES), 0)
    col_ptr[1:] = torch.cumsum(torch.bincount(senders, minlength=NODES), 0)
    by_sender = senders.argsort(stable=True)
    rows = torch.tensor([NODES], dtype=torch.int32)
    graph = [row_ptr, torch.cat([senders.int(), unread]), torch.cat([receivers.int(), unread]), col_ptr,
             torch.cat([by_sender.int(), unread]), rows, rows.clone()]  # fmt: skip
    types = torch.randint(TYPES, (NODES,), dtype=torch.int32)
    vectors = torch.nn.functional.normalize(torch.randn(EDGES, 3, dtype=torch.float64), dim=1)
    vectors = torch.cat([2.5 * vectors, torch.full((PADDING, 3), float("nan"), dtype=torch.float64)])
    return [t.to(device) for t in graph], types.to(device), vectors.to(device)


class Ops:
    """Calls of ops that follow edges or types, as functions of a graph and types."""

    def __init__(self, device, vectors):
        torch.manual_seed(4)
        ops, total = torch.ops.clebsch, EDGES + PADDING
        x, scalars = torch.randn(NODES, 32, device=device), torch.randn(NODES, 8, device=device)
        harmonics, weights = torch.randn(total, 4, device=device), torch.randn(total, 32, device=device)
        float64 = {"dtype": torch.float64, "device": device}
        cutoffs = torch.full((TYPES, TYPES), CUTOFF, **float64)
        charges = torch.tensor([1.0, 8.0], **float64)
        index = torch.zeros(TYPES, TYPES, dtype=torch.int32, device=device)
        table = 0.1 * torch.randn(1, 17, 6, 32, device=device)
        none = torch.empty(0, **float64)
        basis = 3.14 * torch.arange(1.0, 9.0, **float64)
        radial = [table, index, cutoffs, basis, none.float()]
        linear = torch.randn(TYPES, 64, device=device)
        self.edges = {
            "tensor_product_conv": lambda graph, types: ops.tensor_product_conv(x, harmonics, weights, graph, 0, CONV),
            "interaction": lambda graph, types: ops.interaction(x, vectors, graph, types, radial, 0, RADIAL),
            "pair_repulsion": lambda graph, types: ops.pair_repulsion(
                vectors, graph, types, [cutoffs, charges], "zbl p=6 scale=7.1998225"
            ),
            "edge_embedding": lambda graph, types: ops.edge_embedding(
                vectors, graph, types, [none, index, cutoffs, basis, none], 0, RADIAL, torch.float32
            )[1][:EDGES],
        }
        self.types = {
            **{name: call for name, call in self.edges.items() if name != "tensor_product_conv"},
            "species_linear": lambda graph, types: ops.species_linear(
                scalars, linear, types, graph, 0, "linear in=8x0e out=8x0e"
            ),
        }


def faults(graph, types):
    """Of a graph and of types: name, what is wrong, what the message must hold."""

    def changed(which, place, value):
        copy = [t.clone() for t in graph]
        copy[which][place] = value
        return copy

    def wrong_types(value):
        copy = types.clone()
        copy[7] = value
        return copy

    in_graph = [
        ("sender beyond the nodes", changed(1, 17, NODES), f"senders[17] in [0, {NODES}), got {NODES}"),
        ("sender far beyond", changed(1, EDGES - 1, 2**30), f"senders[{EDGES - 1}] in [0, {NODES})"),
        ("negative sender", changed(1, 0, -1), "senders[0]"),
        ("row_ptr beyond the edges", changed(0, NODES, EDGES + PADDING + 1), f"row_ptr[{NODES}]"),
        ("row_ptr decreases", changed(0, 5, 2**30), "row_ptr"),
        ("row_ptr begins late", changed(0, 0, 1), "row_ptr[0] = 0, got 1"),
        ("receiver of another row", changed(2, 30, 39), "receivers disagree with its row_ptr"),
        ("col_ptr decreases", changed(3, 5, -5), "col_ptr"),
        ("col_edge beyond the edges", changed(4, 3, EDGES), f"col_edge[3] in [0, {EDGES}), got {EDGES}"),
        ("layer_rows beyond the nodes", changed(5, 0, NODES + 1), f"layer_rows[0] in [0, {NODES + 1})"),
        ("n_local beyond the rows", changed(6, 0, NODES + 1), f"n_local[0] in [0, {NODES + 1})"),
    ]
    in_types = [("type too large", wrong_types(TYPES), f"types[7] in [0, {TYPES}), got {TYPES}"),
                ("negative type", wrong_types(-3), "types[7]")]  # fmt: skip
    return in_graph, in_types


EDGE_OPS = ("tensor_product_conv", "interaction", "pair_repulsion", "edge_embedding")
TYPE_OPS = ("interaction", "pair_repulsion", "edge_embedding", "species_linear")
# The names are those of `faults`, which needs a graph.
GRAPH_FAULTS, TYPE_FAULTS = 11, 2


@functools.cache
def made():
    """(graph, types, ops) on the device."""
    graph, types, vectors = make_graph("cuda")
    return graph, types, Ops("cuda", vectors)


def refusal(call, *arguments):
    """The message of an error, or why there is none."""
    try:
        call(*arguments)
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error).split("\n")[0]
    return "not refused"


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    monkeypatch.setenv("CLEBSCH_CUDA_CHECK", "1")


@pytest.mark.sanitize
@pytest.mark.parametrize("fault", range(GRAPH_FAULTS))
@pytest.mark.parametrize("op", EDGE_OPS)
def test_a_wrong_graph_is_refused(op, fault):
    graph, types, ops = made()
    in_graph, _ = faults(graph, types)
    assert len(in_graph) == GRAPH_FAULTS
    name, wrong, words = in_graph[fault]
    said = refusal(ops.edges[op], wrong, types)
    assert words in said and op in said, f"{name}: {said}"


@pytest.mark.sanitize
@pytest.mark.parametrize("fault", range(TYPE_FAULTS))
@pytest.mark.parametrize("op", TYPE_OPS)
def test_wrong_types_are_refused(op, fault):
    graph, types, ops = made()
    _, in_types = faults(graph, types)
    assert len(in_types) == TYPE_FAULTS
    name, wrong, words = in_types[fault]
    said = refusal(ops.types[op], graph, wrong)
    assert words in said and op in said, f"{name}: {said}"


@pytest.mark.parametrize("which", ["senders", "receivers"])
def test_edges_in_any_order_are_checked(which):
    """As TensorProductConv hands them over."""
    graph, _, _ = made()
    wrong = {"senders": graph[1][:EDGES].long(), "receivers": graph[2][:EDGES].long()}
    wrong[which][11] = 2**32 + 1
    said = refusal(torch.ops.clebsch.edge_graph, wrong["senders"], wrong["receivers"], NODES, NODES, True)
    assert f"{which}[11] in [0, {NODES}), got {2**32 + 1}" in said


@pytest.mark.parametrize("op", sorted({*EDGE_OPS, *TYPE_OPS}))
def test_a_right_graph_gives_the_same_bits(op, monkeypatch):
    graph, types, ops = made()
    call = {**ops.edges, **ops.types}[op]
    checked = call(graph, types)
    monkeypatch.delenv("CLEBSCH_CUDA_CHECK")
    assert torch.equal(call(graph, types), checked)
