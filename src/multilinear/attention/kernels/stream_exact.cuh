#pragma once
// Tiles of pairs in double precision: kOwn rows that a block keeps and kOther rows that pass by. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D, CLEBSCH_DV and those of stream_pairs.cuh.
#include "cuda/kernels/matrix_product.cuh"
#include "multilinear/attention/kernels/stream_pairs.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV;
constexpr int kOwn = 16, kOther = 32, kWarps = 4, kStride = kOther + 4;
/// Threads of a row of a tile, and the others that one has.
constexpr int kOfRow = 32 * kWarps / kOwn, kMine = kOther / kOfRow;
/// Tiles of eight columns that a warp has of a product with rows of kColumns.
template <int kColumns>
constexpr int kTilesOfWarp = ((kColumns + 7) / 8 + kWarps - 1) / kWarps;

/// A run of rows of a tensor.
struct Run {
  const number* rows;
  int count;

  template <int kColumns>
  __device__ __forceinline__ double at(int row, int column) const {
    return row < count && column < kColumns ? to_double(__ldg(rows + static_cast<long long>(row) * kColumns + column))
                                            : 0.0;
  }
};

__device__ __forceinline__ Run run_of(const void* tensor, int columns, long long row, long long rows, int most) {
  return {static_cast<const number*>(tensor) + row * columns,
          static_cast<int>(min(rows, static_cast<long long>(most)))};
}

/// to (kOwn, kOther) = own (kOwn, kInner) others^T.
template <int kInner>
__device__ __forceinline__ void inner_products(double* to, const Run& own, const Run& others) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  double sums[2][2] = {};
#pragma unroll 4
  for (int k = 0; k < kInner; k += 4) {
    const double b = others.at<kInner>(8 * warp + g, k + t);
    multiply_tile(sums[0], own.at<kInner>(g, k + t), b);
    multiply_tile(sums[1], own.at<kInner>(8 + g, k + t), b);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) to[(8 * i + g) * kStride + 8 * warp + 2 * t + r] = sums[i][r];
  }
}

/// A warp's part of sums (kOwn, kColumns) += weights (kOwn, kOther) others (kOther, kColumns).
template <int kColumns>
struct Sums {
  double x[kTilesOfWarp<kColumns>][2][2] = {};

  __device__ __forceinline__ void add(const double* weights, const Run& others) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int tile = 0; tile < kTilesOfWarp<kColumns>; ++tile) {
      const int column = 8 * (warp + kWarps * tile) + g;
#pragma unroll 4
      for (int k = 0; k < kOther; k += 4) {
        const double b = others.at<kColumns>(k + t, column);
        multiply_tile(x[tile][0], weights[g * kStride + k + t], b);
        multiply_tile(x[tile][1], weights[(8 + g) * kStride + k + t], b);
      }
    }
  }
  __device__ __forceinline__ void multiply(const double* factors) {
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int tile = 0; tile < kTilesOfWarp<kColumns>; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int r = 0; r < 2; ++r) x[tile][i][r] *= factors[8 * i + g];
      }
    }
  }
  /// Rows `row` on of the tensor, `rows` of them; times a row's factor.
  __device__ __forceinline__ void store(void* tensor, long long row, long long rows, const double* factors) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int tile = 0; tile < kTilesOfWarp<kColumns>; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int mine = 8 * i + g, column = 8 * (warp + kWarps * tile) + 2 * t + r;
          if (mine >= rows || column >= kColumns) continue;
          static_cast<number*>(tensor)[(row + mine) * kColumns + column] = to_number(x[tile][i][r] * factors[mine]);
        }
      }
    }
  }
};

__device__ __forceinline__ double mask_of(const StreamArguments& a, const HeadPairs& head, long long i, long long j) {
  if (kMask == kBoolMask) return mask_byte(a, head, i, j) ? 1.0 : 0.0;
  if (kMask == kNumberMask) return to_double(mask_number(a, head, i, j));
  return 1.0;
}
__device__ __forceinline__ double multiplicity_of(const StreamArguments& a, const HeadPairs& head, long long j) {
  return kMultiplicity ? to_double(multiplicity_number(a, head, j)) : 1.0;
}
/// x of a pair from q.k
__device__ __forceinline__ double score_of(const StreamArguments& a, const HeadPairs& head, long long i, long long j,
                                           double product) {
  const double x = a.scale * multiplicity_of(a, head, j) * product;
  return kBias ? x + to_double(bias_number(a, head, i, j)) : x;
}

/// The gradient of a pair, with the factor of its row.
__device__ __forceinline__ PairGradients<double> gradients_of(const StreamArguments& a, const HeadPairs& head,
                                                              PairRow<double> row, long long i, long long j,
                                                              double product, double of_values) {
  const double x = score_of(a, head, i, j, product);
  const double f = kNorm == kSoftmax ? exp(x - row.c) : x;
  PairGradients<double> found = PairGradients<double>::of(kNorm, row, f, mask_of(a, head, i, j), of_values);
  found.dx *= row_factor(kNorm, row);
  return found;
}
