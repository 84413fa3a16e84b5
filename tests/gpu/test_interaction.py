"""interaction on a CUDA device against the CPU op in fp64: forward, both gradients, odd graphs, repeatability, size."""

import dataclasses
import functools
import itertools

import pytest
import torch
from interaction_cases import (
    NONE,
    TOLERANCE,
    compare,
    graphs,
    knot,
    make_case,
    make_radial,
    on_knots,
    radial_problems,
    relative,
    replayed,
)

PROBLEMS = radial_problems()
# The small ones, on which the sanitizer runs too.
QUICK_PROBLEMS = ("test-uneven", "test-parity", "nequip-S")
QUICK_GRAPHS = ("three types, ghosts", "fewer rows, padding", "chunk borders", "no edges")
DTYPES = list(TOLERANCE)


@functools.lru_cache(maxsize=4)
def case_of(problem, graph):
    """(case, what the CPU gives in fp64)"""
    case = graphs()[graph](PROBLEMS[problem]).rounded(torch.float32)
    return case, case.operands(torch.float64, "cpu").results()


def transposes(name, dtype):
    """With and without the transpose; not without for kernels that compile for tens of seconds."""
    return (True,) if dtype == torch.float64 and name in ("test-l7", "nequip-XL") else (True, False)


def parameters():
    """(problem, dtype, graph)"""
    made = []
    for problem, dtype, graph in itertools.product(PROBLEMS, DTYPES, graphs()):
        quick = problem in QUICK_PROBLEMS and graph in QUICK_GRAPHS
        name = f"{problem}-{str(dtype)[6:]}-{graph}"
        made.append(pytest.param(problem, dtype, graph, id=name, marks=[pytest.mark.sanitize] if quick else []))
    return made


@pytest.mark.parametrize(("problem", "dtype", "graph"), parameters())
def test_as_on_the_cpu(problem, dtype, graph, device, within):
    case, expected = case_of(problem, graph)
    errors = {}
    for transpose in transposes(problem, dtype):
        mode = "deterministic" if transpose else "atomic"
        operands = case.operands(dtype, device, transpose)
        got, again = operands.results(), operands.results()
        errors[mode] = compare(case, got, expected)
        for result, a, b in zip(("out", "grad_x", "grad_edge_vec"), got, again, strict=True):
            free = result == "grad_x" and not transpose  # atomic sums come in any order
            assert free or torch.equal(a, b), f"{result} differs from run to run ({mode})"
        if problem in QUICK_PROBLEMS and graph == "three types, ghosts":
            for mask in ((True, False), (False, True), (False, False)):  # each is a kernel of its own
                errors[f"{mode} {mask}"] = compare(case, operands.results(mask), expected)
    within(errors, TOLERANCE[dtype])


def by_sender():
    """(problem, graph): any problem can go by sender, not those alone that do by default."""
    made = []
    for problem, graph in itertools.product(("test-uneven", "test-parity", "nequip-S", "nequip-M"), graphs()):
        quick = problem in QUICK_PROBLEMS and graph in QUICK_GRAPHS
        made.append(
            pytest.param(problem, graph, id=f"{problem}-{graph}", marks=[pytest.mark.sanitize] if quick else [])
        )
    return made


@pytest.mark.parametrize(("problem", "graph"), by_sender())
def test_backward_by_sender(problem, graph, device, within, monkeypatch):
    monkeypatch.setenv("CLEBSCH_CUDA_INTERACTION", "turned=1")
    case, expected = case_of(problem, graph)
    operands = case.operands(torch.float32, device, True)
    got, again = operands.results(), operands.results()
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))
    within({"by sender": compare(case, got, expected)}, TOLERANCE[torch.float32])


@pytest.mark.sanitize
def test_autograd_is_the_direct_call(device):
    case = make_case(PROBLEMS["test-uneven"], [4, 0, 40, 7], 6, types=2)
    operands = case.operands(torch.float64, device)
    expected = operands.results()
    operands.x.requires_grad_(), operands.edge_vec.requires_grad_()
    out = operands.forward()
    grads = torch.autograd.grad(out, (operands.x, operands.edge_vec), operands.grad_out)
    assert all(torch.equal(a, b) for a, b in zip([out.detach(), *grads], expected, strict=True))
    alone = torch.autograd.grad(operands.forward(), operands.edge_vec, operands.grad_out)[0]
    assert relative(alone, expected[2])[0] < 1e-13


@pytest.mark.parametrize("problem", ["test-parity", "nequip-M", "test-l7"])
def test_finite_differences(problem, device):
    """Central differences of the sum of out * g in fp64 along random directions, with edges on every knot."""
    case = on_knots(PROBLEMS[problem])
    inside = case.edge_vec.norm(dim=1)
    inside = (inside > 0.1) & ((inside - 5.0).abs() > 1e-9)  # a step would leave the cutoff's exact zero
    operands = case.operands(torch.float64, device)
    gradients = operands.backward()
    generator = torch.Generator().manual_seed(5)

    def energy(operands=operands):
        return float((operands.forward() * operands.grad_out).sum())

    for index, field in enumerate(("x", "edge_vec")):
        start = getattr(operands, field)
        direction = torch.randn(start.shape, generator=generator, dtype=torch.float64)
        if field == "edge_vec":
            direction = direction * inside[:, None] * case.edge_vec.norm(dim=1, keepdim=True).clamp(max=1)
        direction = direction.to(device)
        differences = []
        for step in (2e-5, 1e-5):
            ends = []
            for sign in (1, -1):
                setattr(operands, field, start + sign * step * direction)
                ends.append(energy())
            differences.append((ends[0] - ends[1]) / (2 * step))
        setattr(operands, field, start)
        slope = (4 * differences[1] - differences[0]) / 3
        expected = float((gradients[index] * direction).sum())
        error = abs(slope - expected) / float((gradients[index] * direction).norm())
        assert error < 1e-6, f"{field}: finite difference {slope}, gradient {expected}, error {error:.1e}"


@pytest.mark.sanitize
def test_continuous_at_knots(device):
    """Value and slope on both sides of every knot and of the first one."""
    k = torch.tensor([knot(k, 5.0, 24) for k in range(24)], dtype=torch.float64)
    results = []
    for side in (1 - 1e-11, 1 + 1e-11):
        vectors = torch.zeros(24, 3, dtype=torch.float64)
        vectors[:, 2] = k * side
        case = make_case(
            PROBLEMS["test-uneven"], [1] * 24, 24, cutoffs=[[5.0]], pieces=24, vectors=vectors, senders=torch.arange(24)
        )
        results.append(case.operands(torch.float64, device).results())
    for left, right in zip(*results, strict=True):
        error = relative(left, right)[1]
        assert error < 1e-8, f"jump of {error:.1e} at a knot"


@pytest.mark.sanitize
def test_no_table_shows():
    """An edge between types without a table, or a vector that is not finite, makes its own receiver not a number."""
    text = PROBLEMS["test-uneven"]
    for of_vector in (False, True):
        senders = torch.tensor([0, 1, 2, 3, 0, 1])
        types = torch.tensor([0, 0, 0, 1], dtype=torch.int32)
        distances = torch.full((6,), 2.0, dtype=torch.float64)
        case = make_case(
            text,
            [2, 2, 1, 1],
            4,
            types=2,
            cutoffs=[[5.0] * 2] * 2,
            senders=senders,
            node_types=types,
            distances=distances,
        )
        if of_vector:
            case.edge_vec[3, 1] = float("nan")
        else:
            case.radial.table_index[0, 1] = -1
        for dtype in DTYPES:
            out = case.operands(dtype, "cuda").forward()
            bad = (out != out).any(1).tolist()
            assert bad == [False, True, False, False], bad


def test_captured_graph():
    """A CUDA graph that replays forward and backward sees new contents of the same tensors."""
    case = make_case(PROBLEMS["nequip-S"], [30, 0, 70, 3000, 5], 9, types=2, padding=100)
    for transpose in (True, False):
        results, eager = replayed(case.operands(torch.float32, "cuda", transpose))
        assert torch.equal(results[0], eager[0]) and torch.equal(results[2], eager[2])
        assert relative(results[1], eager[1].double())[0] < 1e-6


def test_many_streams():
    """Calls on several streams at once give what one after the other gives."""
    operands = [
        make_case(PROBLEMS["nequip-S"], [40] * 50, 60, seed=s).operands(torch.float32, "cuda") for s in range(4)
    ]
    expected = [o.results() for o in operands]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in operands]
    for _ in range(3):
        got = []
        for o, stream in zip(operands, streams, strict=True):
            with torch.cuda.stream(stream):
                got.append(o.results())
        torch.cuda.synchronize()
        for a, b in zip(got, expected, strict=True):
            assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.mark.sanitize
def test_refused(device):
    """Operands that do not fit are named."""
    operands = make_case(PROBLEMS["test-uneven"], [3, 4], 3).operands(torch.float32, device)
    changes = {
        "edge_vec": {"edge_vec": operands.edge_vec.float()},
        "types": {"types": operands.types.long()},
        "table": {"radial": [operands.radial[0].double(), *operands.radial[1:]]},
        "x": {"x": operands.x[:, 1:].contiguous()},
    }
    for word, change in changes.items():
        with pytest.raises(RuntimeError, match=word):
            dataclasses.replace(operands, **change).forward()


@pytest.mark.parametrize("problem", ["nequip-M", "mace-M"])
def test_exact_path(problem, device):
    """Without a table the op evaluates the network: the two agree to the table's accuracy."""
    cutoff = 5.0 if problem.startswith("nequip") else 6.0
    radial = make_radial(PROBLEMS[problem], [[cutoff]])
    generator = torch.Generator().manual_seed(8)
    distances = 1.2 + (cutoff - 1.2) * torch.rand(300, generator=generator, dtype=torch.float64)
    case = make_case(PROBLEMS[problem], [75] * 4, 6, radial=radial, distances=distances)
    exact, table = case.operands(torch.float64, device, exact=True), case.operands(torch.float64, device)
    results = []
    for operands in (exact, table):
        operands.x.requires_grad_(), operands.edge_vec.requires_grad_()
        out = operands.forward()
        results.append([out, *torch.autograd.grad(out, (operands.x, operands.edge_vec), operands.grad_out)])
    errors = [relative(t, e.double())[0] for e, t in zip(*results, strict=True)]
    assert max(errors) < 1e-6, errors


@pytest.mark.alone
def test_million_atoms(record_property):
    """1.1 million atoms, 22 million edges, an output of 2.25e9 numbers: a block of 1000 atoms, again and again."""
    copies, block, degree = 1100, 1000, 20
    case = make_case(PROBLEMS["mace-l1"], [degree] * block, block, types=2, layer_rows=None)
    one = case.rounded(torch.float32)
    expected = one.operands(torch.float64, "cpu").results()
    unit = one.operands(torch.float32, "cuda")
    edges = case.edges
    shift = torch.arange(copies, device="cuda", dtype=torch.int32)[:, None]
    ends = torch.arange(1, block * copies + 1, device="cuda", dtype=torch.int32)
    rows = torch.cat([torch.zeros(1, dtype=torch.int32, device="cuda"), ends * degree])
    columns = torch.cat([unit.graph[3][:1], (unit.graph[3][1:] + shift * edges).reshape(-1)])
    limit = torch.tensor([block * copies], dtype=torch.int32, device="cuda")
    graph = [
        rows,
        (unit.graph[1] + shift * block).reshape(-1),
        (unit.graph[2] + shift * block).reshape(-1),
        columns,
        (unit.graph[4] + shift * edges).reshape(-1),
        limit,
        limit.clone(),
    ]
    big = dataclasses.replace(
        unit,
        case=dataclasses.replace(one, edges=edges * copies),
        x=unit.x.repeat(copies, 1),
        edge_vec=unit.edge_vec.repeat(copies, 1),
        graph=graph,
        types=unit.types.repeat(copies),
        grad_out=unit.grad_out.repeat(copies, 1),
    )
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for transpose in (True, False):
        if not transpose:
            big.graph = [*graph[:3], NONE.to("cuda"), NONE.to("cuda"), *graph[5:]]
        for index, result in enumerate([big.forward, lambda: big.backward((True, True))]):
            got = result()
            got = [got] if index == 0 else got
            wanted = expected[:1] if index == 0 else expected[1:]
            for n, (a, e) in enumerate(zip(got, wanted, strict=True)):
                blocks = a.view(copies, -1, a.shape[1])
                assert relative(blocks[0].cpu(), e)[0] < TOLERANCE[torch.float32]
                for c in range(1, copies):
                    if index == 1 and n == 0:  # sums over senders may be cut elsewhere, or come in any order
                        assert relative(blocks[c], blocks[0].double())[1] < 1e-5, f"copy {c}, transpose {transpose}"
                    else:
                        assert torch.equal(blocks[c], blocks[0]), f"copy {c} differs, transpose {transpose}"
            del got, blocks, a
    peak = torch.cuda.max_memory_allocated() - before
    results = 4 * big.case.problem.out.dim * block * copies
    record_property("beyond operands, MB", peak / 2**20)
    torch.cuda.empty_cache()
    assert peak < results + 2**30
