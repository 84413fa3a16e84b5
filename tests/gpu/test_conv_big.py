"""tensor_product_conv beyond 2^31 elements in one array, on a GPU with some 100 GB: indices must be 64 bits wide.

Values, first and second derivatives at both ends of the arrays are compared with the fp64 reference.
"""

import pytest
import torch
from conv_reference import Problem, block_errors, reference

CASES = {
    # More than 2^31 weights, weight gradients, and per-edge gradients of x summed by sender.
    "edges": ("conv in1=128x0e in2=1x0e out=128x0e paths=uvu:0,0,0,1", 2**31 // 128 + 5000, 40000),
    # More than 2^31 features in, features out and their gradients: few edges to a node.
    "nodes": ("conv in1=64x0e+64x1o in2=1x0e+1x1o out=64x0e+64x0e+64x1o paths=uvu:0,0,0,1;uvu:1,1,1,1;uvu:0,1,2,1",
              6_000_000, 2**31 // 256 + 5000),
}  # fmt: skip


def graph_of(edges, nodes):
    """Random senders; row i has edges // nodes edges or one more. Device tensors, as the op wants them."""
    receivers = (torch.arange(edges, device="cuda") * nodes) // edges
    generator = torch.Generator("cuda").manual_seed(0)
    senders = torch.randint(nodes, (edges,), device="cuda", generator=generator)
    senders[-1], senders[0] = nodes - 1, 0
    row_ptr = torch.searchsorted(receivers, torch.arange(nodes + 1, device="cuda")).int()
    col_edge = torch.argsort(senders, stable=True).int()
    col_ptr = torch.searchsorted(senders[col_edge.long()], torch.arange(nodes + 1, device="cuda")).int()
    count = torch.tensor([nodes], dtype=torch.int32, device="cuda")
    return senders, receivers, [row_ptr, senders.int(), receivers.int(), col_ptr, col_edge, count, count.clone()]


def compare(problem, x, y, w, g, senders, receivers, rows, edges, out, gy, gw):
    """Errors of some rows, with all their edges, and of these edges' gradients."""
    nodes, place = torch.unique(torch.cat([senders[edges], receivers[edges], rows]), return_inverse=True)
    s, r, at = place.split([edges.numel(), edges.numel(), rows.numel()])
    leaves = [t.double().requires_grad_() for t in (x[nodes], y[edges], w[edges])]
    expected = reference(problem, *leaves, s, r, nodes.numel())
    _, ey, ew = torch.autograd.grad(expected, leaves, g[nodes].double())
    error_y = float((gy[edges].double() - ey).norm() / ey.norm())
    error_w = float((gw[edges].double() - ew).norm() / ew.norm())
    return [block_errors(problem, problem.out, out[rows], expected.detach()[at]), error_y, error_w]


def gradient_of_node(problem, x, y, w, g, senders, receivers, node, gx):
    edges = (senders == node).nonzero()[:, 0]
    if not edges.numel():
        return float(gx[node].abs().max())
    nodes, place = torch.unique(torch.cat([senders[edges], receivers[edges]]), return_inverse=True)
    leaf = x[nodes].double().requires_grad_()
    s, r = place[: edges.numel()], place[edges.numel() :]
    out = reference(problem, leaf, y[edges].double(), w[edges].double(), s, r, nodes.numel())
    expected = torch.autograd.grad(out, leaf, g[nodes].double())[0]
    at = torch.searchsorted(nodes, torch.tensor([node], device="cuda"))
    return block_errors(problem, problem.in1, gx[node : node + 1], expected[at])


def compare_double(problem, operands, tangents, senders, receivers, rows, edges, second):
    """As compare, for the derivative of the backward pass: by y, w and the incoming gradient."""
    nodes, place = torch.unique(torch.cat([senders[edges], receivers[edges], rows]), return_inverse=True)
    s, r, at = place.split([edges.numel(), edges.numel(), rows.numel()])
    where = (nodes, edges, edges, nodes)
    x, y, w, g = (t[i].double().requires_grad_() for t, i in zip(operands, where, strict=True))
    out = reference(problem, x, y, w, s, r, nodes.numel())
    first = torch.autograd.grad(out, (x, y, w), g, create_graph=True)
    arriving = [t[i].double() for t, i in zip(tangents, where, strict=False)]
    _, *expected = torch.autograd.grad(first, (x, y, w, g), arriving)
    got = (second[1][edges], second[2][edges], second[3][rows])
    expected[2] = expected[2][at]
    errors = [float((a.double() - b).norm() / b.norm()) for a, b in zip(got[:2], expected, strict=False)]
    return [*errors, block_errors(problem, problem.out, got[2], expected[2])]


def check(text, edges, nodes, deterministic):
    problem = Problem(text)
    senders, receivers, graph = graph_of(edges, nodes)
    if not deterministic:
        graph[3] = graph[4] = torch.zeros(0, dtype=torch.int32, device="cuda")
    generator = torch.Generator("cuda").manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, device="cuda", generator=generator)

    x, y = normal(nodes, problem.in1.dim), normal(edges, problem.in2.dim)
    w, g = normal(edges, problem.weight_count), normal(nodes, problem.out.dim)
    for t in (x, y, w):
        t.requires_grad_()
    out = torch.ops.clebsch.tensor_product_conv(x, y, w, graph, -1, text)
    g.requires_grad_()
    first = torch.autograd.grad(out, (x, y, w), g, create_graph=True)
    gx, gy, gw = (t.detach() for t in first)
    tangents = [normal(*t.shape) for t in (x, y, w)]
    second = torch.autograd.grad(first, (x, y, w, g), tangents)
    del first
    out, x, y, w, g = (t.detach() for t in (out, x, y, w, g))
    some = max(2, 400 * nodes // edges)
    errors = []
    for first in (0, nodes - some):
        rows = torch.arange(first, first + some, device="cuda")
        begin, end = (int(graph[0][i]) for i in (first, first + some))
        inside = torch.arange(begin, end, device="cuda")
        errors += compare(problem, x, y, w, g, senders, receivers, rows, inside, out, gy, gw)
        errors += compare_double(problem, (x, y, w, g), tangents, senders, receivers, rows, inside, second)
    for node in (0, nodes // 2, nodes - 1):
        errors.append(gradient_of_node(problem, x, y, w, g, senders, receivers, node, gx))
    largest = max(t.numel() for t in (x, y, w, g, out))
    return max(e if e == e else float("inf") for e in errors), largest


@pytest.mark.alone
@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "atomic"])
@pytest.mark.parametrize("case", CASES)
def test_beyond_32_bits(case, deterministic, within):
    need = 110e9
    if torch.cuda.get_device_properties(0).total_memory < need:
        pytest.skip(f"needs a GPU with {need / 1e9:.0f} GB")
    try:
        error, largest = check(*CASES[case], deterministic)
    finally:
        torch.cuda.empty_cache()
    within({"largest": error}, 3e-6)
    assert largest > 2**31
