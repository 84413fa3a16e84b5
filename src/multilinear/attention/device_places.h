#pragma once
// Where the launchers of spherical attention keep what lies between its kernels, and how many blocks these have.
#include <numeric>

#include "multilinear/attention/device_kernels.h"

namespace clebsch::attention {

/// How exact_quads.cu or exact_rows.cu are launched for `rows` rows of each of `heads` heads; flagged: where most heads
/// have nothing to do.
struct ExactGrid {
  int64_t parts = 1;
  int threads = 128;

  ExactGrid(const Kernels& kernels, const KernelShape& shape, const Shape& sizes, int64_t heads, int64_t rows,
            bool flagged) {
    if (kernels.quads) {
      const int64_t average = sizes.offsets ? (rows + sizes.sequences - 1) / std::max(1, sizes.sequences) : rows;
      parts = quad_parts(heads, average);
      threads = QuadMemory(shape.d, shape.dv).threads;
      return;
    }
    parts = parts_for(sizes, rows, exact_rows(shape));
    if (flagged) parts = std::min(parts, parts_where_flagged(heads));
  }
};

/// A result with rows of `columns` numbers.
inline Room room_of(const KernelShape& shape, void* data, int64_t rows, int columns) {
  constexpr size_t kBytes[] = {8, 4, 2, 2};
  return {data, static_cast<size_t>(rows * columns) * kBytes[shape.number]};
}

inline int64_t key_rows(const Shape& shape) {
  return (shape.offsets ? 1 : shape.sequences) * shape.key_heads * shape.keys;
}

/// Chunks of a key head's rows for kernels of 16-bit numbers: `wanted` for each of `heads` heads. Blocks of a cluster
/// add their sums, and where a head has no other cluster all is done then: where `clustered`, which pays for few heads
/// and for large ones.
struct HalfChunks {
  int cluster = 1, partials = 1;  ///< blocks of a cluster, and what they leave for half_add
  int unit = 1;                   ///< partials are a multiple of it: heads have as many chunks each

  HalfChunks(const Kernels& kernels, int wanted, int heads, bool clustered) {
    if (kernels.wide && clustered) {
      if (wanted >= 4) wanted -= wanted % 4;
      const int all = wanted * heads;
      cluster = all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
    }
    partials = wanted * heads / cluster;
    unit = heads / std::gcd(heads, cluster);
  }
};

/// Where the forward pass of many heads by warpgroups keeps what lies between its kernels: at the head's own outputs,
/// of which the last are written when the blocks of the head have read it (last_runs.cuh); in memory of its own
/// otherwise, which is little for few heads.
struct InOutputs {
  static constexpr int kMostBlocks = 8;  ///< of a head: flagged heads have four each, too few where heads are few
  bool fragments = false, sums = false;
  int chunks = 1;      ///< of keys, for whose partial sums there is room
  size_t of_head = 0;  ///< bytes of a head's outputs

  InOutputs(const Kernels& kernels, const KernelShape& shape, const Shape& sizes, int64_t heads, bool fills) {
    const auto one = static_cast<size_t>(sums_of(shape)) * 4;
    of_head = static_cast<size_t>(sizes.queries * shape.dv) * 2;
    fragments = kernels.wide && !sizes.offsets && sizes.heads == sizes.key_heads && heads > 1 &&
                chunks_for(heads, std::max(sizes.queries, sizes.keys), 128, fills ? 2 : 1) <= kMostBlocks &&
                of_head >= 2 * one;
    if (!fragments) return;
    chunks = static_cast<int>(std::min<size_t>(of_head / one - 1, 1 << 20));
    sums = QuadMemory(shape.d, shape.dv).rows_over_results();
  }
};

/// The same of gradients. Gradients of values hold sums in double precision, those of keys and later those of queries,
/// and terms of the keys' sums. Gradients of keys hold partial sums and, last of a head's, the terms that their own
/// blocks read.
struct InGradients {
  bool all = false;
  int chunks = 1;                 ///< of a head's rows, for whose partial sums there is room
  size_t of_head = 0, terms = 0;  ///< bytes of a head's gradients of keys, or of values; of its terms

  InGradients(const Kernels& kernels, const KernelShape& shape, const Shape& sizes) {
    const int64_t heads = heads_of_keys(sizes);
    const auto one = static_cast<size_t>(sums_of(shape)) * 4;
    of_head = static_cast<size_t>(sizes.keys * shape.d) * 2;
    terms = one + static_cast<size_t>(4 * shape.d * shape.dv);
    all = kernels.wide && !sizes.offsets && sizes.heads == sizes.key_heads && heads > 1 && shape.d == shape.dv &&
          QuadMemory(shape.d, shape.dv).keys_over_results() &&
          chunks_for(heads, std::max(sizes.queries, sizes.keys), 128, 1) <= InOutputs::kMostBlocks &&
          of_head >= 3 * one + terms + 4096;
    if (all) chunks = static_cast<int>(std::min<size_t>((of_head - terms) / one, 1 << 20));
  }
};

}  // namespace clebsch::attention
