"""symmetric_contraction on a CUDA device against the CPU op: values, two orders of gradients, rows, repeatability."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
OPS = torch.ops.clebsch
LINES = (ROOT / "tests/unit/data/symmetric_problems.txt").read_text().splitlines()
PROBLEMS = dict(line.split(" ", 1) for line in LINES)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


class Case:
    """Random operands on the CPU in float64; `computed` of the `rows` rows are computed."""

    def __init__(self, name: str, rows: int, types: int, computed: int) -> None:
        self.problem = PROBLEMS[name]
        parts = dict(part.split("=", 1) for part in self.problem.split(" ")[1:])
        channels = int(parts["in"].split("x")[0])
        monomials = sum(len(list(filter(None, t.split(",")))) for t in parts["terms"].split(";"))
        components = [sum(2 * int(b.split("x")[1][0]) + 1 for b in parts[k].split("+")) for k in ("in", "out")]
        generator = torch.Generator().manual_seed(rows + types)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.x, self.dx = random(rows, components[0] * channels), random(rows, components[0] * channels)
        self.c, self.dc = random(types, monomials, channels), random(types, monomials, channels)
        self.g, self.dg = random(rows, components[1] * channels), random(rows, components[1] * channels)
        self.types = torch.randint(0, types, (rows,), generator=generator).int()
        self.limits = torch.tensor([computed], dtype=torch.int32)

    def results(self, device: str, dtype: torch.dtype, of_weights: bool) -> list[torch.Tensor]:
        """Output, first derivatives, second derivatives by the cotangent, x and c of a random sum of those."""
        x, dx, c, dc, g = (t.to(device, dtype) for t in (self.x, self.dx, self.c, self.dc, self.g))
        limits, none = self.limits.to(device), torch.zeros(0, dtype=torch.int32, device=device)
        graph = [none, none, none, none, none, limits, limits]
        x.requires_grad_(), g.requires_grad_(), c.requires_grad_(of_weights)
        out = OPS.symmetric_contraction(x, c, self.types.to(device), graph, 0, self.problem)
        wanted = [x, c] if of_weights else [x]
        first = torch.autograd.grad(out, wanted, g, create_graph=True)
        total = sum((d * f).sum() for d, f in zip((dx, dc), first, strict=False))
        second = torch.autograd.grad(total, [g, *wanted], allow_unused=True)
        return [t.detach().double().cpu() for t in (out, *first, *second) if t is not None]


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got - expected).abs().max() / expected.abs().max().clamp_min(1e-30)) if got.numel() else 0.0


SIZES = [pytest.param(37, 3, 29, marks=pytest.mark.sanitize), (1, 1, 1), (5, 2, 0), (203, 89, 203)]


@pytest.mark.parametrize(("rows", "types", "computed"), SIZES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda t: str(t)[6:])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_same_as_on_the_cpu(problem, dtype, rows, types, computed, device, within) -> None:
    case = Case(problem, rows, types, computed)
    for of_weights in (False, True):
        got, expected = case.results(device, dtype, of_weights), case.results("cpu", torch.float64, of_weights)
        kind = "of weights too" if of_weights else "of x"
        errors = {f"{kind} {k}": relative(a, b) for k, (a, b) in enumerate(zip(got, expected, strict=True))}
        within(errors, TOLERANCE[dtype])


def test_same_bits_every_run() -> None:
    case = Case("mace-M", 1000, 3, 1000)
    first = case.results("cuda", torch.float32, False)
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(case.results("cuda", torch.float32, False), first, strict=True))


@pytest.mark.sanitize
def test_types_out_of_range_give_zero() -> None:
    case = Case("test-uneven", 9, 2, 9)
    types = case.types.cuda()
    types[3], types[5] = 7, -1
    none = torch.zeros(0, dtype=torch.int32, device="cuda")
    out = OPS.symmetric_contraction(case.x.cuda(), case.c.cuda(), types, [none] * 7, -1, case.problem)
    assert not out[[3, 5]].any() and out[[0, 1, 2, 4, 6, 7, 8]].any()


@pytest.mark.sanitize
def test_no_rows() -> None:
    case = Case("test-linear", 0, 1, 0)
    assert case.results("cuda", torch.float32, True)[0].shape == (0, 12)


def test_in_a_captured_graph() -> None:
    case = Case("mace-M", 64, 2, 60)
    limits, none = case.limits.cuda(), torch.zeros(0, dtype=torch.int32, device="cuda")
    x, c, types = case.x.float().cuda().requires_grad_(), case.c.float().cuda(), case.types.cuda()
    graph = [none, none, none, none, none, limits, limits]

    def step() -> torch.Tensor:
        out = OPS.symmetric_contraction(x, c, types, graph, 0, case.problem)
        return torch.autograd.grad(out.square().sum(), x)[0]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = step()
    with torch.no_grad():
        x.mul_(0.5)
        limits.fill_(50)
    captured.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, step())
