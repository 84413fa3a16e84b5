"""Times of the kernels of one forward call, one by one, for ways that environment options choose; a wrong answer, or
one that differs between two calls, is not timed.

  python benchmarks/triangle/kernels.py [--n 256,512,768,1024] [--ways "A=1 B=2;A=2"] [--direction incoming]

A way is options as NAME=VALUE, with spaces between; an empty one has none. Kernels by torch's profiler (means of 20
calls), the call as replays of a CUDA graph. AlphaFold's shape: D = H = 128, gate after, bfloat16, a mask. About 2 s a
way and N.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("triangle_benchmark", HERE / "__main__.py")
benchmark = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)  # which also makes clebsch known
from clebsch.triangle import triangle_multiplicative_update  # noqa: E402


def graph_time(call) -> float:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    return statistics.median(benchmark.times(graph.replay, 9, 20))


def kernel_times(call, calls: int = 20) -> dict[str, float]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    found = {event.key: event.self_device_time_total / calls for event in profile.key_averages()}
    return {name: time for name, time in found.items() if time > 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", default="256,512,768,1024")
    parser.add_argument("--ways", default="")
    parser.add_argument("--direction", default="outgoing")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "fp16"])
    options = parser.parse_args()
    dtype = benchmark.DTYPES[options.dtype]
    for n in map(int, options.n.split(",")):
        x, mask, weights = benchmark.problem(1, n, 128, 128, "after", dtype, True, "normal", dtype)
        reference = benchmark.expected(x, mask, weights, "after") if options.direction == "outgoing" else None

        def call(x=x, mask=mask, weights=weights):
            with torch.no_grad():
                return triangle_multiplicative_update(
                    x, options.direction, mask, gate="after", precision=options.dtype, **weights
                )

        for way in options.ways.split(";"):
            chosen = dict(option.split("=", 1) for option in way.split())
            os.environ.update(chosen)
            try:
                found = call()
                again = call()
                same = torch.equal(found, again)
                error = 0.0 if reference is None else benchmark.error_of(found, reference)[0]
                if not (error <= benchmark.BOUND[options.dtype] and same):
                    print(f"N {n:5d} [{way}] error {error:.2e}, the same bits: {same}, not timed", flush=True)
                    continue
                whole = graph_time(call)
                rows = ", ".join(f"{name[:28]} {time:.1f}" for name, time in kernel_times(call).items())
                print(f"N {n:5d} [{way}] graph {whole:8.1f} us, error {error:.2e}: {rows}", flush=True)
            finally:
                for name in chosen:
                    os.environ.pop(name)
        del x, mask, weights, reference


if __name__ == "__main__":
    main()
