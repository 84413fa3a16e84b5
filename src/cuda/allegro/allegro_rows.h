#pragma once
// The matrix products of an Allegro network in fp32 on tensor cores by blocks that keep a call's weight in shared
// memory (kernels/allegro_rows.cuh): source, and how a call is launched.
#include <optional>
#include <string>

#include "cuda/allegro/allegro_source.h"
#include "cuda/plan/device_limits.h"

namespace clebsch::cuda {

/// How a warp works; for tuning.
struct RowsTiling {
  int bands = 2;   ///< 16 rows each, of a warp's tile
  int stages = 3;  ///< slabs of x that a warp has room for
  int warps = 0;   ///< a block; 0: as many as fit, fewer for few rows

  /// Threads of a block at most: what the registers of a multiprocessor are for.
  int most_threads() const { return 32 * (warps > 0 ? warps : bands == 2 ? 12 : 16); }
};

/// Launch of a call.
struct RowsLaunch {
  int warps = 0;            ///< a block
  int part = 0, parts = 0;  ///< columns of a block, of the last one fewer; grid y
  int64_t blocks = 0;       ///< grid x
  unsigned shared = 0;      ///< bytes a block
};

/// For `capacity` rows; few: blocks of few warps and few columns, so that few rows fill a device too. Nothing where no
/// block's shared memory holds the weights of 64 columns.
std::optional<RowsLaunch> rows_launch(const DenseCall& call, int pack, int64_t capacity, bool few,
                                      const RowsTiling& tiling, const DeviceLimits& limits);
/// Whether so many rows are few: fewer than eight warps' tiles a multiprocessor.
bool few_rows(int64_t capacity, const RowsTiling& tiling, const DeviceLimits& limits);
/// Whether rows_launch has a launch for every call.
bool rows_fit(const AllegroDense& dense, const RowsTiling& tiling, const DeviceLimits& limits);

/// Every sum runs over its inputs in an order of its own, always the same.
std::string allegro_rows_source(const AllegroProblem& problem, const RowsTiling& tiling);

/// Numbers that one access of global memory moves: as many as divide every width and place.
int dense_pack(const AllegroDense& dense, Scalar scalar);
/// Writes Segment, segments, Call and calls: the tables of the matrix products.
void write_dense_tables(SourceWriter& w, const AllegroDense& dense);

}  // namespace clebsch::cuda
