"""interaction on a CUDA device against the CPU op in fp64: forward, both gradients, odd graphs, repeatability, size.

    python tests/gpu/test_interaction.py --library build/lib/libclebsch.so

Prints one line a problem or test and exits with 1 when one fails. `--quick` is a small selection without parallel
warm-up, for compute-sanitizer; `--device cpu` tries the program itself where there is no GPU.
"""

import argparse
import concurrent.futures
import dataclasses
import sys
import time
import traceback

import torch
from conv_reference import block_errors
from interaction_cases import NONE, graphs, knot, make_case, make_radial, on_knots, radial_problems, replayed

DEVICE = "cuda"
DTYPES = (torch.float32, torch.float64)
# Norms of differences over norms, each block of irreps by itself; single numbers against the RMS ten times looser.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
QUICK_PROBLEMS = ("test-uneven", "test-parity", "nequip-S")
QUICK_GRAPHS = ("three types, ghosts", "fewer rows, padding", "chunk borders", "no edges")


def relative(got, expected):
    """(norm of the difference over the norm, largest difference over the RMS); infinite when not a number."""
    if not got.numel():
        return 0.0, 0.0
    difference, scale = got.double() - expected, float(expected.norm())
    errors = (float(difference.norm()), float(difference.abs().max()))
    if scale > 0:
        errors = (errors[0] / scale, errors[1] * expected.numel() ** 0.5 / scale)
    return tuple(e if e == e else float("inf") for e in errors)


def compare(case, got, expected):
    """Largest error of `relative`'s first kind, and of the second divided by ten."""
    got = [None if t is None else t.cpu() for t in got]
    problem = case.problem
    blocks = [block_errors(problem, problem.out, got[0], expected[0])]
    if got[1] is not None:
        blocks.append(block_errors(problem, problem.in1, got[1], expected[1]))
    pairs = [relative(a, b) for a, b in zip(got, expected, strict=True) if a is not None]
    return max(blocks + [p[0] for p in pairs] + [p[1] / 10 for p in pairs])


def transposes(name, dtype):
    """With and without the transpose; not without for kernels that compile for tens of seconds."""
    return (True,) if dtype == torch.float64 and name in ("test-l7", "nequip-XL") else (True, False)


def check_registry(name, case, expected, dtype, all_masks):
    """Returns (error, what else is wrong or None)."""
    worst = 0.0
    for transpose in transposes(name, dtype):
        operands = case.operands(dtype, DEVICE, transpose)
        got, again = operands.results(), operands.results()
        worst = max(worst, compare(case, got, expected))
        for result, a, b in zip(("out", "grad_x", "grad_edge_vec"), got, again, strict=True):
            if (transpose or result != "grad_x") and not torch.equal(a, b):
                return worst, f"{result} differs from run to run ({'deterministic' if transpose else 'atomic'})"
        if not all_masks:
            continue
        for mask in ((True, False), (False, True), (False, False)):  # each is a kernel of its own
            worst = max(worst, compare(case, operands.results(mask), expected))
    return worst, None


def registry(arguments):
    """Every problem with a radial part on every graph."""
    failures, cases, skipped = [], 0, 0
    made = {name: make for name, make in graphs().items() if not arguments.quick or name in QUICK_GRAPHS}
    for problem, text in arguments.problems.items():
        begin, worst = time.monotonic(), dict.fromkeys(DTYPES, 0.0)
        for name, make in made.items():
            if time.monotonic() > arguments.end:
                skipped += 1
                continue
            case = make(text).rounded(torch.float32)
            expected = case.operands(torch.float64, "cpu").results()
            all_masks = problem in QUICK_PROBLEMS and name == "three types, ghosts"
            for dtype in DTYPES:
                cases += 1
                try:
                    error, message = check_registry(problem, case, expected, dtype, all_masks)
                    worst[dtype] = max(worst[dtype], error)
                    if message is None and not error <= TOLERANCE[dtype]:
                        message = f"error {error:.1e}"
                except RuntimeError as error:
                    message = str(error).split("\n")[0][:400]
                if message:
                    failures.append(f"{problem}, {name}, {str(dtype)[6:]}: {message}")
                    print("FAILED", failures[-1], flush=True)
        print(
            f"{problem:18s} largest error fp32 {worst[torch.float32]:.1e} fp64 {worst[torch.float64]:.1e}"
            f"  {time.monotonic() - begin:.1f} s",
            flush=True,
        )
    print(f"registry: {cases} cases, {len(failures)} failed, {skipped} graphs not begun", flush=True)
    return len(failures)


def warm_up(problems):
    """Compiles what the registry's tests need, many kernels at a time: calls without autograd hold no Python lock."""
    begin = time.monotonic()

    def one(text, dtype, transpose):
        case = make_case(text, [3, 0], 3)
        case.operands(dtype, DEVICE, transpose).results()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = {
            pool.submit(one, text, dtype, transpose): name
            for name, text in sorted(problems.items(), key=lambda item: -len(item[1]))
            for dtype in DTYPES
            for transpose in transposes(name, dtype)
        }
        failed = {name: job.exception() for job, name in jobs.items() if job.exception()}
    for name, error in failed.items():
        print("FAILED to prepare", name, str(error)[:300], flush=True)
    print(f"kernels ready after {time.monotonic() - begin:.1f} s", flush=True)


def autograd_is_the_direct_call(problems):
    case = make_case(problems["test-uneven"], [4, 0, 40, 7], 6, types=2)
    operands = case.operands(torch.float64, DEVICE)
    expected = operands.results()
    operands.x.requires_grad_(), operands.edge_vec.requires_grad_()
    out = operands.forward()
    grads = torch.autograd.grad(out, (operands.x, operands.edge_vec), operands.grad_out)
    assert all(torch.equal(a, b) for a, b in zip([out.detach(), *grads], expected, strict=True))
    alone = torch.autograd.grad(operands.forward(), operands.edge_vec, operands.grad_out)[0]
    assert relative(alone, expected[2])[0] < 1e-13


def finite_differences(problems):
    """Central differences of the sum of out * g in fp64 along random directions, with edges on every knot."""
    for name in ("test-parity", "nequip-M", "test-l7"):
        case = on_knots(problems[name])
        inside = case.edge_vec.norm(dim=1)
        inside = (inside > 0.1) & ((inside - 5.0).abs() > 1e-9)  # a step would leave the cutoff's exact zero
        operands = case.operands(torch.float64, DEVICE)
        gradients = operands.backward()
        generator = torch.Generator().manual_seed(5)

        def energy(operands=operands):
            return float((operands.forward() * operands.grad_out).sum())

        for index, field in enumerate(("x", "edge_vec")):
            start = getattr(operands, field)
            direction = torch.randn(start.shape, generator=generator, dtype=torch.float64)
            if field == "edge_vec":
                direction = direction * inside[:, None] * case.edge_vec.norm(dim=1, keepdim=True).clamp(max=1)
            direction = direction.to(DEVICE)
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
            assert error < 1e-6, f"{name} {field}: finite difference {slope}, gradient {expected}, error {error:.1e}"


def continuous_at_knots(problems):
    """Value and slope on both sides of every knot and of the first one."""
    k = torch.tensor([knot(k, 5.0, 24) for k in range(24)], dtype=torch.float64)
    results = []
    for side in (1 - 1e-11, 1 + 1e-11):
        vectors = torch.zeros(24, 3, dtype=torch.float64)
        vectors[:, 2] = k * side
        case = make_case(
            problems["test-uneven"], [1] * 24, 24, cutoffs=[[5.0]], pieces=24, vectors=vectors, senders=torch.arange(24)
        )
        results.append(case.operands(torch.float64, DEVICE).results())
    for left, right in zip(*results, strict=True):
        error = relative(left, right)[1]
        assert error < 1e-8, f"jump of {error:.1e} at a knot"


def no_table_shows(problems):
    """An edge between types without a table, or a vector that is not finite, makes its own receiver not a number."""
    if DEVICE == "cpu":  # refuses with a message
        return
    text = problems["test-uneven"]
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
            out = case.operands(dtype, DEVICE).forward()
            bad = (out != out).any(1).tolist()
            assert bad == [False, True, False, False], bad


def captured_graph(problems):
    """A CUDA graph that replays forward and backward sees new contents of the same tensors."""
    if DEVICE == "cpu":
        return
    case = make_case(problems["nequip-S"], [30, 0, 70, 3000, 5], 9, types=2, padding=100)
    for transpose in (True, False):
        results, eager = replayed(case.operands(torch.float32, DEVICE, transpose))
        assert torch.equal(results[0], eager[0]) and torch.equal(results[2], eager[2])
        assert relative(results[1], eager[1].double())[0] < 1e-6


def many_streams(problems):
    """Calls on several streams at once give what one after the other gives."""
    if DEVICE == "cpu":
        return
    operands = [
        make_case(problems["nequip-S"], [40] * 50, 60, seed=s).operands(torch.float32, DEVICE) for s in range(4)
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


def refused(problems):
    """Operands that do not fit are named."""
    operands = make_case(problems["test-uneven"], [3, 4], 3).operands(torch.float32, DEVICE)
    changes = {
        "edge_vec": {"edge_vec": operands.edge_vec.float()},
        "types": {"types": operands.types.long()},
        "table": {"radial": [operands.radial[0].double(), *operands.radial[1:]]},
        "x": {"x": operands.x[:, 1:].contiguous()},
    }
    for word, change in changes.items():
        try:
            dataclasses.replace(operands, **change).forward()
        except RuntimeError as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{word}: nothing was refused")


def exact_path(problems):
    """Without a table the op evaluates the network: the two agree to the table's accuracy."""
    for name in ("nequip-M", "mace-M"):
        cutoff = 5.0 if name.startswith("nequip") else 6.0
        radial = make_radial(problems[name], [[cutoff]])
        generator = torch.Generator().manual_seed(8)
        distances = 1.2 + (cutoff - 1.2) * torch.rand(300, generator=generator, dtype=torch.float64)
        case = make_case(problems[name], [75] * 4, 6, radial=radial, distances=distances)
        exact, table = case.operands(torch.float64, DEVICE, exact=True), case.operands(torch.float64, DEVICE)
        results = []
        for operands in (exact, table):
            operands.x.requires_grad_(), operands.edge_vec.requires_grad_()
            out = operands.forward()
            results.append([out, *torch.autograd.grad(out, (operands.x, operands.edge_vec), operands.grad_out)])
        errors = [relative(t, e.double())[0] for e, t in zip(*results, strict=True)]
        assert max(errors) < 1e-6, errors


def million_atoms(arguments):
    """1.1 million atoms, 22 million edges, an output of 2.25e9 numbers: a block of 1000 atoms, again and again."""
    copies = 1100 if DEVICE == "cuda" else 20
    block, degree = 1000, 20
    case = make_case(arguments.problems["mace-l1"], [degree] * block, block, types=2, layer_rows=None)
    one = case.rounded(torch.float32)
    expected = one.operands(torch.float64, "cpu").results()
    unit = one.operands(torch.float32, DEVICE)
    edges = case.edges
    shift = torch.arange(copies, device=DEVICE, dtype=torch.int32)[:, None]
    ends = torch.arange(1, block * copies + 1, device=DEVICE, dtype=torch.int32)
    rows = torch.cat([torch.zeros(1, dtype=torch.int32, device=DEVICE), ends * degree])
    columns = torch.cat([unit.graph[3][:1], (unit.graph[3][1:] + shift * edges).reshape(-1)])
    limit = torch.tensor([block * copies], dtype=torch.int32, device=DEVICE)
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
    if DEVICE == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    for transpose in (True, False):
        if not transpose:
            big.graph = [*graph[:3], NONE.to(DEVICE), NONE.to(DEVICE), *graph[5:]]
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
    if DEVICE == "cuda":
        peak = torch.cuda.max_memory_allocated() - before
        results = 4 * big.case.problem.out.dim * block * copies
        print(f"  beyond operands at most {peak / 2**20:.0f} MB, of which the output {results / 2**20:.0f}", flush=True)
        assert peak < results + 2**30
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", help="problems, separated by commas")
    parser.add_argument("--skip-registry", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further case is begun after this time")
    arguments = parser.parse_args()
    global DEVICE
    DEVICE = arguments.device
    torch.ops.load_library(arguments.library)
    begin = time.monotonic()
    arguments.end = begin + arguments.seconds
    problems = radial_problems()
    chosen = arguments.only.split(",") if arguments.only else QUICK_PROBLEMS if arguments.quick else list(problems)
    arguments.problems = {name: problems[name] for name in chosen}
    if DEVICE == "cuda" and not arguments.quick:
        warm_up(arguments.problems)
    failures = 0 if arguments.skip_registry else registry(arguments)
    arguments.problems = problems
    tests = [autograd_is_the_direct_call, no_table_shows, continuous_at_knots, refused]
    if not arguments.quick:
        tests += [finite_differences, captured_graph, many_streams, exact_path]
    jobs = [(test.__name__, lambda test=test: test(problems)) for test in tests]
    if not arguments.quick:
        jobs.append(("million_atoms", lambda: million_atoms(arguments)))
    for name, job in jobs:
        start = time.monotonic()
        if start > arguments.end:
            print(f"{name}: not begun")
            continue
        try:
            job()
            print(f"{name}: ok, {time.monotonic() - start:.1f} s", flush=True)
        # A RuntimeError also is torch's NotImplementedError: every op has a kernel on every device.
        except (AssertionError, RuntimeError) as error:
            failures += 1
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            print(f"FAILED {name} (line {line}): {str(error)[:600]}", flush=True)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    where = torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"
    print(f"{failures} failures, {time.monotonic() - begin:.0f} s, {where}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
