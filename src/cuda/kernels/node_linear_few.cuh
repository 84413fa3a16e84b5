#pragma once
// node_linear.cuh's maps of few nodes, where a launch lasts as long as a block waits: for operands from memory, for its
// sums. A tile is small, so that there are blocks for all multiprocessors; all input channels of a term are fetched at
// once, up to kDepth; and warps share these channels, each with sums of its own for the whole tile, which are added in
// the warps' order.
//
// nodes/node_linear_source.cpp writes before it what node_linear.cuh wants, but for a thread's part of the tile: 16
// rows and columns, kDepth a multiple of four times the warps.
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/node_linear.h"
#include "cuda/kernels/node_rows.cuh"

using namespace clebsch::cuda;

constexpr int kWarps = kThreads / 32, kShare = kDepth / kWarps;
static_assert(kRows == 16 && kColumns == 16 && kShare % 4 == 0, "a lane has 2 rows and 4 columns, 4 channels a time");
/// Numbers of a row of shared memory whose fastest index is the channel: lanes of neighbouring rows or columns read 16
/// bytes of their own banks.
constexpr int kPitch = kDepth + 4;

struct __align__(16) Four {
  real v[4];
};

/// Grid: (groups of kRows rows, column tiles).
extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks) node_linear(NodeLinearArguments a) {
  constexpr int kLoadX = kRows * kDepth / kThreads, kLoadW = kColumns * kDepth / kThreads;
  __shared__ __align__(16) real xs[kRows * kPitch];
  __shared__ __align__(16) real ws[kColumns * kPitch];
  __shared__ real parts[kWarps][kRows * kColumns];
  __shared__ int from[kRows], to[kRows];  // rows read and rows written, -1: none
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, ty = lane / 4, tx = lane % 4;
  const int type = type_of_rows(a);
  if (type < 0) return;
  const int limit = end_of_rows(a);
  find_rows(a, type, limit, from, to);

  const int* tile = tiles[blockIdx.y];
  const int columns = tile[1];
  const real* x = static_cast<const real*>(a.x);
  const real* own = static_cast<const real*>(a.weight) + type * static_cast<int64>(kWeights);
  // The weight's place in shared memory, and a lane's columns: of four that follow each other one access brings a
  // channel; where the channel is the fastest index, one access brings four of a column.
  auto place_w = [](int k, int c) { return kWeightByRow ? c * kPitch + k : k * kColumns + c; };
  auto column = [&](int j) { return kWeightByRow ? tx + 4 * j : 4 * tx + j; };
  real sum[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[i][j] = 0;
  }

  // The next channels' operands are on their way in registers while products are made of these.
  real next_x[kLoadX], next_w[kLoadW];
  int term = tile[2], begin = 0;
  auto fetch = [&]() {
    const int* t = terms[term];
    const int depth = t[1];
#pragma unroll
    for (int i = 0; i < kLoadX; ++i) {
      const int place = tid + i * kThreads, k = begin + place % kDepth, row = from[place / kDepth];
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
  auto keep = [&]() {
#pragma unroll
    for (int i = 0; i < kLoadX; ++i) {
      const int place = tid + i * kThreads;
      xs[place / kDepth * kPitch + place % kDepth] = next_x[i];
    }
#pragma unroll
    for (int i = 0; i < kLoadW; ++i) {
      const int place = tid + i * kThreads;
      ws[kWeightByRow ? place_w(place % kDepth, place / kDepth) : place] = next_w[i];
    }
  };

  // A group without a row to compute, or a block of out that no block of x feeds, is zero.
  const bool computed = type < a.type_count && (a.order || static_cast<int>(blockIdx.x) * kRows < limit);
  const int last = computed ? tile[3] : term;
  bool more = term < last;
  if (more) fetch();
  while (more) {
    keep();
    __syncthreads();
    begin += kDepth;
    if (begin >= terms[term][1]) {
      begin = 0;
      ++term;
    }
    more = term < last;
    if (more) fetch();
#pragma unroll 2
    for (int k = warp * kShare; k < (warp + 1) * kShare; k += 4) {
      Four p[2], q[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) p[i] = *reinterpret_cast<const Four*>(xs + (2 * ty + i) * kPitch + k);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        q[j] = *reinterpret_cast<const Four*>(ws + (kWeightByRow ? place_w(k, column(j)) : place_w(k + j, 4 * tx)));
#pragma unroll
      for (int v = 0; v < 4; ++v) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] = fma(p[i].v[v], kWeightByRow ? q[j].v[v] : q[v].v[j], sum[i][j]);
        }
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) parts[warp][(2 * ty + i) * kColumns + column(j)] = sum[i][j];
  }
  __syncthreads();
  for (int place = tid; place < kRows * kColumns; place += kThreads) {
    const int row = to[place / kColumns], c = place % kColumns;
    if (row < 0 || c >= columns) continue;
    real total = parts[0][place];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) total += parts[w][place];
    static_cast<real*>(a.out)[static_cast<int64>(row) * kOutRow + tile[0] + c] = total;
  }
}
