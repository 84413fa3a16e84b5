"""Forward and backward of the triangle multiplicative update by kernels, as calls and as replays of a CUDA graph.

`python benchmarks/triangle/steps.py` after gradients were checked against float64; bfloat16, widths of 128, gate after
the projection, a mask, B = 1. About 20 s on an H200.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

from clebsch.triangle import triangle_multiplicative_update, triangle_multiplicative_update_reference  # noqa: E402


def problem(n: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor], torch.Tensor]:
    random = torch.Generator("cuda").manual_seed(seed)
    normal = lambda *shape: torch.randn(shape, generator=random, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    shapes = {"p_in": (256, 128), "g_in": (256, 128), "p_out": (128, 128), "g_out": (128, 128)}
    weights = {f"{name}_weight": normal(*shape) / 128**0.5 for name, shape in shapes.items()}
    for name in ("norm_in", "norm_out"):
        weights[f"{name}_weight"] = 1 + 0.2 * normal(128)
        weights[f"{name}_bias"] = 0.2 * normal(128)
    mask = torch.rand(1, n, n, generator=random, device="cuda") > 0.1
    return normal(1, n, n, 128), mask, weights, normal(1, n, n, 128)


def step_of(update, x, mask, weights, grad, **options):
    leaves = [x.detach().clone().requires_grad_()]
    given = {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
    leaves += given.values()

    def step():
        out = update(leaves[0], mask=mask, **given, **options)
        return torch.autograd.grad(out, leaves, grad.to(out.dtype))

    return step


def check(n: int) -> None:
    x, mask, weights, grad = problem(n)
    found = step_of(triangle_multiplicative_update, x, mask, weights, grad)()
    again = step_of(triangle_multiplicative_update, x, mask, weights, grad)()
    wide = {name: weight.double() for name, weight in weights.items()}
    right = step_of(triangle_multiplicative_update_reference, x.double(), mask, wide, grad.double())()
    errors = [((a.double() - b).square().mean() / b.square().mean()).sqrt().item()
              for a, b in zip(found, right, strict=True)]  # fmt: skip
    same = all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    print(f"N = {n}: gradients to {max(errors):.1e} ({', '.join(f'{e:.1e}' for e in errors)}), same bits: {same}")
    if not (max(errors) < 3e-2 and same):
        raise SystemExit("expected errors below 3e-2 and the same bits")


def show_timeline(graph: torch.cuda.CUDAGraph) -> None:
    """Of one replay, the median of several: when each kernel began and how long it took, which tells overlaps and gaps
    that sums of kernels' times do not."""
    replays = 9
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(replays):
            graph.replay()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = sorted((event for event in events if event.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy")),
                     key=lambda event: event["ts"])  # fmt: skip
    of_one = len(kernels) // replays
    for at in range(of_one):
        same = kernels[at::of_one]
        begins = statistics.median(event["ts"] - kernels[k * of_one]["ts"] for k, event in enumerate(same))
        times = statistics.median(event["dur"] for event in same)
        print(f"    {begins:8.1f} to {begins + times:8.1f} us, {times:8.1f}  {same[0]['name'][:80]}")


def measure(n: int, repeats: int, timeline: bool) -> None:
    step = step_of(triangle_multiplicative_update, *problem(n))
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    calls = statistics.median(common.event_times(step, repeats, 10))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step()
    graph.replay()
    replays = statistics.median(common.event_times(graph.replay, repeats, 10))
    if timeline:
        show_timeline(graph)
    del kept
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    kernels = [(event.self_device_time_total / 5, event.count / 5, event.key) for event in profile.key_averages()
               if event.self_device_time_total > 0]  # fmt: skip
    total, launches = sum(time for time, *_ in kernels), sum(count for _, count, _ in kernels)
    print(f"N = {n}: calls {calls:.0f} us, graph {replays:.0f} us, {launches:.0f} kernels {total:.0f} us")
    for time, count, name in sorted(kernels, reverse=True):
        print(f"    {time:8.1f} us  {count:4.1f} x  {name[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="512,768,1024")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--timeline", action="store_true", help="when each kernel of a replay begins and ends")
    options = parser.parse_args()
    print(torch.cuda.get_device_name())
    for n in (64, 200):
        check(n)
    for n in map(int, options.sizes.split(",")):
        measure(n, options.repeats, options.timeline)


if __name__ == "__main__":
    main()
