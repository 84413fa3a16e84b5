"""tensor_product_conv on a CUDA device against the fp64 reference: forward, every gradient, odd graphs, repeatability.

    python tests/gpu/test_conv.py --library build/lib/libclebsch.so

Prints one line a case and exits with 1 when one fails. Small enough to run under compute-sanitizer (--quick).
"""

import argparse
import itertools
import sys

import torch
from conv_reference import Problem, block_errors, make_graph, reference

TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13}


def graphs():
    generator = torch.Generator().manual_seed(1)
    uneven = torch.randint(0, 90, (37,), generator=generator)
    uneven[::5] = 0
    return {
        "asymmetric, empty rows, ghosts": make_graph(uneven, 53),
        "padding": make_graph(uneven, 53, padding=41),
        "fewer rows computed": make_graph(uneven, 53, padding=3, layer_rows=20),
        "no transpose (atomics)": make_graph(uneven, 53, transpose=False),
        "one long receiver": make_graph([3000, 1], 7),
        "tile borders": make_graph([16, 32, 33, 15, 1, 31, 64, 17], 9),
        "no edges": make_graph([0, 0, 0], 4),
        "no rows": make_graph([], 3),
    }


def relative(got, expected):
    scale = expected.norm()
    return float((got.double() - expected).norm() / scale) if scale > 0 else float(got.abs().sum())


def check(name, problem, graph_name, graph, dtype):
    """Returns (largest relative error, message of what else is wrong or None)."""
    capacity = graph.list[1].numel()
    computed = min(int(graph.list[5][0]), graph.rows)
    used = int((graph.receivers < computed).sum())
    torch.manual_seed(3)
    x = torch.randn(graph.nodes, problem.in1.dim, device="cuda", dtype=torch.float64)
    y = torch.randn(graph.edges, problem.in2.dim, device="cuda", dtype=torch.float64)
    w = torch.randn(graph.edges, problem.weight_count, device="cuda", dtype=torch.float64)
    g = torch.randn(graph.nodes, problem.out.dim, device="cuda", dtype=torch.float64)
    x, y, w, g = (t.to(dtype) for t in (x, y, w, g))

    exact = [t.double().clone().requires_grad_() for t in (x, y, w)]
    expected = reference(
        problem, exact[0], exact[1][:used], exact[2][:used], graph.senders[:used], graph.receivers[:used], graph.nodes
    )
    grads = torch.autograd.grad(expected, exact, g.double(), allow_unused=True) if used else (None, None, None)
    grads = [torch.zeros_like(e) if t is None else t for t, e in zip(grads, exact, strict=True)]

    def padded(t):  # capacity beyond the true count is never read: it is NaN here
        return torch.cat([t, t.new_full((capacity - t.shape[0], t.shape[1]), float("nan"))])

    def run(mask):
        a = [x.clone().requires_grad_(mask[0]), padded(y).requires_grad_(mask[1]), padded(w).requires_grad_(mask[2])]
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
        if (deterministic or i != 1) and not torch.equal(a, b):
            return max(errors), f"result {i} differs from run to run"
    if graph_name.startswith("asymmetric") and name.startswith(
        "test-"
    ):  # every choice of gradients is a kernel of its own
        for mask in itertools.product((False, True), repeat=3):
            part = run(mask)
            for i, t in enumerate(part):
                if t is not None and relative(t, results[i].double()) > TOLERANCE[dtype]:
                    return max(errors), f"with gradients {mask} result {i} differs"
    return max(errors), None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--only", default="", help="names of src/core/registry.cpp, with commas; every one otherwise")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    torch.ops.load_library(arguments.library)
    registry = torch.classes.clebsch.Model.named_problems()
    problems = {name: text for name, text in registry.items() if text.startswith("conv ")}
    failures = cases = 0
    for name, text in problems.items():
        if arguments.only and name not in arguments.only.split(",") or "uvw:" in text:
            continue
        problem = Problem(text)
        worst = {torch.float32: 0.0, torch.float64: 0.0}
        for graph_name, graph in graphs().items():
            if arguments.quick and graph_name not in ("fewer rows computed", "no transpose (atomics)", "tile borders"):
                continue
            for dtype in worst:
                cases += 1
                try:
                    error, message = check(name, problem, graph_name, graph, dtype)
                    worst[dtype] = max(worst[dtype], error)
                    if message is None and not error <= TOLERANCE[dtype]:
                        message = f"error {error:.1e}"
                except RuntimeError as error:
                    message = str(error).split("\n")[0][:300]
                if message:
                    failures += 1
                    print(f"FAILED {name}, {graph_name}, {dtype}: {message}", flush=True)
        print(
            f"{name:16s} largest relative error fp32 {worst[torch.float32]:.1e} fp64 {worst[torch.float64]:.1e}",
            flush=True,
        )
    torch.cuda.synchronize()
    print(f"{cases} cases, {failures} failed, {torch.cuda.get_device_name()}")
    return 1 if failures or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
