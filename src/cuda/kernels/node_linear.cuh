#pragma once
// Linear maps of the nodes' features, all irreps in one launch. A block computes kRows rows of one type and one column
// tile, with its operands in shared memory twice: while products are made of one half, the other is filled.
//
// nodes/node_linear_source.cpp writes before it what depends on the problem:
//   real                                       float or double
//   kRows, kColumns, kDepth, kThreads          the tile of a block, input channels of a step, threads
//   kThreadRows, kThreadColumns, kDown, kAcross, kVector   a thread's part of the tile, see tile_product.cuh
//   kMinBlocks                                 blocks a multiprocessor that the register allocation must allow
//   kInRow, kOutRow, kWeights                  numbers of a row of x, of a row of out, of a type's weights
//   kWeightByRow                               the weight's fastest index is the input channel
//   tiles[][4]    column tiles: place in the row of out, columns, first term, one past the last term
//   terms[][5]    what a tile sums: place in the row of x, input channels, place and strides of the weight
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/node_linear.h"
#include "cuda/kernels/node_rows.cuh"

using namespace clebsch::cuda;

struct __align__(kVector * sizeof(real)) Pack {
  real v[kVector];
};

/// Grid: (groups of kRows rows, column tiles).
extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks) node_linear(NodeLinearArguments a) {
  constexpr int kLoadX = kRows * kDepth / kThreads, kLoadW = kColumns * kDepth / kThreads;
  __shared__ Pack xs[2][kDepth][kRows / kVector + 1];
  __shared__ Pack ws[2][kDepth][kColumns / kVector + 1];
  __shared__ int from[kRows], to[kRows];  // rows read and rows written, -1: none
  const int tid = threadIdx.x, tx = tid % kAcross, ty = tid / kAcross;
  const int type = type_of_rows(a);
  if (type < 0) return;
  const int limit = end_of_rows(a);
  find_rows(a, type, limit, from, to);

  const int* tile = tiles[blockIdx.y];
  const int columns = tile[1];
  const real* x = static_cast<const real*>(a.x);
  const real* own = static_cast<const real*>(a.weight) + type * static_cast<int64>(kWeights);
  real sum[kThreadRows][kThreadColumns];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadColumns; ++j) sum[i][j] = 0;
  }

  // A step is kDepth input channels of a term. The next step's operands are on their way in registers while this
  // one's products are made.
  real next_x[kLoadX], next_w[kLoadW];
  int term = tile[2], begin = 0;
  auto fetch = [&]() {
    const int* t = terms[term];
    const int depth = t[1];
#pragma unroll
    for (int i = 0; i < kLoadX; ++i) {
      const int k = begin + tid % kDepth, row = from[(tid + i * kThreads) / kDepth];
      next_x[i] = row >= 0 && k < depth ? __ldg(x + static_cast<int64>(row) * kInRow + t[0] + k) : real(0);
    }
#pragma unroll
    for (int i = 0; i < kLoadW; ++i) {
      const int place = tid + i * kThreads;
      const int k = begin + (kWeightByRow ? place % kDepth : place / kColumns);
      const int c = kWeightByRow ? place / kDepth : place % kColumns;
      next_w[i] = k < depth && c < columns ? __ldg(own + t[2] + k * t[3] + c * t[4]) : real(0);
    }
  };
  auto keep = [&](int half) {
#pragma unroll
    for (int i = 0; i < kLoadX; ++i) {
      const int r = (tid + i * kThreads) / kDepth;
      xs[half][tid % kDepth][r / kVector].v[r % kVector] = next_x[i];
    }
#pragma unroll
    for (int i = 0; i < kLoadW; ++i) {
      const int place = tid + i * kThreads;
      const int k = kWeightByRow ? place % kDepth : place / kColumns;
      const int c = kWeightByRow ? place / kDepth : place % kColumns;
      ws[half][k][c / kVector].v[c % kVector] = next_w[i];
    }
  };

  // A group without a row to compute, or a block of out that no block of x feeds, is zero.
  const bool computed = type < a.type_count && (a.order || static_cast<int>(blockIdx.x) * kRows < limit);
  const int last = computed ? tile[3] : term;
  bool more = term < last;
  if (more) {
    fetch();
    keep(0);
  }
  for (int half = 0; more; half ^= 1) {
    __syncthreads();
    begin += kDepth;
    if (begin >= terms[term][1]) {
      begin = 0;
      ++term;
    }
    more = term < last;
    if (more) fetch();
#include "cuda/kernels/tile_product.cuh"
    if (more) keep(half ^ 1);
  }

#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int row = to[(i / kVector * kDown + ty) * kVector + i % kVector];
    if (row < 0) continue;
    real* target = static_cast<real*>(a.out) + static_cast<int64>(row) * kOutRow + tile[0];
#pragma unroll
    for (int j = 0; j < kThreadColumns; ++j) {
      const int c = (j / kVector * kAcross + tx) * kVector + j % kVector;
      if (c < columns) target[c] = sum[i][j];
    }
  }
}
