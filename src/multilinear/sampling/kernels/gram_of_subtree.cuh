#pragma once
// Gram matrices of more than 32 columns. A block goes through the leaves of a subtree in order: rows come into shared
// memory once, some chunks ahead, and a warp multiplies 32 columns of them with 32 columns.
//
// A leaf's sums stay in registers. Those of a left leaf are stored and go on as the parent's, to which the right leaf's
// rows are added; where a larger right child ends, its left sibling's matrix, which the same block stored before, is
// added. So every matrix is written once, half of them are read once more, and no block waits for another.
#include "cuda/kernels/matrix_product.cuh"
#include "multilinear/sampling/kernels/async_copy.cuh"
#include "multilinear/sampling/kernels/sampling.h"

/// The block of the kernel that stages kGroups times 32 columns. Up to four groups are all columns of u, and a warp has
/// a pair of them; six are for more columns: four groups by themselves, or their pairs with two others.
template <int kGroups>
struct GramBlock {
  static constexpr int kWarps = clebsch::sampling::gram_warps(kGroups), kThreads = 32 * kWarps;
  static constexpr int kMinBlocks = kGroups == 2 ? 5 : kGroups == 3 ? 3 : 2;
  static constexpr int kColumns = 32 * kGroups, kRows = 8, kStages = kGroups > 4 ? 3 : 4;
  /// 4 modulo 16: what half a warp reads at once, 4 rows by 4 columns, then lies in different banks.
  static constexpr int kStride = kColumns + 4;
  /// Rows that the threads copy at once, by pairs of numbers.
  static constexpr int kTogether = 2 * kThreads / kColumns >= 4 ? 4 : 2;
};

/// Groups of 32 staged columns that are a warp's rows and columns of the matrix, and where those are; rows -1: none.
struct GramPart {
  int rows, columns, row, column;
};

/// `first`: of the columns staged; those from place 128 on begin at `other`, -1: none.
template <int kGroups>
__device__ __forceinline__ GramPart gram_part(int warp, int first, int other, int columns) {
  GramPart part;
  if (kGroups > 4 && other >= 0) {
    part.rows = warp < 8 ? 4 + warp / 4 : -1;
    part.columns = warp % 4;
    part.row = other + 32 * (part.rows - 4);
  } else {
    // Pairs of groups; warps 4, 5, 8 and 9 of ten have those on the diagonal, which are less work: a fourth of the
    // multiprocessor has every fourth warp.
    const unsigned long long rows = kGroups == 2 ? 0x101ull : kGroups == 3 ? 0x210221ull : 0x3233102321ull;
    const unsigned long long others = kGroups == 2 ? 0x100ull : kGroups == 3 ? 0x210100ull : 0x3221101000ull;
    part.rows = static_cast<int>(rows >> 4 * warp & 15);
    part.columns = static_cast<int>(others >> 4 * warp & 15);
    part.row = first + 32 * part.rows;
  }
  part.column = first + 32 * part.columns;
  if (kGroups > 4 && part.row >= columns) part.rows = -1;
  return part;
}

/// sums[4 i + j] += (columns 16 i.. of part.columns)' (columns 8 j.. of part.rows) for the rows of a chunk; a lane has
/// what multiply_large_tile says, so that of the matrix it has rows 8 j + 2 k and the next, columns 16 i + g and + 8.
template <int kGroups>
__device__ __forceinline__ void multiply_chunk(double (&sums)[8][4], const GramPart& part, const double* chunk) {
  constexpr int kStride = GramBlock<kGroups>::kStride;
  const int lane = threadIdx.x % 32, g = lane / 4, k = lane % 4;
  const double *left = chunk + k * kStride + 32 * part.columns + g, *right = chunk + k * kStride + 32 * part.rows + g;
  double a[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) a[i][r] = left[16 * i + 8 * (r % 2) + 4 * kStride * (r / 2)];
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const double b[2] = {right[8 * j], right[8 * j + 4 * kStride]};
    multiply_large_tile(sums[j], a[0], b);
    if (j >= 2 || part.rows != part.columns) multiply_large_tile(sums[4 + j], a[1], b);  // else above the diagonal
  }
}

/// Where sums[t][r] of multiply_chunk is stored, -1: nowhere; and what it is multiplied with.
__device__ __forceinline__ int place_of_sum(const GramPart& part, int lane, int t, int r, int columns, double* factor) {
  const int row = part.row + 8 * (t % 4) + 2 * (lane % 4) + r % 2;
  const int column = part.column + 16 * (t / 4) + lane / 4 + 8 * (r / 2);
  *factor = row == column ? 1.0 : 2.0;
  return column <= row && row < columns ? row * (row + 1) / 2 + column : -1;
}

__device__ __forceinline__ void store_sums(const double (&sums)[8][4], const GramPart& part, int columns, double* to) {
  if (part.rows < 0) return;
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));  // or places would be kept over the products
#pragma unroll
  for (int t = 0; t < 8; ++t) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      double factor;
      const int at = place_of_sum(part, lane, t, r, columns, &factor);
      if (at >= 0) to[at] = factor * sums[t][r];
    }
  }
}

__device__ __forceinline__ void add_stored(double (&sums)[8][4], const GramPart& part, int columns,
                                           const double* from) {
  if (part.rows < 0) return;
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    double stored[4], factor[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int at = place_of_sum(part, lane, t, r, columns, &factor[r]);
      stored[r] = at >= 0 ? __ldcg(from + at) : 0.0;
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[t][r] += factor[r] == 1.0 ? stored[r] : 0.5 * stored[r];
  }
}

/// The matrices of a subtree's leaves and inner nodes, as far as a block has them: of the columns that begin at
/// `columns_from`, and where `other` is not -1, of their products with those that begin there. kUnit: numbers that are
/// copied at once; 2 is for rows at multiples of 16 bytes that are not scaled.
template <int kGroups, int kUnit>
__device__ __forceinline__ void gram_of_wide_subtree(const clebsch::sampling::GramArguments& a, long long subtree,
                                                     int columns_from, int other, double* chunks) {
  using Block = GramBlock<kGroups>;
  constexpr int kRows = Block::kRows, kStages = Block::kStages, kStride = Block::kStride, kChunk = kRows * kStride;
  constexpr int kAcross = Block::kColumns / kUnit, kTogether = Block::kTogether * kUnit / 2;
  const int columns = a.shape.columns, thread = static_cast<int>(threadIdx.x);
  const GramPart part = gram_part<kGroups>(thread / 32, columns_from, other, columns);
  const long long width = 1ll << (a.shape.depth - a.base), first = subtree * width;
  const long long last = min(first + width, a.shape.leaves), begin = first * a.shape.leaf_rows;
  const int leaf_rows = static_cast<int>(a.shape.leaf_rows);
  const int all = static_cast<int>(min(last * a.shape.leaf_rows, a.shape.rows) - begin);

  // What is copied next, and this thread's place in it.
  const double* from = a.u + begin * columns;
  int rest = all, rest_of_leaf = min(leaf_rows, all), filled = 0, multiplied = 0;
  const int row = thread / kAcross, staged = kUnit * (thread % kAcross);
  const int column = staged < 128 ? columns_from + staged : other + staged - 128;
  const bool copies = thread < kAcross * kTogether;
  const int most = copies && column < columns && (staged < 128 || other >= 0) ? kRows : 0;
  const int place = row * columns + column;
  const auto copy_chunk = [&]() {
    if (rest > 0) {
      const int rows = min(kRows, rest_of_leaf), there = min(rows, most);
      if (copies) {
        double* to = chunks + filled * kChunk + row * kStride + staged;
#pragma unroll
        for (int r = 0; r < kRows; r += kTogether) {
          copy_or_clear<8 * kUnit>(to + r * kStride, from + place + r * columns, row + r < there ? 8 * kUnit : 0);
        }
      }
      from += rows * columns;
      rest -= rows;
      rest_of_leaf -= rows;
      if (rest_of_leaf == 0) rest_of_leaf = min(leaf_rows, rest);
      filled = filled + 1 == kStages ? 0 : filled + 1;
    }
    end_copies();
  };
  const auto scale_chunk = [&]() {  // what this thread copied; beyond the last row there are zeros
    const double scale = most > 0 ? __ldg(a.scale + column) : 0.0;
    for (int r = row; r < most; r += kTogether) chunks[multiplied * kChunk + r * kStride + staged] *= scale;
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) copy_chunk();

  double sums[8][4] = {};
  int left_rows = all;
  for (long long leaf = first; leaf < last; ++leaf) {
    const int rows = min(leaf_rows, left_rows);
    left_rows -= rows;
    for (int r = 0; r < rows; r += kRows) {
      await_copies<kStages - 2>();
      if (kUnit == 1 && a.scale) scale_chunk();
      __syncthreads();  // all copies are here, and all warps are done with the chunk whose place the next one takes
      copy_chunk();
      if (kGroups <= 4 || part.rows >= 0) multiply_chunk<kGroups>(sums, part, chunks + multiplied * kChunk);
      multiplied = multiplied + 1 == kStages ? 0 : multiplied + 1;
    }
    const long long packed = clebsch::sampling::packed_size(columns);
    long long node = leaf;
    int level = a.shape.depth;
    bool goes_on = false;
    for (; level > a.base; --level, node /= 2) {
      if (node / 2 >= a.shape.pairs[level]) continue;  // an only child's matrix is its parent's
      double* stored = a.nodes + (a.shape.offset[level] + node / 2) * packed;
      if (node % 2 == 0) {
        store_sums(sums, part, columns, stored);
        goes_on = level == a.shape.depth;
        break;
      }
      if (level == a.shape.depth) continue;
      add_stored(sums, part, columns, stored);
    }
    if (level == a.base) store_sums(sums, part, columns, a.carry + node * packed);
    if (goes_on) continue;
#pragma unroll
    for (int t = 0; t < 8; ++t) {
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[t][r] = 0.0;
    }
  }
}

template <int kGroups>
__device__ __forceinline__ void gram_of_any_subtree(const clebsch::sampling::GramArguments& a, long long subtree,
                                                    int columns_from, int other) {
  using Block = GramBlock<kGroups>;
  __shared__ __align__(16) double chunks[Block::kStages * Block::kRows * Block::kStride];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  constexpr bool kPairs = false;  // nothing is copied while a thread computes, and one variant takes half the time
#else
  constexpr bool kPairs = true;
#endif
  if (kPairs && a.pairs) {
    gram_of_wide_subtree<kGroups, 2>(a, subtree, columns_from, other, chunks);
  } else {
    gram_of_wide_subtree<kGroups, 1>(a, subtree, columns_from, other, chunks);
  }
}
