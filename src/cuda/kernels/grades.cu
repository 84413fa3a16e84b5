// Grades of extrapolation: rows times a small matrix in fp64, and the size of what comes out, in one pass. The product
// stays in registers: of a row one number is written. Sums have one order, so that runs agree to the bit.
#include "cuda/kernels/grades.h"
#include "cuda/kernels/int64.cuh"

using namespace clebsch::cuda;

typedef double real;
// The names that tile_product.cuh knows: a thread has 4 rows by 4 columns, 16 threads share a row.
constexpr int kColumns = 64, kDepth = 16, kThreadRows = 4, kThreadColumns = 4, kVector = 2;
constexpr int kDown = kGradeRows / kThreadRows, kAcross = kColumns / kThreadColumns;
static_assert(kDown * kAcross == kGradeThreads, "a thread for every part of the tile");

struct __align__(kVector * sizeof(real)) Pack {
  real v[kVector];
};

/// The larger one; not a number when either is not.
__device__ __forceinline__ double larger(double a, double b) { return b > a || b != b ? b : a; }

/// Columns behind the last whole tile that are summed one by one.
constexpr int kTail = 4;

/// A thread's part of a tile of products.
typedef real Sums[kThreadRows][kThreadColumns];

/// What the passes of a block share.
struct Tiles {
  Pack xs[2][kDepth][kGradeRows / kVector + 1];
  Pack ws[2][kDepth][kColumns / kVector + 1];
};

/// A product (kGradeRows, depth) (depth, columns), kColumns columns at a time: take(column, sum) gets the thread's part
/// of those from `column` on. left(row, k) and right(k, column) give the operands, within depth and columns.
template <typename Left, typename Right, typename Take>
__device__ __forceinline__ void pass(Tiles& tiles, int depth, int columns, Left left, Right right, Take take) {
  constexpr int kLoadX = kGradeRows * kDepth / kGradeThreads, kLoadW = kColumns * kDepth / kGradeThreads;
  auto& xs = tiles.xs;
  auto& ws = tiles.ws;
  const int tid = threadIdx.x, tx = tid % kAcross, ty = tid / kAcross;
  // A step is kDepth features by kColumns columns. The next one's operands are on their way in registers while this
  // one's products are made.
  real next_x[kLoadX], next_w[kLoadW];
  Sums sum;
  int column = 0, begin = 0;
  auto fetch = [&]() {
#pragma unroll
    for (int i = 0; i < kLoadX; ++i) {
      const int k = begin + tid % kDepth;
      next_x[i] = k < depth ? left((tid + i * kGradeThreads) / kDepth, k) : real(0);
    }
#pragma unroll
    for (int i = 0; i < kLoadW; ++i) {
      const int place = tid + i * kGradeThreads, k = begin + place / kColumns, c = column + place % kColumns;
      next_w[i] = k < depth && c < columns ? right(k, c) : real(0);
    }
  };
  auto keep = [&](int half) {
#pragma unroll
    for (int i = 0; i < kLoadX; ++i) {
      const int r = (tid + i * kGradeThreads) / kDepth;
      xs[half][tid % kDepth][r / kVector].v[r % kVector] = next_x[i];
    }
#pragma unroll
    for (int i = 0; i < kLoadW; ++i) {
      const int place = tid + i * kGradeThreads, c = place % kColumns;
      ws[half][place / kColumns][c / kVector].v[c % kVector] = next_w[i];
    }
  };
  auto clear = [&]() {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadColumns; ++j) sum[i][j] = 0;
    }
  };

  clear();
  fetch();
  keep(0);
  bool more = true;
  for (int half = 0; more; half ^= 1) {
    __syncthreads();
    begin += kDepth;
    const bool ends = begin >= depth;  // with this step the columns' products are complete
    const int first = column;
    if (ends) {
      begin = 0;
      column += kColumns;
    }
    more = column < columns;
    if (more) fetch();
#include "cuda/kernels/tile_product.cuh"
    if (ends) {
      take(first, sum);
      clear();
    }
    if (more) keep(half ^ 1);
  }
}

/// The row of the block, or the column, that is the i-th of a thread's.
__device__ __forceinline__ int row_of(int i) {
  return (i / kVector * kDown + threadIdx.x / kAcross) * kVector + i % kVector;
}
__device__ __forceinline__ int column_of(int j) {
  return (j / kVector * kAcross + threadIdx.x % kAcross) * kVector + j % kVector;
}

template <typename Feature, bool kSquares>
__device__ __forceinline__ void grade_rows(const GradeArguments& a) {
  __shared__ Tiles tiles;
  __shared__ int rows[kGradeRows];    // -1: none
  __shared__ real tails[kGradeRows];  // of squares alone: what columns behind the last tile add to a row
  const int tid = threadIdx.x;
  const int group = a.order ? __ldg(a.group_type + blockIdx.x) : 0;
  if (group < 0) return;
  if (tid < kGradeRows) {
    const int place = blockIdx.x * kGradeRows + tid;
    rows[tid] = a.order ? __ldg(a.order + place) : (place < a.rows ? place : -1);
  }
  __syncthreads();
  const Feature* x = static_cast<const Feature*>(a.x) + a.first;
  // Rows of types out of range are grouped as of one more type: they get any matrix, as their grade is infinite.
  const double* w = a.transform + static_cast<int64>(group < a.type_count ? group : 0) * a.depth * a.columns;
  const auto feature = [&](int r, int k) {
    return rows[r] >= 0 ? static_cast<real>(__ldg(x + rows[r] * a.stride + k)) : real(0);
  };
  const auto matrix = [&](int k, int c) { return __ldg(w + k * a.columns + c); };
  real value[kThreadRows];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) value[i] = 0;

  if constexpr (kSquares) {
    __shared__ real whitened[kGradeRows][kGradeSquares + 1];
    const int d = a.depth;
    pass(tiles, d, d, feature, matrix, [&](int, const Sums& sum) {
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadColumns; ++j) whitened[row_of(i)][column_of(j)] = sum[i][j];
      }
    });
    __syncthreads();
    const auto lifted = [&](int r, int k) {
      const real y = whitened[r][k < d ? k : k - d];
      return k < d ? y : y * y;
    };
    const auto behind = [&](int k, int c) { return matrix(d + 1 + k, c); };
    // There is a column more than twice the features: a tile for a few columns would cost as much as one for all.
    const int few = a.columns % kColumns <= kTail ? a.columns % kColumns : 0, most = a.columns - few;
    const auto add = [&](int column, const Sums& sum) {
#pragma unroll
      for (int j = 0; j < kThreadColumns; ++j) {
        const int c = column + column_of(j);
        const real constant = c < most ? matrix(d, c) : real(0);
#pragma unroll
        for (int i = 0; i < kThreadRows; ++i) {
          const real y = sum[i][j] + constant;
          value[i] = fma(y, y, value[i]);
        }
      }
    };
    if (most > 0) pass(tiles, 2 * d, most, lifted, behind, add);
    if (few > 0) {
      constexpr int kShare = kGradeThreads / kGradeRows;  // threads of a row
      const int r = tid / kShare;
      real total = 0;
      for (int c = most; c < a.columns; ++c) {
        real y = 0;
        for (int k = tid % kShare; k < 2 * d; k += kShare) y = fma(lifted(r, k), behind(k, c), y);
#pragma unroll
        for (int bits = kShare / 2; bits > 0; bits /= 2) y += __shfl_xor_sync(0xffffffffu, y, bits);
        y += matrix(d, c);
        total = fma(y, y, total);
      }
      if (tid % kShare == 0) tails[r] = total;
    } else if (tid < kGradeRows) {
      tails[tid] = 0;
    }
    __syncthreads();
  } else {
    pass(tiles, a.depth, a.columns, feature, matrix, [&](int, const Sums& sum) {
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadColumns; ++j)
          value[i] = a.largest ? larger(value[i], fabs(sum[i][j])) : fma(sum[i][j], sum[i][j], value[i]);
      }
    });
  }

#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int bits = kAcross / 2; bits > 0; bits /= 2) {
      const double other = __shfl_xor_sync(0xffffffffu, value[i], bits);
      value[i] = a.largest ? larger(value[i], other) : value[i] + other;
    }
    if constexpr (kSquares) value[i] += tails[row_of(i)];
    const int row = rows[row_of(i)];
    if (tid % kAcross != 0 || row < 0) continue;
    const int type = __ldg(a.types + row);
    const bool known = type >= 0 && type < a.type_count && __ldg(a.counts + type) > 0;
    a.grades[row] = known ? value[i] : __longlong_as_double(0x7ff0000000000000ll);
  }
}

// Grid of all: (groups of kGradeRows rows).
extern "C" __global__ void __launch_bounds__(kGradeThreads) grades_float(GradeArguments a) {
  grade_rows<float, false>(a);
}
extern "C" __global__ void __launch_bounds__(kGradeThreads) grades_double(GradeArguments a) {
  grade_rows<double, false>(a);
}
extern "C" __global__ void __launch_bounds__(kGradeThreads) squares_float(GradeArguments a) {
  grade_rows<float, true>(a);
}
extern "C" __global__ void __launch_bounds__(kGradeThreads) squares_double(GradeArguments a) {
  grade_rows<double, true>(a);
}
