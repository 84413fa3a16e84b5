#pragma once
// Rows times matrices of doubles, for exact_quads.cu and wide_quads.cu: a block fills a multiprocessor, and has its
// head's matrices in shared memory, in the order in which lanes read them, if these fit; else 32 columns at a time.
// Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "cuda/kernels/matrix_product.cuh"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
constexpr int kOfD = 16 * kD, kOfDv = 16 * kDv;  // pairs of numbers in 32 columns of kD or kDv rows
constexpr QuadMemory kMemory(kD, kDv);
constexpr int kQuadThreads = kMemory.threads, kWarps = kQuadThreads / 32, kRows = 16 * kWarps;

/// Columns 8 unit .. 8 unit + 7 of a row.
struct alignas(16) Eight {
  number x[8];
};

/// Rows g and g + 8 of a warp, g = lane / 4; lane t = lane % 4 of the four has columns 32 c + 8 t .. + 7.
template <int kColumns>
struct QuadRows {
  const Eight* x[2];

  __device__ __forceinline__ QuadRows(const void* tensor, const long long (&rows)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      x[h] = reinterpret_cast<const Eight*>(static_cast<const number*>(tensor) + rows[h] * kColumns) +
             static_cast<int>(threadIdx.x % 4);
    }
  }

  /// sums += rows, each times its factor, times the columns in shared memory, of the runs of 32 inner places from
  /// `first` to last - 1. Tile n has the columns 8 t + 2 n + r of lanes t, and step (c, part) takes the inner places 32
  /// c + 8 t + 2 part + r. kDiagonal: a tile doubles what it has before its own part of the run and takes no part after
  /// that: products of symmetric numbers of which every pair is to count once. Rows are read again for all columns,
  /// from the first level's cache: registers hold the sums.
  template <bool kDiagonal = false>
  __device__ __forceinline__ void multiply(double (&sums)[4][4], const double2* columns, const double (&factors)[2],
                                           int first = 0, int last = kColumns / 32) const {
#pragma unroll 1
    for (int c = first; c < last; ++c) {
      const Eight rows[2] = {x[0][4 * c], x[1][4 * c]};
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        double a[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) a[r] = to_double(rows[r % 2].x[2 * part + r / 2]) * factors[r % 2];
#pragma unroll
        for (int n = kDiagonal ? part : 0; n < 4; ++n) {
          const double2 pair = columns[((4 * c + part) * 4 + n) * 32 + threadIdx.x % 32];
          const double b[2] = {pair.x, pair.y};
          if (kDiagonal && n == part) {
#pragma unroll
            for (int r = 0; r < 4; ++r) sums[n][r] += sums[n][r];
          }
          multiply_large_tile(sums[n], a, b);
        }
      }
    }
  }

  /// Products of the numbers in columns 32 c .. 32 c + 31 with sums at the same places, added to a lane's rows.
  __device__ __forceinline__ void add_products(double (&to)[2], int c, const double (&sums)[4][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Eight mine = x[h][4 * c];
#pragma unroll
      for (int i = 0; i < 8; ++i) to[h] += to_double(mine.x[i]) * sums[i / 2][h * 2 + i % 2];
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

/// The rows of part blockIdx.y of a head. kHeld: the matrices lie where results of the head's first rows go, and other
/// blocks read them to their end. So every block does its part of those rows last, and holds their results in shared
/// memory until all blocks are there.
template <bool kHeld>
struct PartRows {
  Rows mine, held;
  int tiles;

  __device__ __forceinline__ explicit PartRows(long long count) {
    const long long over = kHeld ? 8 * kD * kAll / (2 * kDv) : 0;
    mine = chunk_of(count - over, gridDim.y, blockIdx.y, 16);
    mine.first += over;
    held = chunk_of(over, gridDim.y, blockIdx.y, 16);
    tiles = static_cast<int>((mine.count + kRows - 1) / kRows) + (kHeld ? 1 : 0);
  }
};

/// The block's rows of a head, kRows at a time: a lane's rows.
struct TileRows {
  long long at[2];
  long long to[2];  ///< where results go that may be held: rows of the tensor, or of what the block holds
  bool there[2], any;

  template <bool kHeld>
  __device__ __forceinline__ TileRows(Rows all, const PartRows<kHeld>& part, int tile)
      : TileRows(all, kHeld && tile + 1 == part.tiles ? part.held : part.mine,
                 kHeld && tile + 1 == part.tiles ? 0 : static_cast<long long>(tile) * kRows) {
    if (!kHeld || tile + 1 < part.tiles) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) to[h] = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h;
  }
  __device__ __forceinline__ TileRows(Rows all, Rows mine, long long from) {
    const long long row = from + static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      there[h] = row + 8 * h < mine.count;
      to[h] = at[h] = all.first + (there[h] ? mine.first + row + 8 * h : 0);
    }
    any = from + static_cast<int>(threadIdx.x / 32 * 16) < mine.count;
  }

  /// A lane's eight columns of 32 c .. 32 c + 31.
  __device__ __forceinline__ void store(void* tensor, int columns, int c, const double (&sums)[4][4],
                                        const double (&factors)[2]) const {
    store_at(tensor, columns, c, sums, factors, at);
  }
  __device__ __forceinline__ void store_at(void* tensor, int columns, int c, const double (&sums)[4][4],
                                           const double (&factors)[2], const long long (&rows)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!there[h]) continue;
      Eight x;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        x.x[2 * n] = to_number(sums[n][h * 2] * factors[h]);
        x.x[2 * n + 1] = to_number(sums[n][h * 2 + 1] * factors[h]);
      }
      reinterpret_cast<Eight*>(static_cast<number*>(tensor) + rows[h] * columns)[4 * c + threadIdx.x % 4] = x;
    }
  }

  /// What a lane has stored in rows `to` of `held`, to its rows of the tensor.
  __device__ __forceinline__ void release(void* tensor, const void* held, int columns) const {
    for (int c = 0; c < columns / 32; ++c) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!there[h]) continue;
        reinterpret_cast<Eight*>(static_cast<number*>(tensor) + at[h] * columns)[4 * c + threadIdx.x % 4] =
            reinterpret_cast<const Eight*>(static_cast<const number*>(held) + to[h] * columns)[4 * c + threadIdx.x % 4];
      }
    }
  }
};

/// 32 columns of a matrix for the products of all warps: in their own part of shared memory, where they were brought
/// before the first rows, or fetched now. kFits: all of them do.
template <bool kFits, typename Fetch>
__device__ __forceinline__ const double2* columns_of(double2* memory, int place, const Fetch& fetch) {
  if (kFits) return memory + place;
  __syncthreads();
  fetch(memory);
  __syncthreads();
  return memory;
}

/// Outputs and norms of part blockIdx.y of a head's rows. kOver: the matrices lie where its outputs go; `meet()` is
/// then called when the block needs them no more, and nothing is written over them before.
template <bool kOver, typename Meet>
__device__ __forceinline__ void outputs_of_rows(const RowArguments& a, const Meet& meet) {
  extern __shared__ __align__(16) double2 matrices[];
  constexpr bool kFits = kMemory.all_rows, kHeld = kOver && !kFits;
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  if (a.head_flags && !a.head_flags[key_head]) return;
  const double* gram = a.sums + key_head * (a.sums_step ? a.sums_step : static_cast<long long>(kD) * kAll);
  const Rows all = query_rows(a.shape, sequence, head);
  const PartRows<kHeld> part(all.count);
  char* const held = reinterpret_cast<char*>(matrices) + kMemory.rows;
  const int lane = threadIdx.x % 32;
  const double ones[2] = {1.0, 1.0};
  for (int c = 0; kFits && c < kAll / 32; ++c) fetch_columns<kD, false>(matrices + c * kOfD, gram, 32 * c);
  double trace = 0.0;
  for (int i = lane; i < kD; i += 32) trace += gram[i * kAll + i];
  for (int bits = 16; bits > 0; bits /= 2) trace += __shfl_xor_sync(0xffffffffu, trace, bits);
  __syncthreads();
  if (kOver && kFits) meet();
  const auto columns = [&](int c) {  // of [G, M]
    return columns_of<kFits>(matrices, c * kOfD, [&](double2* to) { fetch_columns<kD, false>(to, gram, 32 * c); });
  };
  for (int tile = 0; tile < part.tiles; ++tile) {
    const TileRows rows(all, part, tile);
    const bool last = kHeld && tile + 1 == part.tiles;
    if (kFits && !rows.any) break;
    const QuadRows<kD> q(a.q, rows.at);
    double form[2] = {}, square[2] = {}, inverse[2];
#pragma unroll 1
    for (int c = 0; c < kD / 32; ++c) {
      const double2* of_form = columns(c);
      double sums[4][4] = {};
      // G is symmetric: what is beside its diagonal counts twice, and is multiplied once.
      q.multiply(sums, of_form, ones, 0, c);
      q.multiply<true>(sums, of_form, ones, c, c + 1);
      q.add_products(form, c, sums);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Eight numbers = q.x[h][4 * c];
#pragma unroll
        for (int i = 0; i < 8; ++i) square[h] += to_double(numbers.x[i]) * to_double(numbers.x[i]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      double z = of_quad(form[h]);
      const double squares = of_quad(square[h]);
      if (z <= kNothing * trace * squares) z = 0.0;
      const double norm = sqrt(z + a.eps);
      inverse[h] = norm == 0.0 ? 0.0 : 1.0 / norm;
      if (lane % 4 == 0 && rows.there[h]) static_cast<real*>(a.norm)[rows.at[h]] = static_cast<real>(norm);
    }
#pragma unroll 1
    for (int c = 0; c < kDv / 32; ++c) {
      double sums[4][4] = {};
      q.multiply(sums, columns(kD / 32 + c), ones);
      rows.store_at(last ? held : a.out, kDv, c, sums, inverse, rows.to);
    }
    if (last) {
      meet();
      rows.release(a.out, held, kDv);
    }
  }
}

/// Columns 32 c and on of M^T, then of G, next to each other.
__device__ __forceinline__ void fetch_both(double2* to, const double* gram, int c) {
  fetch_columns<kDv, true>(to, gram + kD, 32 * c);
  fetch_columns<kD, false>(to + kOfDv, gram, 32 * c);
}

/// dk' = v dM^T + k' (dG + dG^T) with k' = m k, dk = m dk', dm = k . dk', dv = k' dM, of part blockIdx.y of a head's
/// rows. kOver: the matrices lie where its gradients of values go; `meet()`: as in outputs_of_rows.
template <bool kOver, typename Meet>
__device__ __forceinline__ void gradients_of_rows_of_keys(const RowArguments& a, const Meet& meet) {
  extern __shared__ __align__(16) double2 matrices[];
  constexpr bool kFits = kMemory.all_keys, kHeld = kOver && !kFits;
  const int key_head = blockIdx.x % a.shape.key_heads, sequence = blockIdx.x / a.shape.key_heads;
  if (a.head_flags && !a.head_flags[blockIdx.x]) return;
  const double* gram =
      a.gradient_sums + blockIdx.x * (a.gradient_step ? a.gradient_step : static_cast<long long>(kD) * kAll);
  const Rows all = key_rows(a.shape, sequence, key_head);
  const PartRows<kHeld> part(all.count);
  char* const held = reinterpret_cast<char*>(matrices) + kMemory.keys;
  const int lane = threadIdx.x % 32;
  const double ones[2] = {1.0, 1.0};
  const number* weights = static_cast<const number*>(a.multiplicity);
  if (weights) weights += multiplicity_row(a.shape, sequence) - all.first;
  constexpr int kOfValues = kD / 32 * (kOfD + kOfDv);
  for (int c = 0; kFits && c < kD / 32; ++c) fetch_both(matrices + c * (kOfD + kOfDv), gram, c);
  for (int c = 0; kFits && c < kDv / 32; ++c)
    fetch_columns<kD, false>(matrices + kOfValues + c * kOfD, gram, kD + 32 * c);
  __syncthreads();
  if (kOver && kFits) meet();
  for (int tile = 0; tile < part.tiles; ++tile) {
    const TileRows rows(all, part, tile);
    const bool last = kHeld && tile + 1 == part.tiles;
    if (kFits && !rows.any) break;
    double weight[2], of_weight[2] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) weight[h] = weights ? to_double(weights[rows.at[h]]) : 1.0;
    const QuadRows<kD> k(a.k, rows.at);
    const QuadRows<kDv> v(a.v, rows.at);
#pragma unroll 1
    for (int c = 0; c < kD / 32; ++c) {
      double sums[4][4] = {};
      const double2* both =
          columns_of<kFits>(matrices, c * (kOfD + kOfDv), [&](double2* to) { fetch_both(to, gram, c); });
      v.multiply(sums, both, ones);
      k.multiply(sums, both + kOfDv, weight);
      rows.store(a.grad_k, kD, c, sums, weight);
      if (a.grad_multiplicity) k.add_products(of_weight, c, sums);
    }
    if (a.grad_multiplicity) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const double sum = of_quad(of_weight[h]);
        if (lane % 4 == 0 && rows.there[h])
          static_cast<real*>(a.grad_multiplicity)[rows.at[h]] = static_cast<real>(sum);
      }
    }
#pragma unroll 1
    for (int c = 0; c < kDv / 32; ++c) {
      double sums[4][4] = {};
      k.multiply(sums,
                 columns_of<kFits>(matrices, kOfValues + c * kOfD,
                                   [&](double2* to) { fetch_columns<kD, false>(to, gram, kD + 32 * c); }),
                 weight);
      rows.store_at(last ? held : a.grad_v, kDv, c, sums, ones, rows.to);
    }
    if (last) {
      meet();
      rows.release(a.grad_v, held, kDv);
    }
  }
}
