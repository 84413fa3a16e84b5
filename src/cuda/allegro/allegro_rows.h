#pragma once
// The matrix products of an Allegro network in fp32 on tensor cores by blocks that keep a call's weight in shared
// memory (kernels/allegro_rows.cuh): source, and how a call is launched.
#include <optional>
#include <string>

#include "cuda/allegro/allegro_source.h"
#include "cuda/plan/device_limits.h"

namespace clebsch::cuda {

/// How a warp works.
struct RowsTiling {
  int depth = 32;     ///< columns of a slab of x, 16 or 32
  bool split = true;  ///< the weight is kept as big and small numbers of tf32

  int stages() const { return depth == 32 ? 2 : 3; }  ///< slabs that a warp has room for
};
/// What was asked for instead, for tuning.
struct RowsChoice {
  std::optional<int> depth, split;
};

constexpr int kRowsMostWarps = 16;  ///< of a block, with 128 registers a thread

/// The first way of those for much shared memory and for little with which all calls have blocks of most warps.
RowsTiling rows_tiling(const AllegroDense& dense, const RowsChoice& choice, const DeviceLimits& limits);

/// Launch of a call.
struct RowsLaunch {
  int warps = 0;            ///< a block
  int part = 0, parts = 0;  ///< columns of a block, of the last one fewer; grid y
  int64_t blocks = 0;       ///< grid x
  unsigned shared = 0;      ///< bytes a block
};

/// For `capacity` rows; few: blocks of fewer warps and few columns, so that few rows fill a device too. Nothing where
/// no block's shared memory holds the weights of 64 columns.
std::optional<RowsLaunch> rows_launch(const DenseCall& call, int pack, int64_t capacity, bool few,
                                      const RowsTiling& tiling, const DeviceLimits& limits);
/// Whether so many rows are few: fewer than eight warps' tiles a multiprocessor.
bool few_rows(int64_t capacity, const DeviceLimits& limits);
/// Whether rows_launch has a launch for every call.
bool rows_fit(const AllegroDense& dense, const RowsTiling& tiling, const DeviceLimits& limits);

/// Bytes of shared memory that the launch of a call for many rows asks for at most; 0: no call has one.
int rows_shared(const AllegroProblem& problem, const RowsTiling& tiling, const DeviceLimits& limits);

/// The kernel of AllegroRowsArguments, for every call. Every sum runs over its inputs in an order of its own, always
/// the same.
std::string allegro_rows_source(const AllegroProblem& problem, const RowsTiling& tiling);

/// Numbers that one access of global memory moves: as many as divide every width and place.
int dense_pack(const AllegroDense& dense, Scalar scalar);
/// Writes Segment, segments, Call and calls: the tables of the matrix products.
void write_dense_tables(SourceWriter& w, const AllegroDense& dense);

}  // namespace clebsch::cuda
