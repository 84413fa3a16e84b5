"""tensor_product_conv on a CUDA device against the fp64 reference: forward, every gradient, second derivatives, odd
graphs, repeatability."""

import functools
import itertools

import pytest
import torch
from conv_reference import Problem, block_errors, make_graph, named_problems, reference

TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13}
# Which first gradients are differentiated again: all; those of an edge (training with forces); those of x.
DOUBLE_MASKS = ((True, True, True), (False, True, True), (True, False, False))
PROBLEMS = named_problems("conv ")
GRAPHS = (
    "asymmetric, empty rows, ghosts",
    "padding",
    "fewer rows computed",
    "no transpose (atomics)",
    "long receivers",
    "tile borders",
    "no edges",
    "no rows",
)


@functools.cache
def graphs(device):
    generator = torch.Generator().manual_seed(1)
    uneven = torch.randint(0, 90, (37,), generator=generator)
    uneven[::5] = 0
    shapes = {
        "asymmetric, empty rows, ghosts": ((uneven, 53), {}),
        "padding": ((uneven, 53), {"padding": 41}),
        "fewer rows computed": ((uneven, 53), {"padding": 3, "layer_rows": 20}),
        "no transpose (atomics)": ((uneven, 53), {"transpose": False}),
        # Several, as one's sum may by chance be close to zero, and that is all a block of one number is judged by.
        "long receivers": (([3000, 1, 1700, 0, 1500, 1300], 7), {}),
        "tile borders": (([16, 32, 33, 15, 1, 31, 64, 17], 9), {}),
        "no edges": (([0, 0, 0], 4), {}),
        "no rows": (([], 3), {}),
    }
    return {name: make_graph(*sizes, **options, device=device) for name, (sizes, options) in shapes.items()}


def relative(got, expected):
    """Norm of the difference over the norm; infinite where something is not a number, so that a maximum keeps it."""
    scale = expected.norm()
    error = float((got.double() - expected).norm() / scale) if scale > 0 else float(got.abs().sum())
    return error if error == error else float("inf")


def operands(problem, graph, dtype, seed=3):
    """x, harmonics, weights and a gradient of the output, without padding."""
    torch.manual_seed(seed)
    shapes = (
        (graph.nodes, problem.in1.dim),
        (graph.edges, problem.in2.dim),
        (graph.edges, problem.weight_count),
        (graph.nodes, problem.out.dim),
    )
    return tuple(torch.randn(s, device=graph.senders.device, dtype=torch.float64).to(dtype) for s in shapes)


def padded(t, graph):
    """Capacity beyond the true count is never read: it is NaN here."""
    return torch.cat([t, t.new_full((graph.list[1].numel() - t.shape[0], t.shape[1]), float("nan"))])


def check(name, problem, graph_name, graph, dtype):
    """Returns the largest relative error of any result; asserts what else must hold."""
    computed = min(int(graph.list[5][0]), graph.rows)
    used = int((graph.receivers < computed).sum())
    x, y, w, g = operands(problem, graph, dtype)

    exact = [t.double().clone().requires_grad_() for t in (x, y, w)]
    expected = reference(
        problem, exact[0], exact[1][:used], exact[2][:used], graph.senders[:used], graph.receivers[:used], graph.nodes
    )
    grads = torch.autograd.grad(expected, exact, g.double(), allow_unused=True) if used else (None, None, None)
    grads = [torch.zeros_like(e) if t is None else t for t, e in zip(grads, exact, strict=True)]

    def run(mask):
        a = [x.clone().requires_grad_(mask[0]), padded(y, graph).requires_grad_(mask[1])]
        a.append(padded(w, graph).requires_grad_(mask[2]))
        out = torch.ops.clebsch.tensor_product_conv(*a, graph.list, 0, problem.text)
        wanted = [t for t, m in zip(a, mask, strict=True) if m]
        got = iter(torch.autograd.grad(out, wanted, g)) if wanted else iter(())
        return [out.detach()] + [next(got)[: e.shape[0]] if m else None for m, e in zip(mask, exact, strict=True)]

    results = run((True, True, True))
    errors = [
        block_errors(problem, problem.out, results[0], expected.detach()),
        block_errors(problem, problem.in1, results[1], grads[0]),
        relative(results[2], grads[1]),
        relative(results[3], grads[2]),
    ]
    again = run((True, True, True))
    deterministic = graph.list[3].numel() > 0
    for i, (a, b) in enumerate(zip(results, again, strict=True)):
        assert torch.equal(a, b) or not (deterministic or i != 1), f"result {i} differs from run to run"
    if graph_name.startswith("asymmetric") and name.startswith("test-"):  # each choice of gradients is a kernel
        for mask in itertools.product((False, True), repeat=3):
            part = run(mask)
            for i, t in enumerate(part):
                if t is not None:
                    assert relative(t, results[i].double()) <= TOLERANCE[dtype], f"gradients {mask}, result {i} differs"
    return max(errors)


def check_double(problem, graph, dtype, mask=(True, True, True)):
    """Errors of the derivative of the backward pass that makes the gradients in `mask`: its own, and composed."""
    computed = min(int(graph.list[5][0]), graph.rows)
    used = int((graph.receivers < computed).sum())
    x, y, w, g = operands(problem, graph, dtype)
    arriving = operands(problem, graph, dtype, seed=4)[:3]
    chosen = [k for k in range(3) if mask[k]]

    def second(function, a, cotangents, rest, create_graph=False):
        first = torch.autograd.grad(function(*a[:3]), [a[k] for k in chosen], a[3], create_graph=True)
        results = torch.autograd.grad(
            first, rest, [cotangents[k] for k in chosen], allow_unused=True, create_graph=create_graph
        )
        return [torch.zeros_like(t) if r is None else r.detach() for r, t in zip(results, rest, strict=True)]

    exact = [t.double().clone().requires_grad_() for t in (x, y, w, g)]
    inner = [exact[0], exact[1][:used], exact[2][:used], exact[3]]
    cut = [arriving[0].double(), arriving[1][:used].double(), arriving[2][:used].double()]
    expected = second(
        lambda a, b, c: reference(problem, a, b, c, graph.senders[:used], graph.receivers[:used], graph.nodes),
        inner,
        cut,
        exact,
    )
    mine = [x.clone(), padded(y, graph), padded(w, graph), g.clone()]
    mine = [t.requires_grad_() for t in mine]
    from_padded = [arriving[0], padded(arriving[1], graph), padded(arriving[2], graph)]

    def run(create_graph=False):
        got = second(
            lambda a, b, c: torch.ops.clebsch.tensor_product_conv(a, b, c, graph.list, 0, problem.text),
            mine,
            from_padded,
            mine,
            create_graph,
        )
        return [t[: e.shape[0]] for t, e in zip(got, exact, strict=True)]

    def error(got):
        # Rows of grad_out that no row computes and edges without a computed row must be exactly zero.
        return max(
            block_errors(problem, problem.in1, got[0], expected[0]),
            relative(got[1], expected[1]),
            relative(got[2], expected[2]),
            block_errors(problem, problem.out, got[3], expected[3]),
        )

    results = run()
    composed = error(run(create_graph=True))  # where a third derivative may follow, the lower orders are composed
    for i, (a, b) in enumerate(zip(results, run(), strict=True)):
        free = graph.list[3].numel() == 0 and i == 0  # atomic sums come in any order
        assert free or torch.equal(a, b), f"double backward: result {i} differs from run to run"
    return error(results), composed


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda t: str(t)[6:])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_as_the_reference(problem, dtype, graph, device, within):
    made = graphs(device)[graph]
    parsed = Problem(PROBLEMS[problem])
    errors = {"first": check(problem, parsed, graph, made, dtype)}
    for mask in DOUBLE_MASKS if problem.startswith("test-") else DOUBLE_MASKS[:1]:
        if made.edges:
            kind = "".join("xyw"[k] for k in range(3) if mask[k])
            errors[f"second {kind}"], errors[f"composed {kind}"] = check_double(parsed, made, dtype, mask)
    within(errors, TOLERANCE[dtype])
