#pragma once
// node_linear.cuh's maps in fp32 on tensor cores, three products of tf32 for one of fp32 (emit/tf32_product.h). A block
// computes kRows rows of one type and one column tile; copies of the next kStages - 1 steps' operands are on their way
// to shared memory while a step's products are made.
//
// nodes/node_linear_source.cpp writes before it what node_linear.cuh wants, but for a thread's part of the tile, and
//   split, multiply_add            write_tf32_functions
//   kStages                        steps that shared memory holds
//   kWarpRows, kWarpColumns        a warp's part of the tile: multiples of 16, and 16 or 32
//   kAlignedX                      rows of x and its terms' places are multiples of four numbers
//   kAtOnce                        eights of k whose products are under way together
//   kStore                         numbers that one store moves: rows of out and tiles' places are multiples of it
//   weight_aligned[]               of every term: 1 where places and strides of its weights are multiples of four
//
// Which lane has which k and column of a fragment is free, as long as both operands agree. A lane takes k = 2 t and
// 2 t + 1 of eight, so that one access brings both of x. Of the weight one access brings both k of a column where k is
// the fastest index, else the same k of the lane's column in every fragment.
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/node_linear.h"
#include "cuda/kernels/node_rows.cuh"
#include "cuda/kernels/tf32_products.cuh"

using namespace clebsch::cuda;

/// Begins a copy of four numbers, or of one, to shared memory; beyond the first `count` of them they are zeros.
__device__ __forceinline__ void copy_later(real* to, const real* from, int count, bool four) {
  if (four) {
    copy_bytes_later<4 * sizeof(real)>(to, from, count * static_cast<int>(sizeof(real)));
  } else {
    copy_bytes_later<sizeof(real)>(to, from, count * static_cast<int>(sizeof(real)));
  }
}

/// Grid: (groups of kRows rows, column tiles).
extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks) node_linear(NodeLinearArguments a) {
  // Copies of four numbers, or of one.
  constexpr int kNumbersX = kRows * kDepth / kThreads, kNumbersW = kColumns * kDepth / kThreads;
  // Rows of k with four numbers more than columns: lanes of two neighbouring k read 16 bytes each without conflicts.
  constexpr int kWeightRow = kColumns + 4;
  constexpr int kFragments = kWarpColumns / 8, kBands = kWarpRows / 16;
  __shared__ __align__(16) real xs[kStages][kRows * kDepth];
  __shared__ __align__(16) real ws[kStages][kWeightByRow ? kColumns * kDepth : kDepth * kWeightRow];
  __shared__ int from[kRows], to[kRows];  // rows read and rows written, -1: none
  const int tid = threadIdx.x, g = tid % 32 / 4, t = tid % 4;
  const int warp_row = tid / 32 / (kColumns / kWarpColumns) * kWarpRows;
  const int warp_column = tid / 32 % (kColumns / kWarpColumns) * kWarpColumns;
  const int type = type_of_rows(a);
  if (type < 0) return;
  const int limit = end_of_rows(a);
  find_rows(a, type, limit, from, to);

  const int* tile = tiles[blockIdx.y];
  const int columns = tile[1];
  const real* x = static_cast<const real*>(a.x);
  const real* own = static_cast<const real*>(a.weight) + type * static_cast<int64>(kWeights);
  real sum[kBands][kFragments][4];
#pragma unroll
  for (int m = 0; m < kBands; ++m) {
#pragma unroll
    for (int n = 0; n < kFragments; ++n) sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
  }

  // A group without a row to compute, or a block of out that no block of x feeds, is zero.
  const bool computed = type < a.type_count && (a.order || static_cast<int>(blockIdx.x) * kRows < limit);
  const int last = computed ? tile[3] : tile[2];
  int steps = 0;
  for (int i = tile[2]; i < last; ++i) steps += (terms[i][1] + kDepth - 1) / kDepth;

  int term = tile[2], begin = 0;
  auto fetch = [&](int stage) {
    if (term < last) {
      const int* m = terms[term];
      const int depth = m[1];
      auto copy_x = [&](int r, int k, bool four) {
        const int row = from[r], left = row < 0 ? 0 : max(0, min(four ? 4 : 1, depth - begin - k));
        const real* source = left > 0 ? x + static_cast<int64>(row) * kInRow + m[0] + begin + k : x;
        copy_later(xs[stage] + turned(r, k), source, left, four);
      };
      auto copy_w = [&](int k, int c, bool four) {
        const int more_k = depth - begin - k, more_c = columns - c;
        const int most = kWeightByRow ? (more_c > 0 ? more_k : 0) : (more_k > 0 ? more_c : 0);
        const int left = max(0, min(four ? 4 : 1, most));
        const real* source = left > 0 ? own + m[2] + (begin + k) * m[3] + c * m[4] : own;
        copy_later(ws[stage] + (kWeightByRow ? turned(c, k) : k * kWeightRow + c), source, left, four);
      };
      if (kAlignedX) {
#pragma unroll
        for (int i = 0; i < kNumbersX / 4; ++i) {
          const int place = (tid + i * kThreads) * 4;
          copy_x(place / kDepth, place % kDepth, true);
        }
      } else {
#pragma unroll 2
        for (int i = 0; i < kNumbersX; ++i) {
          const int place = tid + i * kThreads;
          copy_x(place / kDepth, place % kDepth, false);
        }
      }
      if (weight_aligned[term]) {
#pragma unroll
        for (int i = 0; i < kNumbersW / 4; ++i) {
          const int place = (tid + i * kThreads) * 4;
          copy_w(kWeightByRow ? place % kDepth : place / kColumns, kWeightByRow ? place / kDepth : place % kColumns,
                 true);
        }
      } else {
#pragma unroll 2
        for (int i = 0; i < kNumbersW; ++i) {
          const int place = tid + i * kThreads;
          copy_w(kWeightByRow ? place % kDepth : place / kColumns, kWeightByRow ? place / kDepth : place % kColumns,
                 false);
        }
      }
      begin += kDepth;
      if (begin >= depth) {
        begin = 0;
        ++term;
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage);

  int stage = 0;
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
    // All have left the step before, whose place the next copies take.
    fetch(stage == 0 ? kStages - 1 : stage - 1);
    if (warp_column < columns) {
#pragma unroll kAtOnce
      for (int k = 0; k < kDepth; k += 8) {
        unsigned big_w[kFragments][2], small_w[kFragments][2];
        if (kWeightByRow) {
#pragma unroll
          for (int n = 0; n < kFragments; ++n) {
            const Pack<2> p = *reinterpret_cast<const Pack<2>*>(ws[stage] + turned(warp_column + n * 8 + g, k + 2 * t));
#pragma unroll
            for (int v = 0; v < 2; ++v) split(p.v[v], big_w[n][v], small_w[n][v]);
          }
        } else {
#pragma unroll
          for (int v = 0; v < 2; ++v) {
            const Pack<kFragments> p = *reinterpret_cast<const Pack<kFragments>*>(
                ws[stage] + (k + 2 * t + v) * kWeightRow + warp_column + g * kFragments);
#pragma unroll
            for (int n = 0; n < kFragments; ++n) split(p.v[n], big_w[n][v], small_w[n][v]);
          }
        }
#pragma unroll
        for (int m = 0; m < kBands; ++m) {
          const int row = warp_row + m * 16 + g;
          const Pack<2> upper = *reinterpret_cast<const Pack<2>*>(xs[stage] + turned(row, k + 2 * t));
          const Pack<2> lower = *reinterpret_cast<const Pack<2>*>(xs[stage] + turned(row + 8, k + 2 * t));
          unsigned big[4], small[4];
#pragma unroll
          for (int v = 0; v < 2; ++v) {
            split(upper.v[v], big[2 * v], small[2 * v]);
            split(lower.v[v], big[2 * v + 1], small[2 * v + 1]);
          }
          add_three_products(sum[m], big, small, big_w, small_w);
        }
      }
    }
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }

  // A lane has two columns of a fragment: they follow each other, or all fragments' first ones do, and their second.
  constexpr int kTogether = kWeightByRow ? 2 : kFragments, kMove = kStore < kTogether ? kStore : kTogether;
#pragma unroll
  for (int m = 0; m < kBands; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = to[warp_row + m * 16 + half * 8 + g];
      if (row < 0) continue;
      real* target = static_cast<real*>(a.out) + static_cast<int64>(row) * kOutRow + tile[0];
#pragma unroll
      for (int j = 0; j < 2 * kFragments; j += kMove) {
        const int c = warp_column + (kWeightByRow ? j / 2 * 8 + 2 * t + j % 2 : 2 * t * kFragments + j);
        Pack<kMove> values;
#pragma unroll
        for (int v = 0; v < kMove; ++v) {
          const int i = j + v, n = kWeightByRow ? i / 2 : i % kFragments,
                    second = kWeightByRow ? i % 2 : i / kFragments;
          values.v[v] = fma(sum[m][n][half * 2 + second], kCutOff, sum[m][n][half * 2 + second]);
        }
        if (c + kMove <= columns) {
          *reinterpret_cast<Pack<kMove>*>(target + c) = values;
        } else {
#pragma unroll
          for (int v = 0; v < kMove; ++v) {
            if (c + v < columns) target[c + v] = values.v[v];
          }
        }
      }
    }
  }
}
