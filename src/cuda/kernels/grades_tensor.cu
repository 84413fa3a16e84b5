// Grades of extrapolation as in grades.cu, with products on the tensor cores of fp64 that devices of compute capability
// 8.0 and later have (PTX ISA, mma with .f64; rounded as fma). Sums have one order, so that runs agree to the bit.
#include "cuda/kernels/grades.h"
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/matrix_product.cuh"

using namespace clebsch::cuda;

// A warp has all rows of the block and a part of the columns, so that no two warps of a block read the same number of a
// matrix: it comes from the caches straight into the registers. Rows lie in shared memory, kChunk features at a time.
constexpr int kWarps = kGradeThreads / 32, kHalves = kGradeRows / 16, kChunk = kGradeSquares;
/// A row's numbers: the 4 rows by 4 features that half a warp reads at a time are in different banks.
constexpr int kStride = kChunk + 4;
/// Columns behind the last whole pass that are summed one by one, and those of the smaller pass.
constexpr int kTail = 4, kPass = kWarps * 2 * 8;
static_assert(kGradeRows % 16 == 0 && kGradeRows <= kGradeThreads && kStride % 8 == 4);

typedef double Rows[kGradeRows][kStride];

/// A lane's part of a warp's products, (kGradeRows, 8 kTiles): places of multiply_large_tile.
template <int kTiles>
struct Sums {
  double v[kHalves][kTiles][4] = {};
};

/// The larger one; not a number when either is not.
__device__ __forceinline__ double larger(double a, double b) { return b > a || b != b ? b : a; }

/// sum += x[:, : depth] w[: depth, column : column + 8 kTiles], w having `columns`; with kLift + x^2 w2 besides.
/// depth at most kChunk, and x zero from depth to the next multiple of 8.
template <int kTiles, bool kLift>
__device__ __forceinline__ void add_products(Sums<kTiles>& sum, const Rows& x, int depth, const double* w,
                                             const double* w2, int columns, int column) {
  const int g = threadIdx.x % 32 / 4, k = threadIdx.x % 4;
  // The next 8 features' numbers are on their way while these are multiplied.
  double next[kTiles][2], next2[kTiles][2];
  const auto fetch = [&](int begin) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = begin + k + 4 * r, c = column + 8 * t + g;
        const bool inside = row < depth && c < columns;
        next[t][r] = inside ? __ldg(w + row * columns + c) : 0.0;
        if constexpr (kLift) next2[t][r] = inside ? __ldg(w2 + row * columns + c) : 0.0;
      }
    }
  };
  fetch(0);
#pragma unroll 1
  for (int begin = 0; begin < depth; begin += 8) {
    double a[kHalves][4], b[kTiles][2], b2[kTiles][2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        b[t][r] = next[t][r];
        if constexpr (kLift) b2[t][r] = next2[t][r];
      }
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[h][r] = x[16 * h + g + 8 * (r % 2)][begin + k + 4 * (r / 2)];
    }
    fetch(begin + 8);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) multiply_large_tile(sum.v[h][t], a[h], b[t]);
    }
    if constexpr (kLift) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
#pragma unroll
        for (int r = 0; r < 4; ++r) a[h][r] *= a[h][r];
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) multiply_large_tile(sum.v[h][t], a[h], b2[t]);
      }
    }
  }
}

/// take(h, i, c, product) of all that a lane has: of row 16 h + 8 i + (lane / 4) and column c.
template <int kTiles, typename Take>
__device__ __forceinline__ void each(const Sums<kTiles>& sum, int column, Take take) {
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 4; ++r) take(h, r / 2, column + 8 * t + 2 * (threadIdx.x % 4) + r % 2, sum.v[h][t][r]);
    }
  }
}

/// each() of (x lifted - constants) of the 8 kTiles columns of this warp from `begin` on.
template <int kTiles, typename Take>
__device__ __forceinline__ void lifted_columns(const GradeArguments& a, const Rows& x, const double* linear,
                                               const double* square, int begin, Take take) {
  const int column = begin + threadIdx.x / 32 * 8 * kTiles;
  Sums<kTiles> sum;
  add_products<kTiles, true>(sum, x, a.depth, linear, square, a.columns, column);
  each(sum, column, take);
}

/// each() of x w of the 8 kTiles columns of this warp from `begin` on; load(first) brings features from `first` on.
template <int kTiles, typename Load, typename Take>
__device__ __forceinline__ void product_columns(const GradeArguments& a, const Rows& x, const double* w, int begin,
                                                Load load, Take take) {
  const int column = begin + threadIdx.x / 32 * 8 * kTiles;
  Sums<kTiles> sum;
  for (int first = 0; first < a.depth; first += kChunk) {
    if (first > 0 || (begin > 0 && a.depth > kChunk)) {
      __syncthreads();
      load(first);
      __syncthreads();
    }
    const int depth = a.depth - first < kChunk ? a.depth - first : kChunk;
    add_products<kTiles, false>(sum, x, depth, w + first * a.columns, nullptr, a.columns, column);
  }
  each(sum, column, take);
}

template <typename Feature, bool kSquares>
__device__ __forceinline__ void grade_rows(const GradeArguments& a) {
  __shared__ Rows x;
  __shared__ int rows[kGradeRows];  // -1: none
  __shared__ double parts[kWarps][kGradeRows], tails[kGradeRows];
  const int tid = threadIdx.x, warp = tid / 32;
  const int group = a.order ? __ldg(a.group_type + blockIdx.x) : 0;
  if (group < 0) return;
  if (tid < kGradeRows) {
    const int place = blockIdx.x * kGradeRows + tid;
    rows[tid] = a.order ? __ldg(a.order + place) : (place < a.rows ? place : -1);
    tails[tid] = 0;
  }
  __syncthreads();
  const Feature* features = static_cast<const Feature*>(a.x) + a.first;
  // Rows of types out of range are grouped as of one more type: they get any matrix, as their grade is infinite.
  const double* w = a.transform + static_cast<int64>(group < a.type_count ? group : 0) * a.depth * a.columns;
  const auto load = [&](int begin) {
#pragma unroll 8
    for (int i = tid; i < kGradeRows * kChunk; i += kGradeThreads) {
      const int r = i / kChunk, k = begin + i % kChunk;
      const bool inside = rows[r] >= 0 && k < a.depth;
      x[r][i % kChunk] = inside ? static_cast<double>(__ldg(features + rows[r] * a.stride + k)) : 0.0;
    }
  };
  load(0);
  __syncthreads();

  double value[kHalves][2] = {};
  if constexpr (kSquares) {
    const int d = a.depth;
    {
      Sums<2> sum;  // of the at most kChunk columns of the whitening
      const int column = warp * 16;
      add_products<2, false>(sum, x, d, w, nullptr, a.columns, column);
      __syncthreads();
      each(sum, column, [&](int h, int i, int c, double y) { x[16 * h + 8 * i + tid % 32 / 4][c] = c < d ? y : 0.0; });
      __syncthreads();
    }
    const double *constants = w + d * a.columns, *linear = constants + a.columns, *square = linear + d * a.columns;
    // There is a column more than twice the features: a pass for a few columns would cost as much as one for many.
    const int few = a.columns % kPass <= kTail ? a.columns % kPass : 0, most = a.columns - few;
    const auto take = [&](int h, int i, int c, double y) {
      if (c >= most) return;
      y += __ldg(constants + c);
      value[h][i] = fma(y, y, value[h][i]);
    };
    for (int begin = 0; begin < most; begin += 2 * kPass) {
      if (most - begin > kPass) {
        lifted_columns<4>(a, x, linear, square, begin, take);
      } else {
        lifted_columns<2>(a, x, linear, square, begin, take);
      }
    }
    if (few > 0) {
      constexpr int kShare = kGradeThreads / kGradeRows;  // threads of a row
      const int r = tid / kShare;
      double total = 0;
      for (int c = most; c < a.columns; ++c) {
        double y = 0;
#pragma unroll 8
        for (int k = tid % kShare; k < d; k += kShare) {
          const double own = x[r][k];
          y = fma(own, fma(own, __ldg(square + k * a.columns + c), __ldg(linear + k * a.columns + c)), y);
        }
#pragma unroll
        for (int bits = kShare / 2; bits > 0; bits /= 2) y += __shfl_xor_sync(0xffffffffu, y, bits);
        y += __ldg(constants + c);
        total = fma(y, y, total);
      }
      if (tid % kShare == 0) tails[r] = total;
    }
  } else {
    // Columns that there are not are zero.
    const auto take = [&](int h, int i, int, double y) {
      value[h][i] = a.largest ? larger(value[h][i], fabs(y)) : fma(y, y, value[h][i]);
    };
    for (int begin = 0; begin < a.columns; begin += 2 * kPass) {
      if (a.columns - begin > kPass) {
        product_columns<4>(a, x, w, begin, load, take);
      } else {
        product_columns<2>(a, x, w, begin, load, take);
      }
    }
  }

  // Over the lanes of a row, then over the warps.
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      double v = value[h][i];
#pragma unroll
      for (int bits = 2; bits > 0; bits /= 2) {
        const double other = __shfl_xor_sync(0xffffffffu, v, bits);
        v = a.largest ? larger(v, other) : v + other;
      }
      if (tid % 4 == 0) parts[warp][16 * h + 8 * i + tid % 32 / 4] = v;
    }
  }
  __syncthreads();
  const int row = tid < kGradeRows ? rows[tid] : -1;
  if (row < 0) return;
  double grade = tails[tid];
#pragma unroll
  for (int i = 0; i < kWarps; ++i) grade = a.largest ? larger(grade, parts[i][tid]) : grade + parts[i][tid];
  const int type = __ldg(a.types + row);
  const bool known = type >= 0 && type < a.type_count && __ldg(a.counts + type) > 0;
  a.grades[row] = known ? grade : __longlong_as_double(0x7ff0000000000000ll);
}

// Grid of all: (groups of kGradeRows rows). Three blocks fit a multiprocessor.
extern "C" __global__ void __launch_bounds__(kGradeThreads, 3) grades_float(GradeArguments a) {
  grade_rows<float, false>(a);
}
extern "C" __global__ void __launch_bounds__(kGradeThreads, 3) grades_double(GradeArguments a) {
  grade_rows<double, false>(a);
}
extern "C" __global__ void __launch_bounds__(kGradeThreads, 3) squares_float(GradeArguments a) {
  grade_rows<float, true>(a);
}
extern "C" __global__ void __launch_bounds__(kGradeThreads, 3) squares_double(GradeArguments a) {
  grade_rows<double, true>(a);
}
