// What is done row by row in double precision, once the sums are there: outputs of queries, gradients of queries and of
// keys. Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "cuda/kernels/warp.cuh"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/exact_tiles.cuh"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
constexpr int kStrideD = stride_of(kD), kStrideDv = stride_of(kDv);
/// Eight rows of both kinds take this much shared memory; a block has as many as fit.
constexpr int kBytes = 64 * (kStrideD + kStrideDv);
constexpr int kTiles = kBytes <= 11000 ? 4 : kBytes <= 22000 ? 2 : 1, kRows = 8 * kTiles;
/// Tiles of columns that a warp takes at a time: all warps have some.
constexpr const number* kNoFactors = nullptr;
constexpr int kAcrossD = kD > 32 ? 2 : 1, kAcrossDv = kDv > 32 ? 2 : 1;

/// Outputs and norms. Grid: sequences x heads x tiles; a block takes every `gridDim.y`-th tile of its head.
extern "C" __global__ void __launch_bounds__(128) rows_of_queries(RowArguments a) {
  __shared__ double x[kRows * kStrideD], part[kWarps][2][kRows], inverse[kRows];
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  if (a.head_flags && !a.head_flags[key_head]) return;
  const double* gram = a.sums + static_cast<long long>(key_head) * kD * kAll;
  const Rows all = query_rows(a.shape, sequence, head);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const double trace = trace_of<kD>(gram, kAll);
  for (long long from = static_cast<long long>(blockIdx.y) * kRows; from < all.count;
       from += static_cast<long long>(gridDim.y) * kRows) {
    const int rows = static_cast<int>(min(static_cast<long long>(kRows), all.count - from));
    const long long row = all.first + from;
    __syncthreads();
    stage<kD, kRows>(x, static_cast<const number*>(a.q), row, rows, kNoFactors, 0);
    __syncthreads();
    double form[kTiles] = {}, square[kTiles] = {};
    for (int column = 8 * kAcrossD * warp; column < kD; column += 8 * kAcrossD * kWarps) {
      double sums[kAcrossD][kTiles][2] = {};
      product<kD, kStrideD>(sums, x, column, kD, [&](int k, int c) { return __ldg(gram + k * kAll + c); });
#pragma unroll
      for (int n = 0; n < kAcrossD; ++n) {
        if (column + 8 * n >= kD) continue;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const double q = x[(8 * i + g) * kStrideD + column + 8 * n + 2 * t + r];
            form[i] += sums[n][i][r] * q;
            square[i] += q * q;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const double of_form = of_row(form[i]), of_square = of_row(square[i]);
      if (t == 0) {
        part[warp][0][8 * i + g] = of_form;
        part[warp][1][8 * i + g] = of_square;
      }
    }
    __syncthreads();
    if (threadIdx.x < kRows) {
      double z = 0.0, square_norm = 0.0;
      for (int w = 0; w < kWarps; ++w) {
        z += part[w][0][threadIdx.x];
        square_norm += part[w][1][threadIdx.x];
      }
      if (z <= kNothing * trace * square_norm) z = 0.0;
      const double norm = sqrt(z + a.eps);
      inverse[threadIdx.x] = norm == 0.0 ? 0.0 : 1.0 / norm;
      const int mine = static_cast<int>(threadIdx.x);
      if (mine < rows) static_cast<real*>(a.norm)[row + mine] = static_cast<real>(norm);
    }
    __syncthreads();
    for (int column = 8 * kAcrossDv * warp; column < kDv; column += 8 * kAcrossDv * kWarps) {
      double sums[kAcrossDv][kTiles][2] = {};
      product<kD, kStrideD>(sums, x, column, kDv, [&](int k, int c) { return __ldg(gram + k * kAll + kD + c); });
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int mine = 8 * i + g;
        if (mine >= rows) continue;
#pragma unroll
        for (int n = 0; n < kAcrossDv; ++n) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int c = column + 8 * n + 2 * t + r;
            if (c < kDv) static_cast<number*>(a.out)[(row + mine) * kDv + c] = to_number(sums[n][i][r] * inverse[mine]);
          }
        }
      }
    }
  }
}

/// dq = c1 grad M^T + c2 q G. Grid as rows_of_queries.
extern "C" __global__ void __launch_bounds__(128) gradients_of_queries(RowArguments a) {
  __shared__ double x[kRows * kStrideD], y[kRows * kStrideDv];
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  if (a.head_flags && !a.head_flags[key_head]) return;
  const double* gram = a.sums + static_cast<long long>(key_head) * kD * kAll;
  const Rows all = query_rows(a.shape, sequence, head);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (long long from = static_cast<long long>(blockIdx.y) * kRows; from < all.count;
       from += static_cast<long long>(gridDim.y) * kRows) {
    const int rows = static_cast<int>(min(static_cast<long long>(kRows), all.count - from));
    const long long row = all.first + from;
    __syncthreads();
    const double* of_rows = a.coefficients + row * a.coefficient_step;  // may lie where gradients of the rows go
    stage<kD, kRows>(x, static_cast<const number*>(a.q), row, rows, of_rows + 1, a.coefficient_step);
    stage<kDv, kRows>(y, static_cast<const number*>(a.grad), row, rows, of_rows, a.coefficient_step);
    __syncthreads();
    for (int column = 8 * kAcrossD * warp; column < kD; column += 8 * kAcrossD * kWarps) {
      double sums[kAcrossD][kTiles][2] = {};
      product<kDv, kStrideDv>(sums, y, column, kD, [&](int k, int c) { return __ldg(gram + c * kAll + kD + k); });
      product<kD, kStrideD>(sums, x, column, kD, [&](int k, int c) { return __ldg(gram + k * kAll + c); });
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int mine = 8 * i + g;
        if (mine >= rows) continue;
#pragma unroll
        for (int n = 0; n < kAcrossD; ++n) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int c = column + 8 * n + 2 * t + r;
            if (c < kD) static_cast<number*>(a.grad_q)[(row + mine) * kD + c] = to_number(sums[n][i][r]);
          }
        }
      }
    }
  }
}

/// dk' = v dM^T + k' (dG + dG^T) with k' = m k, dk = m dk', dm = k . dk', dv = k' dM. Grid: sequences x key heads,
/// tiles.
extern "C" __global__ void __launch_bounds__(128) gradients_of_keys(RowArguments a) {
  __shared__ double x[kRows * kStrideD], y[kRows * kStrideDv], part[kWarps][kRows];
  const int key_head = blockIdx.x % a.shape.key_heads, sequence = blockIdx.x / a.shape.key_heads;
  if (a.head_flags && !a.head_flags[blockIdx.x]) return;
  const double* gram = a.gradient_sums + static_cast<long long>(blockIdx.x) * kD * kAll;
  const Rows all = key_rows(a.shape, sequence, key_head);
  const number* k = static_cast<const number*>(a.k);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (long long from = static_cast<long long>(blockIdx.y) * kRows; from < all.count;
       from += static_cast<long long>(gridDim.y) * kRows) {
    const int rows = static_cast<int>(min(static_cast<long long>(kRows), all.count - from));
    const long long row = all.first + from;
    const number* weights = static_cast<const number*>(a.multiplicity);
    if (weights) weights += multiplicity_row(a.shape, sequence) + from;
    __syncthreads();
    stage<kD, kRows>(x, k, row, rows, weights, 1);
    stage<kDv, kRows>(y, static_cast<const number*>(a.v), row, rows, kNoFactors, 0);
    __syncthreads();
    double of_weight[kTiles] = {};
    for (int column = 8 * kAcrossD * warp; column < kD; column += 8 * kAcrossD * kWarps) {
      double sums[kAcrossD][kTiles][2] = {};
      product<kDv, kStrideDv>(sums, y, column, kD, [&](int k, int c) { return __ldg(gram + c * kAll + kD + k); });
      product<kD, kStrideD>(sums, x, column, kD, [&](int k, int c) { return __ldg(gram + k * kAll + c); });
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int mine = 8 * i + g;
        if (mine >= rows) continue;
        const double weight = weights ? to_double(weights[mine]) : 1.0;
#pragma unroll
        for (int n = 0; n < kAcrossD; ++n) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int c = column + 8 * n + 2 * t + r;
            if (c >= kD) continue;
            static_cast<number*>(a.grad_k)[(row + mine) * kD + c] = to_number(weight * sums[n][i][r]);
            if (a.grad_multiplicity) of_weight[i] += to_double(k[(row + mine) * kD + c]) * sums[n][i][r];
          }
        }
      }
    }
    for (int column = 8 * kAcrossDv * warp; column < kDv; column += 8 * kAcrossDv * kWarps) {
      double sums[kAcrossDv][kTiles][2] = {};
      product<kD, kStrideD>(sums, x, column, kDv, [&](int k, int c) { return __ldg(gram + k * kAll + kD + c); });
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int mine = 8 * i + g;
        if (mine >= rows) continue;
#pragma unroll
        for (int n = 0; n < kAcrossDv; ++n) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int c = column + 8 * n + 2 * t + r;
            if (c < kDv) static_cast<number*>(a.grad_v)[(row + mine) * kDv + c] = to_number(sums[n][i][r]);
          }
        }
      }
    }
    if (!a.grad_multiplicity) continue;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const double sum = of_row(of_weight[i]);
      if (t == 0) part[warp][8 * i + g] = sum;
    }
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < rows) {
      double sum = 0.0;
      for (int w = 0; w < kWarps; ++w) sum += part[w][threadIdx.x];
      static_cast<real*>(a.grad_multiplicity)[row + threadIdx.x] = static_cast<real>(sum);
    }
  }
}
