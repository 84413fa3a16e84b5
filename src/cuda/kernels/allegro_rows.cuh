#pragma once
// Allegro's matrix products in fp32 on tensor cores, three products of tf32 for one of fp32 (emit/tf32_product.h). A
// block keeps the weight of a call, whole or some columns of it, in shared memory and stays; each of its warps walks
// through row tiles on its own: copies of its next kStages - 1 slabs of x are on their way while it multiplies one,
// also while it stores results. Warps wait for each other once, before the first product.
//
// allegro/allegro_rows.cpp writes before it
//   real, int64                    float and long long
//   kMove                          numbers that divide all widths and places: 1, 2 or 4
//   kBands, kStages, kMostThreads  16 kBands rows of a warp's tile, slabs that a warp has room for, a block's threads
//   Segment, segments, Call, calls what the calls multiply (allegro_dense.h)
//   split, multiply_add            write_tf32_functions
//
// A slab is kDepth numbers of kWarpRows rows. Which lane has which k and column of a fragment is free, as long as both
// operands agree: a lane takes k = 2 t and 2 t + 1 of eight, and has four columns that follow each other of the 16 that
// two fragments make.
#include "cuda/kernels/allegro_rows.h"
#include "cuda/kernels/early_start.cuh"

using namespace clebsch::cuda;

constexpr int kDepth = 16, kWarpRows = 16 * kBands, kSlab = kWarpRows * kDepth;
/// Columns whose sums a warp has in registers, and those that it multiplies at a time.
constexpr int kTile = 64, kHalf = 32;

template <int kNumbers>
struct __align__(kNumbers * sizeof(real)) Numbers {
  real v[kNumbers];
};
using Move = Numbers<kMove>;

/// Where kDepth columns of x begin, in row 0, and how many of them there are, or more.
struct __align__(16) Step {
  const real* from;
  int stride, left;
};
/// Where kMove columns of the result go, in row 0; add: to what is there.
struct __align__(16) Target {
  real* to;
  int stride, add;
};

/// multiply_add as the first of a sum: c is overwritten, and no instruction clears it.
__device__ __forceinline__ void multiply(real (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  c[0] = c[1] = c[2] = c[3] = 0;
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, "
      "%10, %10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

/// Begins a copy of kBytes to shared memory, of which the first `bytes` are read and the others zeros. Four numbers
/// pass the first cache by: no other warp of the multiprocessor reads them.
template <int kBytes>
__device__ __forceinline__ void copy_later(real* to, const real* from, int bytes) {
  if (kBytes == 16) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(from), "n"(kBytes), "r"(bytes)
        : "memory");
  } else {
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(from), "n"(kBytes), "r"(bytes)
        : "memory");
  }
}

/// 1 / x for x from 1 to 1e35, as accurate as a division and without its test for other numbers.
__device__ __forceinline__ real reciprocal(real x) {
  real y;
  asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return fma(y, fma(-x, y, real(1)), y);
}

/// Place of number k of a row in a slab: eights of rows change places, so that 16 lanes, which read two numbers of four
/// rows each, meet every bank once.
__device__ __forceinline__ int turned(int row, int k) { return row * kDepth + (k ^ (row >> 1 & 1) * 8); }

/// The weight as fragments: [eight of k][16 columns][lane][four numbers: two of k for each of two fragments]. Of a
/// group of 8 x 16 a lane brings four numbers that lie side by side in memory; what is beyond the matrix is zero.
__device__ __forceinline__ void stage_weight(real* weights, const real* __restrict__ matrix, const Call& call,
                                             int first_column, int columns, int groups, int eights, const Step* steps,
                                             const int* weight_rows) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int k_of_lane = call.transposed ? lane % 2 * 4 : lane / 4;
  const int c_of_lane = call.transposed ? lane / 2 : lane % 4 * 4;
#pragma unroll 2
  for (int group = threadIdx.x / 32; group < eights * groups; group += warps) {
    const int eight = group / groups, step = eight / 2;
    const int k = eight % 2 * 8 + k_of_lane, c = group % groups * 16 + c_of_lane;
    const int left = steps[step].left, row = weight_rows[step];
    real w[4];
#pragma unroll
    for (int v = 0; v < 4; v += kMove) {
      const int kv = call.transposed ? k + v : k, cv = call.transposed ? c : c + v;
      const int64 at = call.transposed ? static_cast<int64>(first_column + cv) * call.leading + row + kv
                                       : static_cast<int64>(row + kv) * call.leading + first_column + cv;
      const Move m = kv < left && cv < columns ? *reinterpret_cast<const Move*>(matrix + at) : Move();
#pragma unroll
      for (int u = 0; u < kMove; ++u) w[v + u] = m.v[u];
    }
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const int kv = k_of_lane + (call.transposed ? v : 0), cv = c_of_lane + (call.transposed ? 0 : v);
      const int reader = (cv / 4 * 2 + cv % 2) * 4 + kv / 2, fragment = cv / 2 % 2;
      weights[group * 128 + reader * 4 + fragment * 2 + kv % 2] = w[v];
    }
  }
}

/// Products of one slab: sum += x w for the columns that there are of a tile, in halves of kHalf.
__device__ __forceinline__ void multiply_slab(real (&sum)[2][kBands][4][4], const real* slab, const real* weights,
                                              int groups, bool both) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
  for (int eight = 0; eight < 2; ++eight) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == 1 && !both) continue;
      unsigned big_w[4][2], small_w[4][2];
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const Numbers<4> w =
            *reinterpret_cast<const Numbers<4>*>(weights + (eight * groups + half * 2 + pair) * 128 + lane * 4);
#pragma unroll
        for (int v = 0; v < 4; ++v) split(w.v[v], big_w[pair * 2 + v / 2][v % 2], small_w[pair * 2 + v / 2][v % 2]);
      }
#pragma unroll
      for (int m = 0; m < kBands; ++m) {
        const int row = m * 16 + g, k = eight * 8 + 2 * t;
        const Numbers<2> upper = *reinterpret_cast<const Numbers<2>*>(slab + turned(row, k));
        const Numbers<2> lower = *reinterpret_cast<const Numbers<2>*>(slab + turned(row + 8, k));
        unsigned big[4], small[4];
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          split(upper.v[v], big[2 * v], small[2 * v]);
          split(lower.v[v], big[2 * v + 1], small[2 * v + 1]);
        }
        // Tensor cores cut off what does not fit a sum, which would bias a long one: eight products begin from zero,
        // the small ones first, and go to the sum in fp32.
        real c[4][4];
#pragma unroll
        for (int n = 0; n < 4; ++n) multiply(c[n], small, big_w[n]);
#pragma unroll
        for (int n = 0; n < 4; ++n) multiply_add(c[n], big, small_w[n]);
#pragma unroll
        for (int n = 0; n < 4; ++n) multiply_add(c[n], big, big_w[n]);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int v = 0; v < 4; ++v) sum[half][m][n][v] += c[n][v];
        }
      }
    }
  }
}

/// The result of kMove sums: added to what was there, times the slope that was there, or silu and its slope, which goes
/// to *slopes.
__device__ __forceinline__ Move finished(Move x, const Move& before, Move* slopes, bool add, int end, int gradients) {
  if (add) {
#pragma unroll
    for (int u = 0; u < kMove; ++u) x.v[u] += before.v[u];
  }
  if (end == kTimesSlope) {
#pragma unroll
    for (int u = 0; u < kMove; ++u) x.v[u] *= before.v[u];
  }
  if (end == kKeepSlope) {
    Move slope;
#pragma unroll
    for (int u = 0; u < kMove; ++u) {
      const real gate = reciprocal(real(1) + exp(min(-x.v[u], real(80))));
      slope.v[u] = gate * (real(1) + x.v[u] * (real(1) - gate));
      x.v[u] *= gate;
    }
    if (gradients) *slopes = slope;
  }
  return x;
}

/// Grid: (any number of blocks, which share the row tiles; parts of `part` columns, a multiple of kTile or all).
extern "C" __global__ void __launch_bounds__(kMostThreads, 1) allegro_dense(AllegroRowsArguments a) {
  extern __shared__ float4 memory[];
  const Call& call = calls[a.call];
  const int tid = threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int first_column = blockIdx.y * a.part, columns = min(a.part, call.columns - first_column);
  const int groups = (columns + kHalf - 1) / kHalf * 2;  // of 16 columns
  int step_count = 0;
  for (int i = call.in_begin; i < call.in_end; ++i) step_count += (segments[i].width + kDepth - 1) / kDepth;

  real* const ring = reinterpret_cast<real*>(memory) + warp * kStages * kSlab;
  real* const weights = reinterpret_cast<real*>(memory) + warps * kStages * kSlab;
  Step* const steps = reinterpret_cast<Step*>(weights + step_count * groups * 256);
  Target* const targets = reinterpret_cast<Target*>(steps + step_count);
  int* const weight_rows = reinterpret_cast<int*>(targets + (columns + kMove - 1) / kMove);
  for (int s = tid; s < step_count; s += blockDim.x) {
    int i = call.in_begin, begin = s * kDepth, base = 0;
    for (int padded; begin >= (padded = (segments[i].width + kDepth - 1) / kDepth * kDepth); ++i) {
      begin -= padded;
      base += segments[i].width;
    }
    const Segment& from = segments[i];
    steps[s] = {a.work + a.capacity * from.offset + from.first + begin, from.stride, from.width - begin};
    weight_rows[s] = base + begin;
  }
  for (int c = tid * kMove; c < columns; c += blockDim.x * kMove) {
    int i = call.in_end, column = first_column + c;
    while (column >= segments[i].width) column -= segments[i++].width;
    const Segment& to = segments[i];
    targets[c / kMove] = {a.work + a.capacity * to.offset + to.first + column, to.stride, to.add};
  }
  __syncthreads();
  stage_weight(weights, a.dense + call.weight, call, first_column, columns, groups, step_count * 2, steps, weight_rows);
  start_early();  // nothing before it depends on the kernel before this one
  const AllegroChunk range = a.chunks[a.chunk];
  const int rows = range.end_edge - range.first_edge, tiles = (rows + kWarpRows - 1) / kWarpRows;
  const int stride = gridDim.x * warps;
  int tile = blockIdx.x + gridDim.x * warp;

  int next_tile = tile, next_first = 0, next_step = 0;
  auto fetch = [&](int stage) {
    if (next_tile < tiles) {
      const Step s = steps[next_step];
      real* const slab = ring + stage * kSlab;
      // Neighbouring lanes copy what lies side by side.
      constexpr int kWide = kMove == 4 ? 4 : 1, kAcross = kDepth / kWide, kDown = 32 / kAcross;
      const int r = lane / kAcross, k = lane % kAcross * kWide;
      const bool there = k < s.left;
      const real* const from = s.from + (there ? k : 0);
      const int bytes = there ? kWide * static_cast<int>(sizeof(real)) : 0;
#pragma unroll(kMove == 4 ? kWarpRows / kDown : 2)
      for (int i = 0; i < kWarpRows / kDown; ++i) {
        // Rows beyond the last one are that one again: they are not stored.
        const int row = min(next_tile * kWarpRows + r + i * kDown, rows - 1);
        const int to = kDown == 8 ? turned(r, k) + i * kDown * kDepth : turned(r + i * kDown, k);
        copy_later<kWide * sizeof(real)>(slab + to, from + static_cast<int64>(row) * s.stride, bytes);
      }
      if (++next_step == step_count) {
        next_step = 0;
        next_first += kTile;
        if (next_first >= columns) {
          next_first = 0;
          next_tile += stride;
        }
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage);
  __syncthreads();  // the weight is there

  int stage = 0;
  for (; tile < tiles; tile += stride) {
#pragma unroll 1
    for (int first = 0; first < columns; first += kTile) {
      real sum[2][kBands][4][4];
#pragma unroll
      for (int i = 0; i < 2 * kBands * 16; ++i) sum[i / 16 / kBands][i / 16 % kBands][i / 4 % 4][i % 4] = 0;
      const bool both = first + kHalf < columns;
      const real* w = weights + first * 8;
#pragma unroll 1
      for (int step = 0; step < step_count; ++step, w += groups * 256) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
        __syncwarp();
        // All lanes have left the slab before, whose place the next copies take.
        fetch(stage == 0 ? kStages - 1 : stage - 1);
        multiply_slab(sum, ring + stage * kSlab, w, groups, both);
        stage = stage == kStages - 1 ? 0 : stage + 1;
      }

      // Hides that the places of results follow from the lane alone: kept over the products, they would not fit in
      // registers.
      int place = lane;
      asm volatile("" : "+r"(place));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half == 1 && !both) continue;
        real* const slopes = a.work + a.capacity * call.slope + first_column;
#pragma unroll
        for (int m = 0; m < kBands; ++m) {
          // A lane has, of each row and 16 columns, four that follow each other. All that is read comes before all that
          // is written, so that reads are under way together.
          Move before[2][4 / kMove][2];
#pragma unroll
          for (int pass = 0; pass < 2; ++pass) {
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
#pragma unroll
              for (int v = 0; v < 4; v += kMove) {
                const int c = first + half * kHalf + pair * 16 + place % 4 * 4 + v;
                if (c >= columns) continue;
                const Target target = targets[c / kMove];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                  const int row = tile * kWarpRows + m * 16 + i * 8 + place / 4;
                  if (row >= rows) continue;
                  Move* const to = reinterpret_cast<Move*>(target.to + static_cast<int64>(row) * target.stride);
                  Move* const by = reinterpret_cast<Move*>(slopes + static_cast<int64>(row) * call.slope_stride + c);
                  Move& b = before[pair][v / kMove][i];
                  if (pass == 0) {
                    if (target.add) b = *to;
                    if (call.end == kTimesSlope) b = *by;
                    continue;
                  }
                  Move x;
#pragma unroll
                  for (int u = 0; u < kMove; ++u) x.v[u] = sum[half][m][pair * 2 + (v + u) / 2][i * 2 + (v + u) % 2];
                  *to = finished(x, b, by, target.add, call.end, a.gradients);
                }
              }
            }
          }
        }
      }
    }
  }
}
