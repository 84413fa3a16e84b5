#pragma once
// Products of rows with matrices in double precision on tensor cores: rows in shared memory, a warp has 8 or 16 columns
// at a time. Compiled with CLEBSCH_NUMBER.
#include "cuda/kernels/matrix_product.cuh"
#include "cuda/kernels/warp.cuh"
#include "multilinear/attention/kernels/numbers.cuh"

constexpr int kWarps = 4;

/// Room for a row of `columns` numbers: products go in steps of eight, and rows begin in different banks.
__host__ __device__ constexpr int stride_of(int columns) { return (columns + 7) / 8 * 8 + 4; }

/// sums[i][r] (row 8 i + g, column 2 t + r) += a b with an inner size of eight; `a` is where row g, column t lies.
template <int kTiles>
__device__ __forceinline__ void multiply_rows(double (&sums)[kTiles][2], const double* a, int stride,
                                              const double (&b)[2]) {
  if constexpr (kTiles % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kTiles; i += 2) {
      const double* at = a + 8 * i * stride;
      const double left[4] = {at[0], at[8 * stride], at[4], at[8 * stride + 4]};
      double c[4] = {sums[i][0], sums[i][1], sums[i + 1][0], sums[i + 1][1]};
      multiply_large_tile(c, left, b);
      sums[i][0] = c[0];
      sums[i][1] = c[1];
      sums[i + 1][0] = c[2];
      sums[i + 1][1] = c[3];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      multiply_tile(sums[i], a[8 * i * stride], b[0]);
      multiply_tile(sums[i], a[8 * i * stride + 4], b[1]);
    }
  }
}

/// sums[n] += x (rows, kInner) times kAcross tiles of eight columns from `column` on, of the matrix whose numbers are
/// matrix(inner, column); zeros from `columns` on.
template <int kInner, int kStride, int kTiles, int kAcross, typename Matrix>
__device__ __forceinline__ void product(double (&sums)[kAcross][kTiles][2], const double* x, int column, int columns,
                                        const Matrix& matrix) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const double* a = x + g * kStride + t;
#pragma unroll 4
  for (int k = 0; k < kInner; k += 8) {
    double b[kAcross][2];
#pragma unroll
    for (int n = 0; n < kAcross; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int inner = k + t + 4 * r, at = column + 8 * n + g;
        b[n][r] = inner < kInner && at < columns ? matrix(inner, at) : 0.0;
      }
    }
#pragma unroll
    for (int n = 0; n < kAcross; ++n) multiply_rows<kTiles>(sums[n], a + k, kStride, b[n]);
  }
}

/// Rows of a matrix into shared memory as doubles, each times factors[row * step] (null: ones), zeros behind them.
template <int kColumns, int kRows, typename Factor>
__device__ __forceinline__ void stage(double* to, const number* from, long long row, int rows, const Factor* factors,
                                      int step) {
  constexpr int kStride = stride_of(kColumns);
  for (int at = threadIdx.x; at < kRows * kStride; at += 32 * kWarps) {
    const int i = at / kStride, c = at % kStride;
    double x = 0.0;
    if (i < rows && c < kColumns) {
      x = to_double(from[(row + i) * kColumns + c]);
      if (factors) x *= to_double(factors[i * step]);
    }
    to[at] = x;
  }
}

/// The sum over the four lanes of a row, in all of them.
__device__ __forceinline__ double of_row(double x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// The trace of a matrix whose rows have `columns` numbers, in all lanes of a warp.
template <int kSize>
__device__ __forceinline__ double trace_of(const double* matrix, int columns) {
  double sum = 0.0;
#pragma unroll
  for (int part = 0; part < (kSize + 31) / 32; ++part) {
    const int i = 32 * part + static_cast<int>(threadIdx.x % 32);
    if (i < kSize) sum += __ldg(matrix + i * columns + i);
  }
  return warp_sum(sum);
}
