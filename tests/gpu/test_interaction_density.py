"""interaction_density on a CUDA device against the CPU op in fp64, and its time beside that of two interactions.

    python3 tests/gpu/test_interaction_density.py --library lib/libclebsch.so [--out FOLDER]

Every graph of interaction_cases.py: messages, density and both gradients, fp32 and fp64, with and without transpose,
repeatability; then single tests; then ns an edge on 8000 atoms of diamond, fused and separate, into
interaction_density.json. Under 60 s in all. One line a problem or test, status 1 when one fails. `--device cpu` tries
the program itself where there is no GPU.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import sys
import time
from pathlib import Path

import bench_interaction
import test_interaction
import torch
from bench_interaction import case_of
from graphs import diamond  # found by bench_interaction
from interaction_cases import (
    Case,
    Operands,
    Radial,
    graphs,
    make_case,
    make_radial,
    on_knots,
    radial_problems,
    replayed,
)
from measure import time_ns
from test_interaction import TOLERANCE, compare, relative

SUM = "conv in1=1x0e in2=1x0e out=1x0e paths=uvu:0,0,0,1 radial=bessel,0.6,5,8-16-1,silu,density"
PROBLEMS = ("test-uneven", "test-parity", "nequip-S", "mace-l1", "mace-M")
DTYPES = (torch.float32, torch.float64)


@dataclasses.dataclass
class DensityOperands(Operands):
    """`forward()`: [out, density]; `backward(mask)` as of Operands."""

    density: list | None = None
    grad_density: torch.Tensor | None = None

    def rest(self):
        graph, types, radial, layer, text = super().rest()
        return graph, types, radial, self.density, layer, text, SUM

    def forward(self):
        return torch.ops.clebsch.interaction_density(self.x, self.edge_vec, *self.rest())

    def backward(self, mask=(True, True)):
        grads = torch.ops.clebsch.interaction_density_backward(
            self.grad_out, self.grad_density, self.x, self.edge_vec, *self.rest(), mask
        )
        grads = [g if wanted else None for g, wanted in zip(grads, mask, strict=True)]
        if mask[1]:
            grads[1] = grads[1][: self.case.edges]
        return grads

    def results(self, mask=(True, True)):
        """Messages, both gradients, density."""
        out, density = self.forward()
        return [out, *self.backward(mask), density]


@dataclasses.dataclass
class DensityCase(Case):
    density: Radial | None = None
    grad_density: torch.Tensor | None = None

    def operands(self, dtype, device, transpose=True, exact=False):
        made = vars(super().operands(dtype, device, transpose, exact))
        density = self.density.list(dtype, device, exact)
        return DensityOperands(**made, density=density, grad_density=self.grad_density.to(device, dtype))


def with_density(case, seed=5):
    """The case with a density of four times as many pieces and a table of its own for every pair of types."""
    radial = make_radial(SUM, case.radial.cutoffs, 4 * case.radial.pieces, seed, networks=None)
    radial = dataclasses.replace(radial, spline=None)  # its tables stay tables
    above = torch.randn(case.x.shape[0], 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    made = {field.name: getattr(case, field.name) for field in dataclasses.fields(case)}
    return DensityCase(**made, density=radial, grad_density=above.float().double())


def registry(arguments):
    failures = cases = 0
    made = graphs()
    for problem, text in arguments.problems.items():
        begin, worst = time.monotonic(), dict.fromkeys(DTYPES, 0.0)
        for name, make in made.items():
            case = with_density(make(text).rounded(torch.float32))
            expected = case.operands(torch.float64, "cpu").results()
            masks = [(True, True)]
            if name == "three types, ghosts":
                masks += [(True, False), (False, True), (False, False)]
            for dtype in DTYPES:
                for transpose in (True, False):
                    cases += 1
                    operands, message = case.operands(dtype, arguments.device, transpose), None
                    try:
                        error = max(compare(case, operands.results(mask), expected) for mask in masks)
                        worst[dtype] = max(worst[dtype], error)
                        if not error <= TOLERANCE[dtype]:
                            message = f"error {error:.1e}"
                        first, again = operands.results(), operands.results()
                        pairs = list(zip(first, again, strict=True))
                        if not all(torch.equal(*pairs[k]) for k in ((0, 1, 2, 3) if transpose else (0, 2, 3))):
                            message = "differs from run to run"
                    except RuntimeError as error:
                        message = str(error).split("\n")[0][:400]
                    if message:
                        failures += 1
                        kind = f"{str(dtype)[6:]}, {'transpose' if transpose else 'atomic'}"
                        print(f"FAILED {problem}, {name}, {kind}: {message}", flush=True)
        errors = ", ".join(f"{str(t)[6:]} {e:.1e}" for t, e in worst.items())
        print(f"{problem:14s} largest error {errors}  {time.monotonic() - begin:.1f} s", flush=True)
    print(f"graphs: {cases} cases, {failures} failed", flush=True)
    return failures


def warm_up(arguments):
    """Compiles many kernels at a time: calls without autograd hold no Python lock."""
    begin = time.monotonic()

    def one(text, dtype, transpose, types):
        case = with_density(make_case(text, [3, 0], 3, types=types, networks=None))
        operands = case.operands(dtype, arguments.device, transpose)
        for mask in ((True, True), (True, False), (False, True)):
            operands.results(mask)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [
            pool.submit(one, text, dtype, transpose, types)  # several tables are read as splines
            for text in reversed(arguments.problems.values())
            for dtype in DTYPES
            for transpose in (True, False)
            for types in (1, 2)
        ]
        for job in jobs:
            if job.exception():
                print("FAILED to prepare", str(job.exception())[:300], flush=True)
    print(f"kernels ready after {time.monotonic() - begin:.1f} s", flush=True)


def autograd_is_the_direct_call(arguments):
    case = with_density(make_case(arguments.problems["test-uneven"], [4, 0, 40, 7], 6, types=2))
    operands = case.operands(torch.float64, arguments.device)
    out, *grads, density = operands.results()
    operands.x.requires_grad_(), operands.edge_vec.requires_grad_()
    got = operands.forward()
    above = (operands.grad_out, operands.grad_density)
    got += torch.autograd.grad(got, (operands.x, operands.edge_vec), above)
    assert all(torch.equal(a, b) for a, b in zip(got, [out, density, *grads], strict=True))


def two_interactions(arguments):
    """Messages and density are what interaction gives for each; without tables too, where that exists for densities."""
    for exact in (False, True) if arguments.device == "cpu" else (False,):
        case = with_density(make_case(arguments.problems["mace-l1"], [75] * 4, 6, pieces=96))
        o = case.operands(torch.float64, arguments.device, exact=exact)
        out, density = o.forward()
        graph, types, radial, layer, text = Operands.rest(o)
        alone = torch.ops.clebsch.interaction(o.x, o.edge_vec, graph, types, radial, layer, text)
        ones = torch.ones_like(density)
        sums = torch.ops.clebsch.interaction(ones, o.edge_vec, graph, types, o.density, layer, SUM)
        assert relative(density, sums)[0] < 1e-13, f"exact {exact}"
        assert relative(out, alone)[0] < 1e-13, f"exact {exact}"


def finite_differences(arguments):
    """Of the sum of out * g + density * h in fp64 along random directions, with edges on every knot."""
    case = with_density(on_knots(arguments.problems["test-parity"]))
    length = case.edge_vec.norm(dim=1, keepdim=True)
    inside = (length > 0.1) & ((length - 5.0).abs() > 1e-9)
    operands = case.operands(torch.float64, arguments.device)
    gradient = operands.backward((False, True))[1]
    direction = torch.randn(length.shape[0], 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    direction = (direction * inside * length.clamp(max=1)).to(arguments.device)
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


def no_table_shows(arguments):
    """A pair without a table of the density makes the receiver's density not a number, and no other's."""
    if arguments.device == "cpu":  # refuses with a message
        return
    types = torch.tensor([0, 0, 0, 1], dtype=torch.int32)
    case = make_case(
        arguments.problems["test-uneven"],
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
        out, density = case.operands(dtype, arguments.device).forward()
        assert torch.isnan(density).flatten().tolist() == [False, True, False, False], density
        assert not torch.isnan(out).any()


def captured_graph(arguments):
    """A CUDA graph that replays both passes sees new contents of the same tensors."""
    if arguments.device == "cpu":
        return
    case = with_density(make_case(arguments.problems["nequip-S"], [30, 0, 70, 3000, 5], 9, types=2, padding=100))
    operands = case.operands(torch.float32, arguments.device)
    results, eager = replayed(operands, operands.grad_density)
    for name, got, expected in zip(("out", "grad_x", "vectors", "density"), results, eager, strict=True):
        assert torch.equal(got, expected), name


def refused(arguments):
    operands = with_density(make_case(arguments.problems["test-uneven"], [3, 4], 3)).operands(
        torch.float32, arguments.device
    )
    for place, change in ((0, operands.density[0].double()), (1, operands.density[1].long())):
        density = list(operands.density)
        density[place] = change
        try:
            dataclasses.replace(operands, density=density).forward()
        except RuntimeError as error:
            assert "table" in str(error), error
        else:
            raise AssertionError(f"place {place}: nothing was refused")


def bench(arguments):
    """ns an edge: one op for messages and density, two ops, and the messages alone."""
    text, records = radial_problems()[arguments.bench], []
    cutoff = bench_interaction.cutoff_of(arguments.bench)
    edges = diamond(10 if arguments.device == "cuda" else 2, arguments.device, cutoff)
    case = with_density(case_of(text, edges, make_radial(text, [[cutoff]])))
    ops = torch.ops.clebsch
    for transpose in (True, False):
        o = case.operands(torch.float32, arguments.device, transpose)
        graph, types, radial, layer, _ = Operands.rest(o)
        ones = torch.ones_like(o.grad_density)

        def alone(o=o, graph=graph, types=types, radial=radial, layer=layer):
            return ops.interaction(o.x, o.edge_vec, graph, types, radial, layer, text)

        def summed(o=o, graph=graph, types=types, ones=ones, layer=layer):
            return ops.interaction(ones, o.edge_vec, graph, types, o.density, layer, SUM)

        def alone_back(o=o, graph=graph, types=types, radial=radial, layer=layer):
            return ops.interaction_backward(
                o.grad_out, o.x, o.edge_vec, graph, types, radial, layer, text, (True, True)
            )

        def summed_back(o=o, graph=graph, types=types, ones=ones, layer=layer):
            return ops.interaction_backward(
                o.grad_density, ones, o.edge_vec, graph, types, o.density, layer, SUM, (False, True)
            )

        def separate_back(alone_back=alone_back, summed_back=summed_back):
            # Autograd adds the two gradients of the vectors.
            return alone_back()[1].add_(summed_back()[1])

        error = relative(o.backward()[1], separate_back().double())[0]
        assert error < 2e-6, f"fused and separate differ by {error:.1e}"
        calls = {
            "fused": (o.forward, o.backward),
            "separate": (lambda alone=alone, summed=summed: (alone(), summed()), separate_back),
            "messages alone": (alone, alone_back),
        }
        for what, both in calls.items():
            forward, backward = (time_ns(call, arguments.device, 20)[0] / case.edges for call in both)
            record = {"what": what, "problem": arguments.bench, "deterministic": transpose, "edges": case.edges}
            records.append({**record, "forward_ns": forward, "backward_ns": backward})
            print(
                f"{arguments.bench}, {case.x.shape[0]} atoms, {'deterministic' if transpose else 'atomic'}, {what:15s}"
                f" forward {forward:.3f} backward {backward:.3f} both {forward + backward:.3f} ns/edge",
                flush=True,
            )
    if arguments.out:
        Path(arguments.out).mkdir(parents=True, exist_ok=True)
        text = json.dumps({**bench_interaction.about(), "records": records}, indent=1) + "\n"
        (Path(arguments.out) / "interaction_density.json").write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", help="problems, separated by commas")
    parser.add_argument("--bench", default="mace-M", help="problem to time; empty: none")
    parser.add_argument("--out", default="", help="folder of the results")
    arguments = parser.parse_args()
    torch.ops.load_library(arguments.library)
    bench_interaction.DEVICE = test_interaction.DEVICE = arguments.device
    begin = time.monotonic()
    known = radial_problems()
    arguments.problems = {name: known[name] for name in arguments.only.split(",") if name} or {
        name: known[name] for name in PROBLEMS
    }
    warm_up(arguments)
    failures = registry(arguments)
    arguments.problems = known
    tests = [autograd_is_the_direct_call, two_interactions, finite_differences, no_table_shows, captured_graph, refused]
    for test in [*tests, *([bench] if arguments.bench else [])]:
        start = time.monotonic()
        try:
            test(arguments)
            print(f"{test.__name__}: ok, {time.monotonic() - start:.1f} s", flush=True)
        except (AssertionError, RuntimeError) as error:
            failures += 1
            print(f"FAILED {test.__name__}: {str(error)[:600]}", flush=True)
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    print(f"{failures} failures, {time.monotonic() - begin:.0f} s, {where}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
