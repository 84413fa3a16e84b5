// What is done row by row in double precision, once the sums are there: outputs of queries, gradients of queries and of
// keys. Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "cuda/kernels/warp.cuh"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"
#include "multilinear/sampling/kernels/matrix_product.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
constexpr int kStrideD = (kD + 7) / 8 * 8 + 4, kStrideDv = (kDv + 7) / 8 * 8 + 4;
/// Eight rows of both kinds take this much shared memory; a block has as many as fit.
constexpr int kBytes = 64 * (kStrideD + kStrideDv);
constexpr int kTiles = kBytes <= 11000 ? 4 : kBytes <= 22000 ? 2 : 1, kRows = 8 * kTiles;
constexpr int kWarps = 4;

/// Rows of a matrix into shared memory as doubles, zeros behind them.
template <int kColumns, int kStride>
__device__ __forceinline__ void stage(double* to, const number* from, long long row, int rows, const number* weights) {
  for (int at = threadIdx.x; at < kRows * kStride; at += 32 * kWarps) {
    const int i = at / kStride, c = at % kStride;
    double x = 0.0;
    if (i < rows && c < kColumns) {
      x = to_double(from[(row + i) * kColumns + c]);
      if (weights) x *= to_double(weights[i]);
    }
    to[at] = x;
  }
}

/// sums (rows g and 8 on, columns `column` + 2 t + r) += x (rows, inner) matrix; element (i, j) of the matrix is
/// matrix[i * down + j * across].
template <int kInner, int kStride>
__device__ __forceinline__ void product(double (&sums)[kTiles][2], const double* x, const double* matrix, int down,
                                        int across, int column, int columns) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool inside = column + g < columns;
#pragma unroll 4
  for (int k = 0; k < kInner; k += 4) {
    const double b = inside && k + t < kInner ? __ldg(matrix + (k + t) * down + (column + g) * across) : 0.0;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) multiply_tile(sums[i], x[(8 * i + g) * kStride + k + t], b);
  }
}

/// The sum over the four lanes of a row, in all of them.
__device__ __forceinline__ double of_row(double x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Outputs and norms. Grid: sequences x heads x tiles; a block takes every `gridDim.y`-th tile of its head.
extern "C" __global__ void __launch_bounds__(128) rows_of_queries(RowArguments a) {
  __shared__ double x[kRows * kStrideD], part[kWarps][2][kRows], inverse[kRows];
  __shared__ int wanted;
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  if (a.head_flags && !a.head_flags[key_head]) return;
  const double* gram = a.sums + static_cast<long long>(key_head) * kD * kAll;
  const Rows all = query_rows(a.shape, sequence, head);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  double trace = 0.0;
  for (int i = 0; i < kD; ++i) trace += __ldg(gram + i * kAll + i);
  for (long long from = static_cast<long long>(blockIdx.y) * kRows; from < all.count;
       from += static_cast<long long>(gridDim.y) * kRows) {
    const int rows = static_cast<int>(min(static_cast<long long>(kRows), all.count - from));
    const long long row = all.first + from;
    __syncthreads();
    if (threadIdx.x == 0) wanted = !a.flags;
    __syncthreads();
    if (a.flags && threadIdx.x < rows && a.flags[row + threadIdx.x]) wanted = 1;
    __syncthreads();
    if (!wanted) continue;
    stage<kD, kStrideD>(x, static_cast<const number*>(a.q), row, rows, nullptr);
    __syncthreads();
    double form[kTiles] = {}, square[kTiles] = {};
    for (int column = 8 * warp; column < kD; column += 8 * kWarps) {
      double sums[kTiles][2] = {};
      product<kD, kStrideD>(sums, x, gram, kAll, 1, column, kD);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const double q = x[(8 * i + g) * kStrideD + column + 2 * t + r];
          form[i] += sums[i][r] * q;
          square[i] += q * q;
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
      if (mine < rows && (!a.flags || a.flags[row + mine]))
        static_cast<real*>(a.norm)[row + mine] = static_cast<real>(norm);
    }
    __syncthreads();
    for (int column = 8 * warp; column < kDv; column += 8 * kWarps) {
      double sums[kTiles][2] = {};
      product<kD, kStrideD>(sums, x, gram + kD, kAll, 1, column, kDv);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int mine = 8 * i + g;
        if (mine >= rows || (a.flags && !a.flags[row + mine])) continue;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int c = column + 2 * t + r;
          if (c < kDv) static_cast<number*>(a.out)[(row + mine) * kDv + c] = to_number(sums[i][r] * inverse[mine]);
        }
      }
    }
  }
}

/// c1 = 1 / norm and c2 = (grad_norm - grad . out / norm) / norm of every query; zeros where the norm is zero.
/// A warp a row; with flags of heads only where the last flag, for any of them, is set.
extern "C" __global__ void __launch_bounds__(128) coefficients(RowArguments a) {
  const Shape& s = a.shape;
  const long long rows = (s.offsets ? 1 : s.sequences) * s.heads * s.queries;
  if (a.head_flags && !a.head_flags[s.sequences * s.key_heads]) return;
  const int lane = threadIdx.x % 32;
  for (long long row = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32; row < rows;
       row += static_cast<long long>(gridDim.x) * kWarps) {
    double sum = 0.0;
    for (int c = lane; c < kDv; c += 32) {
      sum += to_double(static_cast<const number*>(a.grad)[row * kDv + c]) *
             to_double(static_cast<const number*>(a.out)[row * kDv + c]);
    }
    sum = warp_sum(sum);
    if (lane != 0) continue;
    const double norm = static_cast<double>(static_cast<const real*>(a.norm)[row]);
    const double of_norm = a.grad_norm ? static_cast<double>(static_cast<const real*>(a.grad_norm)[row]) : 0.0;
    a.coefficients[2 * row] = norm == 0.0 ? 0.0 : 1.0 / norm;
    a.coefficients[2 * row + 1] = norm == 0.0 ? 0.0 : (of_norm - sum / norm) / norm;
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
    stage<kD, kStrideD>(x, static_cast<const number*>(a.q), row, rows, nullptr);
    stage<kDv, kStrideDv>(y, static_cast<const number*>(a.grad), row, rows, nullptr);
    __syncthreads();
    for (int column = 8 * warp; column < kD; column += 8 * kWarps) {
      double of_values[kTiles][2] = {}, of_form[kTiles][2] = {};
      product<kDv, kStrideDv>(of_values, y, gram + kD, 1, kAll, column, kD);
      product<kD, kStrideD>(of_form, x, gram, kAll, 1, column, kD);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int mine = 8 * i + g;
        if (mine >= rows) continue;
        const double c1 = a.coefficients[2 * (row + mine)], c2 = a.coefficients[2 * (row + mine) + 1];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int c = column + 2 * t + r;
          const double sum = c1 * of_values[i][r] + c2 * of_form[i][r];
          if (c < kD) static_cast<number*>(a.grad_q)[(row + mine) * kD + c] = to_number(sum);
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
    stage<kD, kStrideD>(x, k, row, rows, weights);
    stage<kDv, kStrideDv>(y, static_cast<const number*>(a.v), row, rows, nullptr);
    __syncthreads();
    double of_weight[kTiles] = {};
    for (int column = 8 * warp; column < kD; column += 8 * kWarps) {
      double sums[kTiles][2] = {};
      product<kDv, kStrideDv>(sums, y, gram + kD, 1, kAll, column, kD);
      product<kD, kStrideD>(sums, x, gram, kAll, 1, column, kD);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int mine = 8 * i + g;
        if (mine >= rows) continue;
        const double weight = weights ? to_double(weights[mine]) : 1.0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int c = column + 2 * t + r;
          if (c >= kD) continue;
          static_cast<number*>(a.grad_k)[(row + mine) * kD + c] = to_number(weight * sums[i][r]);
          if (a.grad_multiplicity) of_weight[i] += to_double(k[(row + mine) * kD + c]) * sums[i][r];
        }
      }
    }
    for (int column = 8 * warp; column < kDv; column += 8 * kWarps) {
      double sums[kTiles][2] = {};
      product<kD, kStrideD>(sums, x, gram + kD, kAll, 1, column, kDv);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int mine = 8 * i + g;
        if (mine >= rows) continue;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int c = column + 2 * t + r;
          if (c < kDv) static_cast<number*>(a.grad_v)[(row + mine) * kDv + c] = to_number(sums[i][r]);
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
