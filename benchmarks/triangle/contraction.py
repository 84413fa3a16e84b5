"""The contraction of triangle_multiplicative_update by contract_warpgroups.cu and by cuBLAS, in whole calls.

  python benchmarks/triangle/contraction.py [--n 256,304,512,768,1024,2048] [--backward] [--dtype bf16]
    [--ways "CONTRACT=cublas;CONTRACT=own;CONTRACT=own PAIRS=0"]

The error of out against the formula in float64 first, and whether six calls give the same bits; then times of kernels
by torch's profiler, and of whole calls as replays of a CUDA graph. Ways are options CLEBSCH_TRIANGLE_..., which are
looked at in every call. A kernel that begins early also takes the time in which it waits for the one before.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src/python"), str(Path(__file__).resolve().parent)]

from clebsch.triangle import triangle_multiplicative_update  # noqa: E402

_spec = importlib.util.spec_from_file_location("triangle_benchmark", Path(__file__).with_name("__main__.py"))
benchmark = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(benchmark)
error_of, expected, problem, times = benchmark.error_of, benchmark.expected, benchmark.problem, benchmark.times

#: How the names of kernels begin that are no product by cuBLAS.
OWN = ("prepare", "project", "output", "contract", "input_", "weight_", "pack_", "fold_", "add_", "sum_", "scale")
PREFIX = "CLEBSCH_TRIANGLE_"


def kernels_of(work, repeats: int) -> dict[str, float]:
    """Microseconds of each kernel of one call."""
    work()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
    found: dict[str, float] = {}
    for event in profile.key_averages():
        name = event.key if event.key.startswith(OWN) else "product" if "emset" not in event.key else "memset"
        found[name] = found.get(name, 0.0) + event.self_device_time_total / repeats
    return found


def choose(way: str) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    for setting in way.split():
        name, value = setting.split("=")
        os.environ[PREFIX + name] = value


def replayed(work) -> float:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    return statistics.median(times(graph.replay, 9, 10))


def forward(n: int, direction: str, dtype: torch.dtype, ways: list[str]) -> None:
    x, mask, weights = problem(1, n, 128, 128, "after", dtype, True, "normal", dtype)

    def call():
        return triangle_multiplicative_update(x, direction, mask, gate="after", **weights)

    reference = expected(x, mask, weights, "after") if direction == "outgoing" else None
    first = None
    with torch.no_grad():
        for way in ways:
            choose(way)
            found = call()
            first = found if first is None else first
            error = error_of(found, reference)[0] if reference is not None else float("nan")
            apart = error_of(found, first.double())[0]
            same = all(torch.equal(found, call()) for _ in range(5))
            parts = ", ".join(f"{name} {value:.1f}" for name, value in sorted(kernels_of(call, 10).items()))
            print(f"n {n:5d} {direction} {way:32s} error {error:.1e}, from the first {apart:.1e}, same bits {same}, "
                  f"graph {replayed(call):8.1f} us: {parts}", flush=True)  # fmt: skip


def backward(n: int, direction: str, dtype: torch.dtype, ways: list[str]) -> None:
    x, mask, weights = problem(1, n, 128, 128, "after", dtype, True, "normal", dtype)
    x.requires_grad_()
    weights = {name: weight.requires_grad_() for name, weight in weights.items()}
    leaves = [x, *weights.values()]
    grad = torch.randn_like(x)

    def step():
        out = triangle_multiplicative_update(x, direction, mask, gate="after", **weights)
        return torch.autograd.grad(out, leaves, grad)

    first = None
    for way in ways:
        choose(way)
        found = step()
        first = found if first is None else first
        apart = max(error_of(a[None], b[None].double())[0] for a, b in zip(found, first, strict=True))
        parts = ", ".join(f"{name} {value:.1f}" for name, value in sorted(kernels_of(step, 5).items()))
        print(f"n {n:5d} {direction} {way:32s} step, from the first {apart:.1e}, "
              f"{statistics.median(times(step, 7, 5)):8.1f} us: {parts}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", default="256,304,512,768,1024,2048")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16"))
    parser.add_argument("--directions", default="outgoing,incoming")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--ways", default="CONTRACT=cublas;CONTRACT=own")
    options = parser.parse_args()
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[options.dtype]
    for n in map(int, options.n.split(",")):
        for direction in options.directions.split(","):
            forward(n, direction, dtype, options.ways.split(";"))
            if options.backward and n <= 1024 and n % 8 == 0:
                backward(n, direction, dtype, options.ways.split(";"))
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
