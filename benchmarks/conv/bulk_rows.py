"""How rows of weights, their gradients and the additions to dX move in an atomic backward pass: by loads and stores of
warps, or by bulk copies of whole rows (cp.async.bulk with mbarrier, cp.reduce.async.bulk).

    python benchmarks/conv/bulk_rows.py OUT.json [--nodes 8000] [--degree 158]

A stand-in for tensor_product_conv's backward pass of mace-M: an edge reads 10 paths of 128 weights (5 KB) and its
sender's 4 x 128 numbers (2 KB), writes 5 KB of weight gradients and adds 2 KB to dX of its sender, with two
multiplications a weight. What it leaves out, couplings and harmonics, is what does not bound the kernel
(docs/notebook/convolution_gpu.md). Every way is compared with torch first. Needs compute capability 9.0. The first
record is torch's copy of the weights.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common  # noqa: E402

PATHS, PARTS, CHANNELS = 10, 4, 128
WEIGHTS, WIDTH = PATHS * CHANNELS, PARTS * CHANNELS

HEAD = f"""
typedef long long int64;
constexpr int kPaths = {PATHS}, kParts = {PARTS}, kChannels = {CHANNELS}, kWeights = {WEIGHTS}, kWidth = {WIDTH};
"""
ARGUMENTS = (
    "(const float* __restrict__ w, const float* __restrict__ x, const float* __restrict__ g, const int* __restrict__ "
    "senders, float* __restrict__ dw, float* __restrict__ dx, int degree)"
)

#: Four warps a receiver, each with 32 channels of all its edges, as the generated kernels have them.
LANES = (
    HEAD
    + """
extern "C" __global__ void __launch_bounds__(128) rows"""
    + ARGUMENTS
    + """ {
  const int channel = threadIdx.x;
  float own[kPaths];
  for (int p = 0; p < kPaths; ++p) own[p] = g[static_cast<int64>(blockIdx.x) * kWeights + p * kChannels + channel];
  const int begin = blockIdx.x * degree;
#pragma unroll 2
  for (int e = begin; e < begin + degree; ++e) {
    const int64 from = static_cast<int64>(__ldg(senders + e)) * kWidth + channel;
    const float* row = w + static_cast<int64>(e) * kWeights + channel;
    float in[kPaths], features[kParts], out[kParts] = {0, 0, 0, 0};
#pragma unroll
    for (int p = 0; p < kPaths; ++p) in[p] = __ldcs(row + p * kChannels);
#pragma unroll
    for (int i = 0; i < kParts; ++i) features[i] = __ldg(x + from + i * kChannels);
#pragma unroll
    for (int p = 0; p < kPaths; ++p) {
      __stcs(dw + static_cast<int64>(e) * kWeights + p * kChannels + channel, features[p % kParts] * own[p]);
      out[p % kParts] += in[p] * own[p];
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i) ADD
  }
}
"""
)

#: A warp an edge, a lane four channels.
PACKS = (
    HEAD
    + """
__device__ __forceinline__ void add(float* to, float4 v) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}
extern "C" __global__ void __launch_bounds__(128) rows"""
    + ARGUMENTS
    + """ {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float4* own = reinterpret_cast<const float4*>(g + static_cast<int64>(blockIdx.x) * kWeights) + lane;
  const int begin = blockIdx.x * degree;
  for (int e = begin + warp; e < begin + degree; e += 4) {
    const int64 from = static_cast<int64>(__ldg(senders + e)) * kWidth + 4 * lane;
    const float4* row = reinterpret_cast<const float4*>(w + static_cast<int64>(e) * kWeights) + lane;
    float4* target = reinterpret_cast<float4*>(dw + static_cast<int64>(e) * kWeights) + lane;
    float4 in[kPaths], features[kParts], out[kParts];
#pragma unroll
    for (int p = 0; p < kPaths; ++p) in[p] = __ldcs(row + p * (kChannels / 4));
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      features[i] = __ldg(reinterpret_cast<const float4*>(x + from + i * kChannels));
      out[i] = make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int p = 0; p < kPaths; ++p) {
      const float4 a = features[p % kParts], b = __ldg(own + p * (kChannels / 4));
      __stcs(target + p * (kChannels / 4), make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w));
      float4& sum = out[p % kParts];
      sum.x += in[p].x * b.x, sum.y += in[p].y * b.y, sum.z += in[p].z * b.z, sum.w += in[p].w * b.w;
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i) add(dx + from + i * kChannels, out[i]);
  }
}
"""
)

#: A warp an edge; rows come and go by bulk copies through a ring of two slots.
BULK = (
    HEAD
    + """
constexpr int kRow = kWeights + kWidth, kSlots = 2, kRowBytes = kRow * 4;
__device__ __forceinline__ unsigned place(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void fetch(float* to, const float* from, int bytes, unsigned long long* mark) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
               "r"(place(to)), "l"(from), "r"(bytes), "r"(place(mark)) : "memory");
}
__device__ __forceinline__ void wait(unsigned long long* mark, unsigned parity) {
  unsigned done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(place(mark)), "r"(parity) : "memory");
  }
}
extern "C" __global__ void __launch_bounds__(128) rows"""
    + ARGUMENTS
    + """ {
  extern __shared__ __align__(128) float memory[];
  __shared__ unsigned long long marks[4][kSlots];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* const mine = memory + warp * 2 * kSlots * kRow;  // slots that come, slots that go
  const float4* own = reinterpret_cast<const float4*>(g + static_cast<int64>(blockIdx.x) * kWeights) + lane;
  const int begin = blockIdx.x * degree, end = begin + degree;
  auto start = [&](int e, int slot) {
    if (e >= end) return;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::
                 "r"(place(&marks[warp][slot])), "r"(kRowBytes) : "memory");
    fetch(mine + slot * kRow, w + static_cast<int64>(e) * kWeights, kWeights * 4, &marks[warp][slot]);
    fetch(mine + slot * kRow + kWeights, x + static_cast<int64>(__ldg(senders + e)) * kWidth, kWidth * 4,
          &marks[warp][slot]);
  };
  if (lane == 0) {
    for (int s = 0; s < kSlots; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&marks[warp][s])) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (int s = 0; s < kSlots; ++s) start(begin + warp + 4 * s, s);
  }
  __syncwarp();
  int turn = 0;
  for (int e = begin + warp; e < end; e += 4, ++turn) {
    const int slot = turn % kSlots;
    float4* const out = reinterpret_cast<float4*>(mine + (kSlots + slot) * kRow) + lane;
    const float4* const in = reinterpret_cast<const float4*>(mine + slot * kRow) + lane;
    wait(&marks[warp][slot], turn / kSlots & 1);
    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kSlots - 1) : "memory");
    __syncwarp();
    float4 sums[kParts], features[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      features[i] = in[(kPaths + i) * (kChannels / 4)];
      sums[i] = make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int p = 0; p < kPaths; ++p) {
      const float4 a = features[p % kParts], b = __ldg(own + p * (kChannels / 4)), v = in[p * (kChannels / 4)];
      out[p * (kChannels / 4)] = make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
      float4& sum = sums[p % kParts];
      sum.x += v.x * b.x, sum.y += v.y * b.y, sum.z += v.z * b.z, sum.w += v.w * b.w;
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i) out[(kPaths + i) * (kChannels / 4)] = sums[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (lane == 0) {
      const float* from = mine + (kSlots + slot) * kRow;
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::
                   "l"(dw + static_cast<int64>(e) * kWeights), "r"(place(from)), "r"(kWeights * 4) : "memory");
      REDUCE
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      start(e + 4 * kSlots, slot);
    }
    __syncwarp();
  }
  if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
"""
)
BULK_REDUCE = """asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                       dx + static_cast<int64>(__ldg(senders + e)) * kWidth),
                   "r"(place(from + kWeights)), "r"(kWidth * 4) : "memory");"""
#: Name -> source, bytes of dynamic shared memory, whether dX is added to.
WAYS = {
    "lanes": (LANES.replace("ADD", "atomicAdd(dx + from + i * kChannels, out[i]);"), 0, True),
    "lanes, no dX": (LANES.replace("ADD", "if (out[i] == 1e30f) dx[from] = 0;"), 0, False),
    "packs, red.v4": (PACKS, 0, True),
    "bulk, reduce": (BULK.replace("REDUCE", BULK_REDUCE), 4 * 2 * 2 * (WEIGHTS + WIDTH) * 4, True),
    "bulk, no dX": (BULK.replace("REDUCE", ""), 4 * 2 * 2 * (WEIGHTS + WIDTH) * 4, False),
}


def time_of(work, repeats: int = 9) -> tuple[float, float]:
    """Milliseconds: median, middle half."""
    times = []
    for _ in range(repeats + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    cuts = statistics.quantiles(times[2:], n=4)
    return statistics.median(times[2:]), cuts[2] - cuts[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nodes", type=int, default=8000)
    parser.add_argument("--degree", type=int, default=158)
    options = parser.parse_args()
    nodes, degree = options.nodes, options.degree
    edges, random = nodes * degree, torch.Generator(device="cuda").manual_seed(1)
    w, x, g = (torch.randn(shape, generator=random, device="cuda") for shape in ((edges, PATHS, CHANNELS),
               (nodes, PARTS, CHANNELS), (nodes, PATHS, CHANNELS)))  # fmt: skip
    # Neighbours have near numbers, as in a crystal that is numbered along its axes.
    near = torch.randint(-800, 801, (edges,), generator=random, device="cuda")
    senders = ((torch.arange(edges, device="cuda") // degree + near) % nodes).int()
    dw, dx = torch.empty_like(w), torch.zeros_like(x)
    copied, spread = time_of(lambda: dw.copy_(w))
    head, records = common.about(), []
    print(f"copy of W: {1e6 * copied / edges:.3f} ns an edge, {2e-9 * w.nbytes / copied:.2f} TB/s", flush=True)
    records.append({"way": "copy", "ns_edge": 1e6 * copied / edges, "spread": 1e6 * spread / edges} | head)
    failed = False
    for name, (source, shared, adds) in WAYS.items():
        try:
            kernel = torch.cuda._compile_kernel(source, "rows", compute_capability="90")
            if shared:
                kernel.set_shared_memory_config(shared)
            call = {"grid": (nodes, 1, 1), "block": (128, 1, 1), "args": [w, x, g, senders, dw, dx, degree]}
            dx.zero_()
            kernel(**call, shared_mem=shared)
            torch.cuda.synchronize()
            error = 0.0
            for first in range(0, nodes, max(1, nodes // 4)):  # a few receivers against torch
                rows = slice(first * degree, (first + 1) * degree)
                pattern = torch.arange(PATHS, device="cuda") % PARTS
                wanted = x[senders[rows].long()][:, pattern] * g[first]
                error = max(error, float((dw[rows] - wanted).abs().max()))
            if adds:
                total, mean = dx.double().sum(), 0.0
                for first in range(0, nodes, 1000):
                    rows = slice(first * degree, min(nodes, first + 1000) * degree)
                    part = w[rows].view(-1, degree, PATHS, CHANNELS) * g[first : first + 1000, None]
                    mean += float(part.double().sum())
                error = max(error, abs(float(total) - mean) / float(dx.abs().double().sum()))
            if not error < 1e-4:
                raise RuntimeError(f"differs from torch by {error:.1e}: not timed")
            ms, spread = time_of(lambda: kernel(**call, shared_mem=shared))  # noqa: B023
        except Exception as problem:
            failed = True
            print(f"FAIL {name}: {' '.join(str(problem).split())[:300]}", flush=True)
            continue
        records.append(
            {"way": name, "ns_edge": 1e6 * ms / edges, "spread": 1e6 * spread / edges, "error": error} | head
        )
        print(f"{name:14s} {1e6 * ms / edges:.3f} +- {1e6 * spread / edges:.3f} ns an edge, W and dW "
              f"{2e-9 * w.nbytes / ms:.2f} TB/s, error {error:.1e}", flush=True)  # fmt: skip
        common.save(options.out, records)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
