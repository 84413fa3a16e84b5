// Sums over keys and over queries in double precision on tensor cores; for every number type. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"
#include "multilinear/sampling/kernels/matrix_product.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
/// A block has 64 x 64 of the sums, a warp 32 x 32, and takes 16 rows at a time.
constexpr int kBlock = 64, kSteps = 16, kStride = kBlock + 4;
constexpr int kAcross = (kAll + kBlock - 1) / kBlock;

template <bool kOfQueries>
__device__ __forceinline__ void sums_of_rows(const SumArguments& a) {
  __shared__ double left[kSteps * kStride], right[kSteps * kStride];
  constexpr int kTiles = (kD + kBlock - 1) / kBlock * kAcross;
  const int tile = blockIdx.x % kTiles, chunk = blockIdx.x / kTiles % a.chunks;
  const int head = blockIdx.x / kTiles / a.chunks;
  if (a.head_flags && !a.head_flags[head]) return;
  const int sequence = head / a.shape.key_heads, key_head = head % a.shape.key_heads;
  const int group = a.shape.heads / a.shape.key_heads;
  const int row_block = tile / kAcross * kBlock, column_block = tile % kAcross * kBlock;
  const Rows all = kOfQueries ? query_rows(a.shape, sequence, key_head * group) : key_rows(a.shape, sequence, key_head);
  const Rows mine = chunk_of(kOfQueries ? all.count * group : all.count, a.chunks, chunk, kSteps);
  const number* first = static_cast<const number*>(kOfQueries ? a.q : a.k);
  const number* second = static_cast<const number*>(kOfQueries ? a.grad : a.v);
  const number* multiplicity = static_cast<const number*>(a.multiplicity);
  const long long weights = multiplicity_row(a.shape, sequence);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int i0 = warp / 2 * 32, j0 = warp % 2 * 32;
  double sums[4][4][2] = {};
  for (long long from = mine.first; from < mine.first + mine.count; from += kSteps) {
    __syncthreads();
    for (int at = threadIdx.x; at < kSteps * kBlock; at += 128) {
      const int step = at / kBlock, i = row_block + at % kBlock, j = column_block + at % kBlock;
      double x = 0.0, y = 0.0;
      if (from + step < mine.first + mine.count) {
        long long row = all.first + from + step;
        double one = 1.0, two = 1.0;
        if (kOfQueries) {
          // The heads of a group lie behind one another, except that other sequences stand between them.
          const long long query = from + step;
          row = all.first + query / all.count * a.shape.queries + query % all.count;
          two = a.coefficients[2 * row];
          one = a.coefficients[2 * row + 1];
        } else if (multiplicity) {
          one = to_double(multiplicity[weights + from + step]);
        }
        if (i < kD) x = to_double(first[row * kD + i]) * (kOfQueries ? 1.0 : one);
        if (j < kD) {
          y = to_double(first[row * kD + j]) * one;
        } else if (j < kAll) {
          y = to_double(second[row * kDv + j - kD]) * two;
        }
      }
      left[step * kStride + at % kBlock] = x;
      right[step * kStride + at % kBlock] = y;
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kSteps; step += 4) {
      double x[4], y[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        x[b] = left[(step + t) * kStride + i0 + 8 * b + g];
        y[b] = right[(step + t) * kStride + j0 + 8 * b + g];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) multiply_tile(sums[i][j], x[i], y[j]);
      }
    }
  }
  double* to = static_cast<double*>(a.partial) + (static_cast<long long>(head) * a.chunks + chunk) * kD * kAll;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = row_block + i0 + 8 * i + g, column = column_block + j0 + 8 * j + 2 * t + r;
        if (row < kD && column < kAll) to[row * kAll + column] = sums[i][j][r];
      }
    }
  }
}

/// Grid: key heads x chunks x tiles.
extern "C" __global__ void __launch_bounds__(128) sums_of_keys(SumArguments a) { sums_of_rows<false>(a); }
extern "C" __global__ void __launch_bounds__(128) sums_of_queries(SumArguments a) { sums_of_rows<true>(a); }

/// Chunks added in their order. Grid: key heads x ceil(d (d + dv) / 256).
extern "C" __global__ void __launch_bounds__(256) add_chunks(SumArguments a) {
  constexpr int kBlocks = (kD * kAll + 255) / 256;
  const int head = blockIdx.x / kBlocks, at = blockIdx.x % kBlocks * 256 + threadIdx.x;
  if (at >= kD * kAll || (a.head_flags && !a.head_flags[head])) return;
  const double* from = static_cast<const double*>(a.partial) + static_cast<long long>(head) * a.chunks * kD * kAll + at;
  double sum = 0.0;
  for (int chunk = 0; chunk < a.chunks; ++chunk) sum += from[static_cast<long long>(chunk) * kD * kAll];
  a.sums[static_cast<long long>(head) * kD * kAll + at] = sum;
}
