// node_linear.cuh's maps of many nodes in fp32 on tensor cores, as node_linear_tf32.cuh has them, where all
// multiplicities are multiples of four. A block computes several column tiles of its kRows rows, one after the other:
// it finds its rows once, and copies of the next kStages - 1 steps' operands run ahead across the ends of tiles.
//
// nodes/node_linear_source.cpp writes before it what node_linear.cuh wants, but for a thread's part of the tile, and
//   split, multiply_add            write_tf32_functions
//   kStages                        steps that shared memory holds, of kDepth = 32 numbers: a line of the cache
//   kWarpRows, kWarpColumns        a warp's part of the tile: 64 and 32
//   kAtOnce                        eights of k that the compiler may mix
//   kTail                          whether a term's depth is no multiple of eight
//
// A tile of at most kWarpColumns columns gives each warp half the rows instead of nothing to half the warps. Which
// column of a fragment is which column of the tile is free: fragments 2 p and 2 p + 1 have column 16 p + 2 c and the
// next one in their column c, so that a lane's results are four columns that follow each other.
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/node_linear.h"
#include "cuda/kernels/node_rows.cuh"
#include "cuda/kernels/tf32_products.cuh"

using namespace clebsch::cuda;

constexpr int kFragments = kWarpColumns / 8, kBands = kWarpRows / 16;
// Rows of k with four numbers more than columns: lanes of two neighbouring k read without conflicts.
constexpr int kWeightRow = kColumns + 4;
constexpr int kNumbersX = kRows * kDepth, kNumbersW = kWeightByRow ? kColumns * kDepth : kDepth * kWeightRow;

/// The place of the weight of number k and a column. Lanes read every second column.
__device__ __forceinline__ int place_of_weight(int k, int column) {
  return kWeightByRow ? column * kDepth + (k ^ (column >> 1 & 3) * 8) : k * kWeightRow + column;
}

/// Begins a copy of four numbers to shared memory, past the first cache: tiles of a block want other numbers of x.
__device__ __forceinline__ void copy_x_later(real* to, const real* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}

/// The same of weights, which several blocks of a multiprocessor want.
__device__ __forceinline__ void copy_weight_later(real* to, const real* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}

__device__ __forceinline__ void clear(real* to) { *reinterpret_cast<Pack<4>*>(to) = {{0, 0, 0, 0}}; }

/// Adds the products of `eights` eights of k of one step to the warp's sums: kUsed bands of 16 rows from the first.
template <int kUsed>
__device__ __forceinline__ void add_products(const real* xs, const real* ws, int eights, int first_row,
                                             int first_column, real (&sum)[kBands][kFragments][4]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll kAtOnce
  for (int eight = 0; eight < eights; ++eight) {
    const int k = eight * 8 + 2 * t;
    unsigned big_w[kFragments][2], small_w[kFragments][2];
    if (kWeightByRow) {
#pragma unroll
      for (int n = 0; n < kFragments; ++n) {
        const int column = first_column + n / 2 * 16 + 2 * g + n % 2;
        const Pack<2> p = *reinterpret_cast<const Pack<2>*>(ws + place_of_weight(k, column));
#pragma unroll
        for (int v = 0; v < 2; ++v) split(p.v[v], big_w[n][v], small_w[n][v]);
      }
    } else {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
#pragma unroll
        for (int n = 0; n < kFragments; n += 2) {
          const int column = first_column + n / 2 * 16 + 2 * g;
          const Pack<2> p = *reinterpret_cast<const Pack<2>*>(ws + place_of_weight(k + v, column));
          split(p.v[0], big_w[n][v], small_w[n][v]);
          split(p.v[1], big_w[n + 1][v], small_w[n + 1][v]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kUsed; ++m) {
      const int row = first_row + m * 16 + g;
      const Pack<2> upper = *reinterpret_cast<const Pack<2>*>(xs + turned(row, k));
      const Pack<2> lower = *reinterpret_cast<const Pack<2>*>(xs + turned(row + 8, k));
      unsigned big[4], small[4];
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        split(upper.v[v], big[2 * v], small[2 * v]);
        split(lower.v[v], big[2 * v + 1], small[2 * v + 1]);
      }
      add_three_products(sum[m], big, small, big_w, small_w);
    }
  }
}

/// The next step whose operands are copied: what a thread copies of it, and what follows.
struct Copies {
  // Copies of four numbers: of x of one eighth of a row and every kRowsApart-th row, of weights likewise.
  static constexpr int kOfRow = kDepth / 4, kRowsApart = kThreads / kOfRow, kOfX = kRows / kRowsApart;
  static constexpr int kOfColumns = kColumns / 4, kApart = kWeightByRow ? kRowsApart : kThreads / kOfColumns;
  static constexpr int kOfWeight = (kWeightByRow ? kColumns : kDepth) / kApart;

  const NodeLinearWalk& a;
  const real *x, *weight;  ///< of the thread, of all rows and of the type
  int place, end;          ///< in the list of the block's tiles
  int term = 0, last = 0, left = 0, columns = 0, stride = 0;
  int rows[kOfX];
  const real *next_x = nullptr, *next_weight = nullptr;

  __device__ __forceinline__ static int k_of_x() { return threadIdx.x % kOfRow * 4; }
  __device__ __forceinline__ static int k_of_weight() {
    return kWeightByRow ? k_of_x() : static_cast<int>(threadIdx.x) / kOfColumns;
  }
  __device__ __forceinline__ static int column() {
    return kWeightByRow ? static_cast<int>(threadIdx.x) / kOfRow : threadIdx.x % kOfColumns * 4;
  }

  __device__ __forceinline__ Copies(const NodeLinearWalk& walk, const real* own, const int* from)
      : a(walk), x(static_cast<const real*>(walk.map.x) + k_of_x()), weight(own) {
    place = a.first[blockIdx.y];
    end = a.first[blockIdx.y + 1];
    // A row that is not computed is some other one here, and its results are not used.
#pragma unroll
    for (int i = 0; i < kOfX; ++i) rows[i] = max(0, from[threadIdx.x / kOfRow + i * kRowsApart]);
    next_term();
  }

  /// The term after `term`, which a tile may end with; without one, left is zero.
  __device__ __forceinline__ void next_term() {
    while (term == last && place < end) {
      const int* tile = tiles[a.tile[place++]];
      columns = tile[1];
      term = tile[2];
      last = tile[3];
    }
    if (term == last) return;
    const int* m = terms[term++];
    left = m[1];
    stride = kWeightByRow ? m[4] : m[3];
    next_x = x + m[0];
    next_weight =
        weight + m[2] + (kWeightByRow ? k_of_weight() + column() * stride : k_of_weight() * stride + column());
  }

  __device__ __forceinline__ void begin(real* xs, real* ws) {
    if (left > 0) {
      // Eights that a term does not reach are not read; of the last one it may have half.
      const int used = kTail ? (left + 7) / 8 * 8 : left;
      if (k_of_x() < left) {
#pragma unroll
        for (int i = 0; i < kOfX; ++i) {
          copy_x_later(xs + turned(threadIdx.x / kOfRow, k_of_x()) + i * kRowsApart * kDepth,
                       next_x + static_cast<int64>(rows[i]) * kInRow);
        }
      } else if (kTail && k_of_x() < used) {
#pragma unroll
        for (int i = 0; i < kOfX; ++i) clear(xs + turned(threadIdx.x / kOfRow, k_of_x()) + i * kRowsApart * kDepth);
      }
#pragma unroll
      for (int i = 0; i < kOfWeight; ++i) {
        const int k = k_of_weight() + (kWeightByRow ? 0 : i * kApart), c = column() + (kWeightByRow ? i * kApart : 0);
        real* to = ws + place_of_weight(k_of_weight(), column()) + i * kApart * (kWeightByRow ? kDepth : kWeightRow);
        if (k < left) {
          if (c < columns) copy_weight_later(to, next_weight + i * kApart * stride);
        } else if (kTail && k < used) {
          clear(to);
        }
      }
      left -= kDepth;
      next_x += kDepth;
      next_weight += kWeightByRow ? kDepth : kDepth * stride;
      if (left <= 0) {
        left = 0;
        next_term();
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
};

/// Grid: (groups of kRows rows, parts of a.first). Shared memory: kStages * (kNumbersX + kNumbersW) numbers.
extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks) node_linear(NodeLinearWalk a) {
  extern __shared__ Pack<4> memory[];
  __shared__ int from[kRows], to[kRows];  // rows read and rows written, -1: none
  const int type = type_of_rows(a.map);
  if (type < 0) return;
  const int limit = end_of_rows(a.map);
  find_rows(a.map, type, limit, from, to);

  real* xs = reinterpret_cast<real*>(memory);
  real* ws = xs + kStages * kNumbersX;
  const real* own = static_cast<const real*>(a.map.weight) + type * static_cast<int64>(kWeights);
  // A group without a row to compute is zero.
  const bool computed = type < a.map.type_count && (a.map.order || static_cast<int>(blockIdx.x) * kRows < limit);
  Copies copies(a, own, from);
  if (computed) {
#pragma unroll 1
    for (int stage = 0; stage < kStages - 1; ++stage) copies.begin(xs + stage * kNumbersX, ws + stage * kNumbersW);
  }

  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  int stage = 0;
  const int end = a.first[blockIdx.y + 1];
#pragma unroll 1
  for (int place = a.first[blockIdx.y]; place < end; ++place) {
    const int* tile = tiles[a.tile[place]];
    const int columns = tile[1], last = computed ? tile[3] : tile[2];
    const bool narrow = columns <= kWarpColumns;
    const int first_row = narrow ? warp * (kWarpRows / 2) : warp / 2 * kWarpRows;
    const int first_column = narrow ? 0 : warp % 2 * kWarpColumns;
    real sum[kBands][kFragments][4];
#pragma unroll
    for (int m = 0; m < kBands; ++m) {
#pragma unroll
      for (int n = 0; n < kFragments; ++n) sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
    }

#pragma unroll 1
    for (int term = tile[2]; term < last; ++term) {
#pragma unroll 1
      for (int left = terms[term][1]; left > 0; left -= kDepth) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
        __syncthreads();
        // All have left the step before, whose place the next copies take.
        const int free = stage == 0 ? kStages - 1 : stage - 1;
        copies.begin(xs + free * kNumbersX, ws + free * kNumbersW);
        const int eights = (min(left, kDepth) + 7) / 8;
        const real *own_x = xs + stage * kNumbersX, *own_w = ws + stage * kNumbersW;
        if (narrow) {
          add_products<kBands / 2>(own_x, own_w, eights, first_row, 0, sum);
        } else {
          add_products<kBands>(own_x, own_w, eights, first_row, first_column, sum);
        }
        stage = stage == kStages - 1 ? 0 : stage + 1;
      }
    }

    Pack<4>* out = static_cast<Pack<4>*>(a.map.out) + (tile[0] + first_column) / 4 + t;
#pragma unroll
    for (int m = 0; m < kBands; ++m) {
      if (narrow && m >= kBands / 2) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = to[first_row + m * 16 + half * 8 + g];
        if (row < 0) continue;
#pragma unroll
        for (int n = 0; n < kFragments; n += 2) {
          Pack<4> values;
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            const real s = sum[m][n + v % 2][half * 2 + v / 2];
            values.v[v] = row < limit ? fma(s, kCutOff, s) : 0;
          }
          if (first_column + n * 8 + 4 * t < columns) out[static_cast<int64>(row) * (kOutRow / 4) + n * 2] = values;
        }
      }
    }
  }
}
