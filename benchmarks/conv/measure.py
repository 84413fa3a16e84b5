"""Times, work and the machine's peaks."""

import time

import torch
from e3nn import o3


def spread_of(times):
    """(median, interquartile range) of a list."""
    times = sorted(times)
    return times[len(times) // 2], times[3 * len(times) // 4] - times[len(times) // 4]


def time_ns(function, device, repeats, seconds=1.0):
    """Median and interquartile range in ns of calls in sequence; on a GPU queued without a wait, events between."""
    for _ in range(2):
        function()
    synchronise(device)
    begin = time.perf_counter()
    function()
    synchronise(device)
    once = time.perf_counter() - begin
    repeats = max(3, min(repeats, int(seconds / max(once, 1e-9))))
    if device == "cpu":
        times = []
        for _ in range(repeats):
            begin = time.perf_counter_ns()
            function()
            times.append(time.perf_counter_ns() - begin)
        return spread_of(times)
    for _ in range(3):
        function()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        function()
        event.record()
    torch.cuda.synchronize()
    return spread_of([a.elapsed_time(b) * 1e6 for a, b in zip(events, events[1:], strict=False)])


def synchronise(device):
    if device == "cuda":
        torch.cuda.synchronize()


def work(problem, nodes, edges, size):
    """Floating-point operations and least bytes an edge: {"forward": (flop, bytes), "backward": ..., "double": bytes}.

    Operations, for a path of n channels with z non-zero couplings and d1 components of x: forward v = W x and
    out += C v Y take n (d1 + 2 z); backward a = C g Y, dX = W a, dW = x a, dY = v C g take n (5 d1 + 4 z). uvw paths
    add 2 n_u n_w d3 for the map from u to w, twice that backward. Bytes: every operand and result once.
    """
    forward = backward = 0
    for p in problem.paths:
        a, b, c = problem.in1[p.in1], problem.in2[p.in2], problem.out[p.out]
        nonzero = int((o3.wigner_3j(a.ir.l, b.ir.l, c.ir.l).abs() > 1e-9).sum())
        weighted = a.ir.dim if p.mode == "uvu" and p.weighted else 0
        mixing = 2 * a.mul * c.mul * c.ir.dim if p.mode == "uvw" else 0
        forward += a.mul * (weighted + 2 * nonzero) + mixing
        backward += a.mul * (5 * weighted + 4 * nonzero) + 2 * mixing
    node = nodes / edges * size
    edge = size * (problem.weight_count + problem.in2.dim)
    return {
        "forward": (forward, edge + 4 + node * (problem.in1.dim + problem.out.dim)),
        "backward": (backward, 2 * edge + 4 + node * (2 * problem.in1.dim + problem.out.dim)),
        "double": (0, 3 * edge + 4 + node * (3 * problem.in1.dim + 2 * problem.out.dim)),
    }


_FMA = """
extern "C" __global__ void fma_peak(real* out, int rounds) {
  real a[16];
  const real b = out[threadIdx.x], c = out[threadIdx.x + 32];
  for (int i = 0; i < 16; ++i) a[i] = b + i;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i] = a[i] * b + c;
  }
  real sum = 0;
  for (int i = 0; i < 16; ++i) sum += a[i];
  if (sum == c) out[0] = sum;
}
"""


def copy_rate(device):
    """GB read plus written a second by a large copy."""
    count = (1 << 29) if device == "cuda" else (1 << 24)
    a = torch.ones(count, device=device)
    b = torch.empty_like(a)
    ns, _ = time_ns(lambda: b.copy_(a), device, 10)
    return 2 * 4 * count / ns


def peaks(device):
    """{"copy_GB_s", "float32_GFLOP_s", "float64_GFLOP_s"} here and now: a large copy; multiply-adds (CPU: a matmul)."""
    result = {"copy_GB_s": copy_rate(device)}
    for dtype, name in ((torch.float32, "float"), (torch.float64, "double")):
        if device == "cuda":  # no library call: its matmul would use tensor cores in fp64
            blocks, threads, rounds = 132 * 16, 256, 4096
            flops = 2 * 16 * rounds * blocks * threads
            kernel = torch.cuda._compile_kernel(f"typedef {name} real;" + _FMA, "fma_peak")
            out = torch.zeros(1024, device=device, dtype=dtype)
            call = {"grid": (blocks, 1, 1), "block": (threads, 1, 1), "args": [out, rounds]}
            ns, _ = time_ns(lambda kernel=kernel, call=call: kernel(**call), device, 10)
        else:
            n = 1024
            m = torch.randn(n, n, dtype=dtype)
            ns, _ = time_ns(lambda m=m: m @ m, device, 10)
            flops = 2 * n**3
        result[f"{str(dtype)[6:]}_GFLOP_s"] = flops / ns
    return result
