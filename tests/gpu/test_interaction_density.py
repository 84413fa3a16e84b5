"""interaction_density on a CUDA device against the CPU op in fp64: messages, density and both gradients, on the graphs
of interaction_cases.py, with and without the transpose, repeatability; then single tests."""

import dataclasses
import functools

import pytest
import torch
from density_cases import SUM, with_density
from interaction_cases import (
    TOLERANCE,
    Operands,
    compare,
    graphs,
    make_case,
    on_knots,
    radial_problems,
    relative,
    replayed,
)

PROBLEMS = radial_problems()
NAMES = [name for name in PROBLEMS if name in ("test-uneven", "test-parity", "nequip-S", "mace-l1", "mace-M")]
DTYPES = list(TOLERANCE)


@functools.lru_cache(maxsize=4)
def case_of(problem, graph):
    """(case, what the CPU gives in fp64)"""
    case = with_density(graphs()[graph](PROBLEMS[problem]).rounded(torch.float32))
    return case, case.operands(torch.float64, "cpu").results()


@pytest.mark.parametrize("graph", graphs())
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: str(t)[6:])
@pytest.mark.parametrize("problem", NAMES)
def test_as_on_the_cpu(problem, dtype, graph, device, within):
    case, expected = case_of(problem, graph)
    masks = [(True, True)]
    if graph == "three types, ghosts":
        masks += [(True, False), (False, True), (False, False)]
    errors = {}
    for transpose in (True, False):
        mode = "deterministic" if transpose else "atomic"
        operands = case.operands(dtype, device, transpose)
        for mask in masks:
            errors[f"{mode} {mask}"] = compare(case, operands.results(mask), expected)
        for k, (a, b) in enumerate(zip(operands.results(), operands.results(), strict=True)):
            free = k == 1 and not transpose  # atomic sums come in any order
            assert free or torch.equal(a, b), f"result {k} differs from run to run ({mode})"
    within(errors, TOLERANCE[dtype])


@pytest.mark.sanitize
def test_autograd_is_the_direct_call(device):
    case = with_density(make_case(PROBLEMS["test-uneven"], [4, 0, 40, 7], 6, types=2))
    operands = case.operands(torch.float64, device)
    out, *grads, density = operands.results()
    operands.x.requires_grad_(), operands.edge_vec.requires_grad_()
    got = operands.forward()
    above = (operands.grad_out, operands.grad_density)
    got += torch.autograd.grad(got, (operands.x, operands.edge_vec), above)
    assert all(torch.equal(a, b) for a, b in zip(got, [out, density, *grads], strict=True))


@pytest.mark.sanitize
def test_two_interactions(device):
    """Messages and density are what interaction gives for each; without tables too, where that exists for densities."""
    for exact in (False, True) if device == "cpu" else (False,):
        case = with_density(make_case(PROBLEMS["mace-l1"], [75] * 4, 6, pieces=96))
        o = case.operands(torch.float64, device, exact=exact)
        out, density = o.forward()
        graph, types, radial, layer, text = Operands.rest(o)
        alone = torch.ops.clebsch.interaction(o.x, o.edge_vec, graph, types, radial, layer, text)
        ones = torch.ones_like(density)
        sums = torch.ops.clebsch.interaction(ones, o.edge_vec, graph, types, o.density, layer, SUM)
        assert relative(density, sums)[0] < 1e-13, f"exact {exact}"
        assert relative(out, alone)[0] < 1e-13, f"exact {exact}"


def test_finite_differences(device):
    """Of the sum of out * g + density * h in fp64 along random directions, with edges on every knot."""
    case = with_density(on_knots(PROBLEMS["test-parity"]))
    length = case.edge_vec.norm(dim=1, keepdim=True)
    inside = (length > 0.1) & ((length - 5.0).abs() > 1e-9)
    operands = case.operands(torch.float64, device)
    gradient = operands.backward((False, True))[1]
    direction = torch.randn(length.shape[0], 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    direction = (direction * inside * length.clamp(max=1)).to(device)
    start, slopes = operands.edge_vec, []
    for step in (2e-5, 1e-5):
        ends = []
        for sign in (1, -1):
            operands.edge_vec = start + sign * step * direction
            out, density = operands.forward()
            ends.append(float((out * operands.grad_out).sum() + (density * operands.grad_density).sum()))
        slopes.append((ends[0] - ends[1]) / (2 * step))
    slope, expected = (4 * slopes[1] - slopes[0]) / 3, float((gradient * direction).sum())
    error = abs(slope - expected) / float((gradient * direction).norm())
    assert error < 1e-6, f"finite difference {slope}, gradient {expected}, error {error:.1e}"


@pytest.mark.sanitize
def test_no_table_shows():
    """A pair without a table of the density makes the receiver's density not a number, and no other's."""
    types = torch.tensor([0, 0, 0, 1], dtype=torch.int32)
    case = make_case(
        PROBLEMS["test-uneven"],
        [2, 2, 1, 1],
        4,
        types=2,
        cutoffs=[[5.0] * 2] * 2,
        senders=torch.tensor([0, 1, 2, 3, 0, 1]),
        node_types=types,
        distances=torch.full((6,), 2.0, dtype=torch.float64),
    )
    case = with_density(case)
    case.density.table_index[0, 1] = -1
    for dtype in DTYPES:
        out, density = case.operands(dtype, "cuda").forward()
        assert torch.isnan(density).flatten().tolist() == [False, True, False, False], density
        assert not torch.isnan(out).any()


def test_captured_graph():
    """A CUDA graph that replays both passes sees new contents of the same tensors."""
    case = with_density(make_case(PROBLEMS["nequip-S"], [30, 0, 70, 3000, 5], 9, types=2, padding=100))
    operands = case.operands(torch.float32, "cuda")
    results, eager = replayed(operands, operands.grad_density)
    for name, got, expected in zip(("out", "grad_x", "vectors", "density"), results, eager, strict=True):
        assert torch.equal(got, expected), name


@pytest.mark.sanitize
def test_refused(device):
    operands = with_density(make_case(PROBLEMS["test-uneven"], [3, 4], 3)).operands(torch.float32, device)
    for place, change in ((0, operands.density[0].double()), (1, operands.density[1].long())):
        density = list(operands.density)
        density[place] = change
        with pytest.raises(RuntimeError, match="table"):
            dataclasses.replace(operands, density=density).forward()
