// As exact_rows.cu, for numbers of 16 and 32 bits and head sizes that are multiples of 32: 32 columns of a
// matrix at a time are in shared memory in the order in which lanes read them, a warp has 16 or 32 rows. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"
#include "multilinear/sampling/kernels/matrix_product.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
constexpr int kInner = kD > kDv ? kD : kDv, kWarps = 4, kThreads = 32 * kWarps;
/// Row tiles of a warp, and rows of a lane; blocks of a multiprocessor.
constexpr int kHigh = CLEBSCH_NUMBER == 1 ? 1 : 2, kBlocks = kHigh == 1 ? 4 : 3, kBlocksOfKeys = kHigh == 1 ? 4 : 2;
constexpr int kLaneRows = 2 * kHigh, kWarpRows = 16 * kHigh, kRows = kWarpRows * kWarps;

/// Columns 8 unit .. 8 unit + 7 of a row.
struct alignas(16) Eight {
  number x[8];
};

/// Rows g, g + 8 and so on of a warp, g = lane / 4; lane t = lane % 4 of the four has columns 32 c + 8 t .. + 7.
template <int kColumns>
struct QuadRows {
  const Eight* x[kLaneRows];

  __device__ __forceinline__ QuadRows(const void* tensor, const long long (&rows)[kLaneRows]) {
#pragma unroll
    for (int h = 0; h < kLaneRows; ++h) {
      x[h] = reinterpret_cast<const Eight*>(static_cast<const number*>(tensor) + rows[h] * kColumns) +
             static_cast<int>(threadIdx.x % 4);
    }
  }

  /// sums += rows, each times its factor, times the columns in shared memory, of the runs of 32 inner places from
  /// `first` to last - 1. Tile n has the columns 8 t + 2 n + r of lanes t, and step (c, part) takes the inner places 32
  /// c
  /// + 8 t + 2 part + r. kDiagonal: a tile doubles what it has before its own part of the run and takes no part after
  /// that: products of symmetric numbers of which every pair is to count once. Rows are read again for all columns,
  /// from the first level's cache: registers hold the sums.
  template <bool kDiagonal = false>
  __device__ __forceinline__ void multiply(double (&sums)[kHigh][4][4], const double2* columns,
                                           const double (&factors)[kLaneRows], int first = 0,
                                           int last = kColumns / 32) const {
#pragma unroll 1
    for (int c = first; c < last; ++c) {
      Eight rows[kLaneRows];
#pragma unroll
      for (int h = 0; h < kLaneRows; ++h) rows[h] = x[h][4 * c];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        double a[kHigh][4];
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
#pragma unroll
          for (int r = 0; r < 4; ++r)
            a[i][r] = to_double(rows[2 * i + r % 2].x[2 * part + r / 2]) * factors[2 * i + r % 2];
        }
#pragma unroll
        for (int n = kDiagonal ? part : 0; n < 4; ++n) {
          const double2 pair = columns[((4 * c + part) * 4 + n) * 32];
          const double b[2] = {pair.x, pair.y};
#pragma unroll
          for (int i = 0; i < kHigh; ++i) {
            if (kDiagonal && n == part) {
#pragma unroll
              for (int r = 0; r < 4; ++r) sums[i][n][r] += sums[i][n][r];
            }
            multiply_large_tile(sums[i][n], a[i], b);
          }
        }
      }
    }
  }

  /// Products of the numbers in columns 32 c .. 32 c + 31 with sums at the same places, added to a lane's rows.
  __device__ __forceinline__ void add_products(double (&to)[kLaneRows], int c,
                                               const double (&sums)[kHigh][4][4]) const {
#pragma unroll
    for (int h = 0; h < kLaneRows; ++h) {
      const Eight mine = x[h][4 * c];
#pragma unroll
      for (int i = 0; i < 8; ++i) to[h] += to_double(mine.x[i]) * sums[h / 2][i / 2][h % 2 * 2 + i % 2];
    }
  }
};

/// Columns `from` and on, 32 of them, of a matrix with kCount rows of kAll numbers into shared memory; kTurned: rows
/// `from` and on of one with kCount columns.
template <int kCount, bool kTurned>
__device__ __forceinline__ void fetch_columns(double2* to, const double* matrix, int from) {
  const int lane = threadIdx.x % 32, t = lane % 4, column = lane / 4;
#pragma unroll 8
  for (int item = threadIdx.x / 32; item < kCount / 2; item += kWarps) {
    const int step = item / 4, eight = item % 4;
    const int inner = step / 4 * 32 + 8 * t + step % 4 * 2, at = from + 8 * eight + column;
    double2 pair;
    if (kTurned) {
      pair = __ldg(reinterpret_cast<const double2*>(matrix + static_cast<long long>(at) * kAll + inner));
    } else {
      pair.x = __ldg(matrix + static_cast<long long>(inner) * kAll + at);
      pair.y = __ldg(matrix + static_cast<long long>(inner + 1) * kAll + at);
    }
    to[(step * 4 + column / 2) * 32 + 4 * (2 * eight + column % 2) + t] = pair;
  }
}

/// The sum over the four lanes of a row, in all of them.
__device__ __forceinline__ double of_quad(double x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// The block's tile of rows of a head: a lane's rows.
struct TileRows {
  long long at[kLaneRows];
  bool there[kLaneRows];

  __device__ __forceinline__ TileRows(Rows all, long long from) {
    const int g = threadIdx.x % 32 / 4, warp = threadIdx.x / 32;
#pragma unroll
    for (int h = 0; h < kLaneRows; ++h) {
      const long long row = from + kWarpRows * warp + 8 * h + g;
      there[h] = row < all.count;
      at[h] = all.first + (there[h] ? row : 0);
    }
  }

  /// A lane's eight columns of 32 c .. 32 c + 31.
  __device__ __forceinline__ void store(void* tensor, int columns, int c, const double (&sums)[kHigh][4][4],
                                        const double (&factors)[kLaneRows]) const {
#pragma unroll
    for (int h = 0; h < kLaneRows; ++h) {
      if (!there[h]) continue;
      Eight x;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        x.x[2 * n] = to_number(sums[h / 2][n][h % 2 * 2] * factors[h]);
        x.x[2 * n + 1] = to_number(sums[h / 2][n][h % 2 * 2 + 1] * factors[h]);
      }
      reinterpret_cast<Eight*>(static_cast<number*>(tensor) + at[h] * columns)[4 * c + threadIdx.x % 4] = x;
    }
  }
};

/// Outputs and norms. Grid: sequences x heads, tiles; a block takes every `gridDim.y`-th tile of its head.
extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) quad_rows_of_queries(RowArguments a) {
  __shared__ __align__(16) double2 columns[kD * 16];
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  if (a.head_flags && !a.head_flags[key_head]) return;
  const double* gram = a.sums + static_cast<long long>(key_head) * kD * kAll;
  const Rows all = query_rows(a.shape, sequence, head);
  const int lane = threadIdx.x % 32;
  double ones[kLaneRows];
#pragma unroll
  for (int h = 0; h < kLaneRows; ++h) ones[h] = 1.0;
  double trace = 0.0;
  for (int i = lane; i < kD; i += 32) trace += __ldg(gram + i * kAll + i);
  for (int bits = 16; bits > 0; bits /= 2) trace += __shfl_xor_sync(0xffffffffu, trace, bits);
  for (long long from = static_cast<long long>(blockIdx.y) * kRows; from < all.count;
       from += static_cast<long long>(gridDim.y) * kRows) {
    const TileRows rows(all, from);
    const QuadRows<kD> q(a.q, rows.at);
    double form[kLaneRows] = {}, square[kLaneRows] = {}, inverse[kLaneRows];
#pragma unroll 1
    for (int c = 0; c < kD / 32; ++c) {
      __syncthreads();
      fetch_columns<kD, false>(columns, gram, 32 * c);
      __syncthreads();
      double sums[kHigh][4][4] = {};
      // G is symmetric: what is beside its diagonal counts twice, and is multiplied once.
      q.multiply(sums, columns + lane, ones, 0, c);
      q.multiply<true>(sums, columns + lane, ones, c, c + 1);
      q.add_products(form, c, sums);
#pragma unroll
      for (int h = 0; h < kLaneRows; ++h) {
        const Eight mine = q.x[h][4 * c];
#pragma unroll
        for (int i = 0; i < 8; ++i) square[h] += to_double(mine.x[i]) * to_double(mine.x[i]);
      }
    }
#pragma unroll
    for (int h = 0; h < kLaneRows; ++h) {
      double z = of_quad(form[h]);
      const double squares = of_quad(square[h]);
      if (z <= kNothing * trace * squares) z = 0.0;
      const double norm = sqrt(z + a.eps);
      inverse[h] = norm == 0.0 ? 0.0 : 1.0 / norm;
      if (lane % 4 == 0 && rows.there[h]) static_cast<real*>(a.norm)[rows.at[h]] = static_cast<real>(norm);
    }
#pragma unroll 1
    for (int c = 0; c < kDv / 32; ++c) {
      __syncthreads();
      fetch_columns<kD, false>(columns, gram, kD + 32 * c);
      __syncthreads();
      double sums[kHigh][4][4] = {};
      q.multiply(sums, columns + lane, ones);
      rows.store(a.out, kDv, c, sums, inverse);
    }
  }
}

/// dq = c1 grad M^T + c2 q G. Grid as quad_rows_of_queries. Coefficients of a row may lie where its gradient goes.
extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) quad_gradients_of_queries(RowArguments a) {
  __shared__ __align__(16) double2 columns[kInner * 16];
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  if (a.head_flags && !a.head_flags[key_head]) return;
  const double* gram = a.sums + static_cast<long long>(key_head) * kD * kAll;
  const Rows all = query_rows(a.shape, sequence, head);
  const int lane = threadIdx.x % 32;
  double ones[kLaneRows];
#pragma unroll
  for (int h = 0; h < kLaneRows; ++h) ones[h] = 1.0;
  for (long long from = static_cast<long long>(blockIdx.y) * kRows; from < all.count;
       from += static_cast<long long>(gridDim.y) * kRows) {
    const TileRows rows(all, from);
    double c1[kLaneRows], c2[kLaneRows];
#pragma unroll
    for (int h = 0; h < kLaneRows; ++h) {
      const double* of_row = a.coefficients + rows.at[h] * a.coefficient_step;
      c1[h] = of_row[0];
      c2[h] = of_row[1];
    }
    const QuadRows<kD> q(a.q, rows.at);
    const QuadRows<kDv> grad(a.grad, rows.at);
#pragma unroll 1
    for (int c = 0; c < kD / 32; ++c) {
      double sums[kHigh][4][4] = {};
      __syncthreads();
      fetch_columns<kDv, true>(columns, gram + kD, 32 * c);
      __syncthreads();
      grad.multiply(sums, columns + lane, c1);
      __syncthreads();
      fetch_columns<kD, false>(columns, gram, 32 * c);
      __syncthreads();
      q.multiply(sums, columns + lane, c2);
      rows.store(a.grad_q, kD, c, sums, ones);
    }
  }
}

/// dk' = v dM^T + k' (dG + dG^T) with k' = m k, dk = m dk', dm = k . dk', dv = k' dM. Grid: sequences x key heads,
/// tiles.
extern "C" __global__ void __launch_bounds__(kThreads, kBlocksOfKeys) quad_gradients_of_keys(RowArguments a) {
  __shared__ __align__(16) double2 columns[kInner * 16];
  const int key_head = blockIdx.x % a.shape.key_heads, sequence = blockIdx.x / a.shape.key_heads;
  if (a.head_flags && !a.head_flags[blockIdx.x]) return;
  const double* gram = a.gradient_sums + static_cast<long long>(blockIdx.x) * kD * kAll;
  const Rows all = key_rows(a.shape, sequence, key_head);
  const int lane = threadIdx.x % 32;
  double ones[kLaneRows];
#pragma unroll
  for (int h = 0; h < kLaneRows; ++h) ones[h] = 1.0;
  const number* weights = static_cast<const number*>(a.multiplicity);
  if (weights) weights += multiplicity_row(a.shape, sequence) - all.first;
  for (long long from = static_cast<long long>(blockIdx.y) * kRows; from < all.count;
       from += static_cast<long long>(gridDim.y) * kRows) {
    const TileRows rows(all, from);
    double weight[kLaneRows], of_weight[kLaneRows] = {};
#pragma unroll
    for (int h = 0; h < kLaneRows; ++h) weight[h] = weights ? to_double(weights[rows.at[h]]) : 1.0;
    const QuadRows<kD> k(a.k, rows.at);
    const QuadRows<kDv> v(a.v, rows.at);
#pragma unroll 1
    for (int c = 0; c < kD / 32; ++c) {
      double sums[kHigh][4][4] = {};
      __syncthreads();
      fetch_columns<kDv, true>(columns, gram + kD, 32 * c);
      __syncthreads();
      v.multiply(sums, columns + lane, ones);
      __syncthreads();
      fetch_columns<kD, false>(columns, gram, 32 * c);
      __syncthreads();
      k.multiply(sums, columns + lane, weight);
      rows.store(a.grad_k, kD, c, sums, weight);
      if (a.grad_multiplicity) k.add_products(of_weight, c, sums);
    }
    if (a.grad_multiplicity) {
#pragma unroll
      for (int h = 0; h < kLaneRows; ++h) {
        const double sum = of_quad(of_weight[h]);
        if (lane % 4 == 0 && rows.there[h])
          static_cast<real*>(a.grad_multiplicity)[rows.at[h]] = static_cast<real>(sum);
      }
    }
#pragma unroll 1
    for (int c = 0; c < kDv / 32; ++c) {
      double sums[kHigh][4][4] = {};
      __syncthreads();
      fetch_columns<kD, false>(columns, gram, kD + 32 * c);
      __syncthreads();
      k.multiply(sums, columns + lane, weight);
      rows.store(a.grad_v, kDv, c, sums, ones);
    }
  }
}
