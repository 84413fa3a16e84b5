#pragma once
// The source of node_linear_kept.cuh: dense maps of many nodes on warpgroups' tensor cores (compute capability 9.0),
// where a block keeps a column tile's weights and rows pass by.
#include <cstdint>
#include <string>
#include <vector>

#include "core/problem/node_problem.h"

namespace clebsch::cuda {

constexpr int kKeptThreads = 384;

/// Up to 64 output channels of all components of one block of `out`.
struct KeptTile {
  struct Term {
    int64_t in, depth, weight;  ///< offset in x's row, input channels, offset of the weight of (channel 0, column 0)
    int64_t in_stride, out_stride;  ///< of the weight, by input channel and by column
    int step;                       ///< steps of 32 input channels of the tile before
  };
  int64_t block, out;       ///< offsets in out's row of component 0: of the block, of the tile
  int64_t columns, stride;  ///< columns, distance of components
  int width, components;    ///< columns of products: a multiple of 16
  int steps;                ///< of all terms
  std::vector<Term> terms;
  /// Bytes of its weights in shared memory.
  int64_t image() const { return int64_t{256} * width * steps; }
};

/// Of the map, or the transposed one; empty where a block has no room for a tile's weights,
/// or tiles are too many for a block each.
std::vector<KeptTile> kept_tiles(const LinearProblem& problem, bool transposed, int dynamic_shared_per_block);
/// Whether it is faster to keep weights than to walk (docs/notebook/node_maps.md): every tile sums at least 128 input
/// channels. With fewer a warpgroup's work of a tile is too short for the rows that it waits for in between. With tiles
/// of more than two widths the kernel would spill registers.
bool kept_pays(const std::vector<KeptTile>& tiles);
/// Bytes of the kernel's dynamic shared memory.
int kept_shared(const std::vector<KeptTile>& tiles);
/// What each block does, of tiles for so many halves of 64 places on a device of so many multiprocessors: a block
/// each, of about equal time. Tiles that read the same rows have as many blocks each, and these the same rows: what one
/// has read the second cache still has for the others. Empty: there are more tiles than blocks.
struct KeptPart {
  int tile, part, parts;
};
std::vector<KeptPart> kept_parts(const std::vector<KeptTile>& tiles, int64_t halves, int multiprocessors);
/// The kernel `node_linear`, which takes NodeLinearKept.
std::string node_linear_kept_source(const LinearProblem& problem, bool transposed, const std::vector<KeptTile>& tiles);

}  // namespace clebsch::cuda
