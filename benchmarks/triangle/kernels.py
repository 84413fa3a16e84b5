"""Times of the kernels of one forward call, one by one; a wrong answer, or one that differs between two calls, is not
timed.

  python benchmarks/triangle/kernels.py [--n 256,512,768,1024] [--dtype fp32] [--gate before] [--direction incoming]

D = H = 128 and a mask; bfloat16 and the gate after the projection unless told, fp32: x in 32 bits, products in fp16, as
the leaderboard's. Kernels by torch's profiler (means of 20 calls), the call as replays of a CUDA graph. About 2 s an N.
"""

from __future__ import annotations

import argparse
import importlib.util
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
    return statistics.median(benchmark.event_times(graph.replay, 9, 20))


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
    parser.add_argument("--direction", default="outgoing")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "fp16", "fp32"], help="of x")
    parser.add_argument("--gate", default="after", choices=["after", "before"])
    options = parser.parse_args()
    precision = "fp16" if options.dtype == "fp32" else options.dtype
    dtype = torch.float32 if options.dtype == "fp32" else benchmark.DTYPES[options.dtype]
    for n in map(int, options.n.split(",")):
        x, mask, weights = benchmark.problem(1, n, 128, 128, options.gate, dtype, True, "normal", dtype)
        reference = benchmark.expected(x, mask, weights, options.gate) if options.direction == "outgoing" else None

        def call(x=x, mask=mask, weights=weights):
            with torch.no_grad():
                return triangle_multiplicative_update(
                    x, options.direction, mask, gate=options.gate, precision=precision, **weights
                )

        found, again = call(), call()
        same = torch.equal(found, again)
        error = 0.0 if reference is None else benchmark.error_of(found, reference)[0]
        if not (error <= benchmark.BOUND[precision] and same):
            print(f"N {n:5d} error {error:.2e}, the same bits: {same}, not timed", flush=True)
            continue
        whole = graph_time(call)
        rows = ", ".join(f"{name[:28]} {time:.1f}" for name, time in kernel_times(call).items())
        print(f"N {n:5d} graph {whole:8.1f} us, error {error:.2e}: {rows}", flush=True)
        del x, mask, weights, reference


if __name__ == "__main__":
    main()
