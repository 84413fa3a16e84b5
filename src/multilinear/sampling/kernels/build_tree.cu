// Gram matrices of the nodes of a tree (row_sampler.h). For up to 32 columns a warp goes through the leaves of a
// subtree in order with the matrix in registers; where a right child ends, the sum with its left sibling, which the
// same lanes stored before, goes on as the parent's. So every matrix is written once, and nothing waits. For more
// columns see gram_of_subtree.cuh.
#include "cuda/kernels/warp.cuh"
#include "multilinear/sampling/kernels/gram_of_subtree.cuh"
#include "multilinear/sampling/kernels/sampling.h"

using namespace clebsch::sampling;

/// Nodes of a level.
__device__ __forceinline__ long long nodes_of(const TreeShape& shape, int level) {
  const long long width = 1ll << (shape.depth - level);
  return (shape.leaves + width - 1) / width;
}

constexpr int kTiles = kGramBlock / 8;

/// Calls use(sum, place, on the diagonal) for the numbers of this lane that are stored.
template <typename Use>
__device__ __forceinline__ void over_sums(double (&sums)[kTiles][kTiles][2], int columns, const Use& use) {
  const int lane = threadIdx.x % 32, g = lane / 4, k = lane % 4;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = 8 * i + g, column = 8 * j + 2 * k + r;
        if (column <= row && row < columns) use(sums[i][j][r], packed_row(row) + column, row == column);
      }
    }
  }
}

/// Lower triangles of tiles of 8 x 8. With a variant for no scale in the same kernel the compiler reads a sibling's
/// sums in parts that wait for each other, which costs a fifth more time than products with a scale that is not there.
__device__ __forceinline__ void gram_of_narrow_subtree(const GramArguments& a, long long subtree) {
  const int lane = threadIdx.x % 32, g = lane / 4, k = lane % 4, columns = a.shape.columns;
  const long long packed = packed_size(columns), width = 1ll << (a.shape.depth - a.base);
  const long long first = subtree * width, last = min(first + width, a.shape.leaves);
  for (long long leaf = first; leaf < last; ++leaf) {
    double sums[kTiles][kTiles][2] = {};
    const long long begin = leaf * a.shape.leaf_rows, end = min(begin + a.shape.leaf_rows, a.shape.rows);
#pragma unroll(4)
    for (long long row = begin; row < end; row += 4) {
      double left[kTiles];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const int i = 8 * t + g;
        left[t] = row + k < end && i < columns ? __ldg(a.u + (row + k) * columns + i) : 0.0;
        if (a.scale && i < columns) left[t] *= __ldg(a.scale + i);
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int j = 0; j <= i; ++j) multiply_tile(sums[i][j], left[i], left[j]);
      }
    }
    over_sums(sums, columns, [](double& sum, long long, bool diagonal) { sum *= diagonal ? 1.0 : 2.0; });
    long long node = leaf;
    int level = a.shape.depth;
    for (; level > a.base; --level, node /= 2) {
      if (node / 2 >= a.shape.pairs[level]) continue;  // an only child's matrix is its parent's
      double* stored = a.nodes + (a.shape.offset[level] + node / 2) * packed;
      if (node % 2 == 0) {
        over_sums(sums, columns, [&](double& sum, long long at, bool) { stored[at] = sum; });
        break;
      }
      over_sums(sums, columns, [&](double& sum, long long at, bool) { sum = stored[at] + sum; });
    }
    if (level == a.base) {
      double* stored = a.carry + node * packed;
      over_sums(sums, columns, [&](double& sum, long long at, bool) { stored[at] = sum; });
    }
  }
}

/// Up to 32 columns. Grid: (ceil(subtrees / kSamplingWarps)), a warp each.
extern "C" __global__ void __launch_bounds__(kSamplingThreads, 2) gram_of_32_columns(GramArguments a) {
  const long long warp = static_cast<long long>(blockIdx.x) * kSamplingWarps + threadIdx.x / 32;
  if (warp < nodes_of(a.shape, a.base)) gram_of_narrow_subtree(a, warp);
}

/// Up to 64, 96 and 128 columns. Grid: (subtrees), 32 gram_warps(2, 3, 4) threads.
extern "C" __global__ void __launch_bounds__(GramBlock<2>::kThreads, GramBlock<2>::kMinBlocks)
    gram_of_64_columns(GramArguments a) {
  gram_of_any_subtree<2>(a, blockIdx.x, 0, -1);
}
extern "C" __global__ void __launch_bounds__(GramBlock<3>::kThreads, GramBlock<3>::kMinBlocks)
    gram_of_96_columns(GramArguments a) {
  gram_of_any_subtree<3>(a, blockIdx.x, 0, -1);
}
extern "C" __global__ void __launch_bounds__(GramBlock<4>::kThreads, GramBlock<4>::kMinBlocks)
    gram_of_128_columns(GramArguments a) {
  gram_of_any_subtree<4>(a, blockIdx.x, 0, -1);
}

/// More. Grid: (subtrees * gram_parts(columns)), 32 gram_warps(6) threads; the parts of a subtree follow each other.
extern "C" __global__ void __launch_bounds__(GramBlock<6>::kThreads, GramBlock<6>::kMinBlocks)
    gram_of_more_columns(GramArguments a) {
  const int columns = a.shape.columns, parts = gram_parts(columns);
  int first = 0, part = static_cast<int>(blockIdx.x % parts);
  for (int these; part >= (these = gram_parts(columns - first) - gram_parts(columns - first - kGramColumns));
       part -= these) {
    first += kGramColumns;
  }
  gram_of_any_subtree<6>(a, blockIdx.x / parts, first,
                         part == 0 ? -1 : first + kGramColumns + kGramOthers * (part - 1));
}

/// The levels above: a thread a number of a matrix. Grid: (nodes of `base`, ceil(packed / kSamplingThreads)).
extern "C" __global__ void __launch_bounds__(kSamplingThreads) sum_nodes(NodeSumArguments a) {
  const long long packed = packed_size(a.shape.columns), at = blockIdx.y * kSamplingThreads + threadIdx.x;
  if (at >= packed) return;
  const long long width = 1ll << (a.level - a.base), first = blockIdx.x * width;
  const long long last = min(first + width, nodes_of(a.shape, a.level));
  for (long long one = first; one < last; ++one) {
    double sum = a.from[one * packed + at];
    long long node = one;
    int level = a.level;
    for (; level > a.base; --level, node /= 2) {
      if (node / 2 >= a.shape.pairs[level]) continue;
      double* stored = a.nodes + (a.shape.offset[level] + node / 2) * packed + at;
      if (node % 2 == 0) {
        *stored = sum;
        break;
      }
      sum = *stored + sum;
    }
    if (level == a.base) a.to[node * packed + at] = sum;
  }
}

/// The tree over components, times a Gram matrix entry by entry: a thread a number, from the rows themselves. Grid:
/// (leaves, ceil(packed / kSamplingThreads)); the last of x is the root.
extern "C" __global__ void __launch_bounds__(kSamplingThreads) component_tree(ComponentArguments a) {
  const int columns = a.shape.columns;
  const long long packed = packed_size(columns), at = blockIdx.y * kSamplingThreads + threadIdx.x;
  const long long stored = blockIdx.x;
  if (at >= packed) return;
  int i = static_cast<int>((sqrt(8.0 * static_cast<double>(at) + 1.0) - 1.0) * 0.5);
  while (packed_row(i) > at) --i;
  while (packed_row(i + 1) <= at) ++i;
  const int j = static_cast<int>(at - packed_row(i));
  long long first = 0, last = a.shape.rows;
  if (stored < a.shape.leaves - 1) {
    int level = a.shape.depth;
    while (stored < a.shape.offset[level]) --level;
    const long long width = 1ll << (a.shape.depth - level);
    first = 2 * (stored - a.shape.offset[level]) * width;
    last = min(first + width, a.shape.rows);
  }
  double sum = 0;
  for (long long row = first; row < last; ++row) {
    sum += __ldg(a.components + row * columns + i) * __ldg(a.components + row * columns + j);
  }
  sum *= (i == j ? 1.0 : 2.0) * a.gram[static_cast<long long>(i) * columns + j];
  (stored < a.shape.leaves - 1 ? a.nodes + stored * packed : a.root)[at] = sum;
}

/// Largest magnitudes of columns, and whether all numbers are finite. Any grid of kSamplingThreads.
extern "C" __global__ void __launch_bounds__(kSamplingThreads) column_range(ColumnArguments a) {
  const long long all = a.rows * a.columns, threads = static_cast<long long>(gridDim.x) * kSamplingThreads;
  for (long long at = static_cast<long long>(blockIdx.x) * kSamplingThreads + threadIdx.x; at < all; at += threads) {
    const double value = fabs(a.u[at]);
    if (!(value <= 1.7976931348623157e308)) {
      atomicMin(a.bad, static_cast<unsigned long long>(at));
    } else {
      // The bits of doubles that are not negative are in their order; those of most numbers change nothing.
      const unsigned long long bits = ~static_cast<unsigned long long>(__double_as_longlong(value));
      if (bits < a.largest[at % a.columns]) atomicMin(a.largest + at % a.columns, bits);
    }
  }
}

/// One entry of u, and what it changes on the way to the root (section 3.6.5 of the dissertation). One block.
extern "C" __global__ void __launch_bounds__(kSamplingThreads) set_entry(EntryArguments a) {
  const int columns = a.shape.columns;
  const long long packed = packed_size(columns);
  double* row = a.u + a.row * columns;
  const double old = row[a.column], scale = a.scale ? a.scale[a.column] : 1.0;
  for (int c = threadIdx.x; c < columns; c += kSamplingThreads) {
    const double other = row[c] * (a.scale ? a.scale[c] : 1.0);
    const double change =
        c == a.column ? (a.value - old) * (a.value + old) * scale * scale : 2.0 * (a.value - old) * scale * other;
    const long long at = c <= a.column ? packed_row(a.column) + c : packed_row(c) + a.column;
    long long node = a.row / a.shape.leaf_rows;
    for (int level = a.shape.depth; level > 0; --level, node /= 2) {
      if (node % 2 != 0 || node / 2 >= a.shape.pairs[level]) continue;
      a.nodes[(a.shape.offset[level] + node / 2) * packed + at] += change;
    }
    a.root[at] += change;
  }
  __syncthreads();
  if (threadIdx.x == 0) row[a.column] = a.value;
}
