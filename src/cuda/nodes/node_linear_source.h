#pragma once
// The source of the dense node maps: all blocks of linear or species_linear in one launch.
#include <cstdint>
#include <string>
#include <vector>

#include "core/problem/node_problem.h"
#include "cuda/emit/source_writer.h"
#include "cuda/nodes/node_linear_kept.h"

namespace clebsch::cuda {

/// Tile of one block: `rows` nodes by `columns` output channels of one component, `depth` input channels at a time;
/// a thread holds thread_rows x thread_columns sums.
struct LinearTiling {
  int rows, columns, depth, thread_rows, thread_columns;
  int stages = 0;  ///< on tensor cores: steps whose operands shared memory holds, 0: not on tensor cores
  int shares = 1;  ///< of few nodes: warps that share the depth, each with sums of its own for the whole tile
  /// On tensor cores, eights of input channels whose products are under way together: warps of narrow tiles are few, so
  /// what hides the latency of their products must come from themselves.
  int at_once = 1;
  bool walks = false;  ///< on tensor cores: a block computes several column tiles in turn
  int blocks = 0;      ///< that a multiprocessor is to hold; 0: as many as are usual
  int kept = 0;        ///< of node_linear_kept.cuh, which has kKeptThreads: bytes of dynamic shared memory
  int threads() const { return kept > 0 ? kKeptThreads : shares * (rows / thread_rows) * (columns / thread_columns); }
  /// Blocks that a multiprocessor is to hold.
  int min_blocks(Scalar scalar) const;
  /// Bytes of the kernel's dynamic shared memory.
  int dynamic_shared(bool transposed) const;
};

/// wide: most multiply-adds a byte of shared memory, for many nodes; narrow: most blocks; few: a block waits least,
/// where blocks are fewer than multiprocessors even so.
/// kept: for many nodes, too, of kernels/node_linear_kept.cuh.
enum class LinearSize { few, narrow, wide, kept };

/// tensor: on tensor cores, for fp32 alone and not for few nodes; as many rows as without.
LinearTiling linear_tiling(Scalar scalar, LinearSize size, bool tensor = false);
/// What wide tiles on tensor cores have instead, with as many rows, where linear_walks() and shared memory allow it.
LinearTiling linear_walk_tiling();
/// Whether blocks can walk through the map's column tiles: all multiplicities are multiples of four, tiles not too
/// many.
bool linear_walks(const LinearProblem& problem, bool transposed);
/// The column tiles of each part of a row group's work, by descending work of the parts, for `groups` groups on a
/// device that holds `slots` blocks at a time: as many parts as make rounds of blocks end full, of about equal work.
std::vector<std::vector<int>> linear_walk_parts(const LinearProblem& problem, bool transposed, int64_t groups,
                                                int64_t slots);
/// Column tiles of all blocks and components: the second dimension of the grid.
int linear_column_tiles(const LinearProblem& problem, bool transposed, const LinearTiling& tiling);

/// kernels/node_linear.cuh, with tiling.shares above 1 node_linear_few.cuh, with tiling.stages node_linear_tf32.cuh, or
/// with tiling.walks node_linear_walk.cuh, with its constants before it; the last two want x, the weights and out
/// aligned to 16 bytes and compute capability 8.0; the entry point node_linear takes NodeLinearArguments, the last
/// one's NodeLinearWalk, whose parts are the second dimension of its grid. out = x W, or x W^T when transposed (x then
/// has the columns of problem.out). Grid: (groups of tiling.rows nodes, linear_column_tiles). order and group_type as
/// group_rows makes them with rows = tiling.rows; null for one weight, the groups then being the nodes in turn. Rows
/// from *row_limit on (null: none), and rows of the group type type_count, are written as zero. Each sum has one order:
/// the same bits in every run.
std::string node_linear_source(const LinearProblem& problem, bool transposed, Scalar scalar,
                               const LinearTiling& tiling);

}  // namespace clebsch::cuda
