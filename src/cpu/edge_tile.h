#pragma once
// The edges of a few consecutive nodes, prepared for the kernels: geometry, table position, harmonics.
#include <cstdint>
#include <vector>

#include "core/graph.h"
#include "cpu/buffer.h"
#include "cpu/interaction.h"
#include "cpu/kernels.h"

namespace clebsch::cpu {

/// Whose edges a tile holds: those that end at its nodes (forward, edge gradients) or those that leave them (grad_x).
enum class Side { receiver, sender };

/// What decides the size of a tile's arrays.
struct TileSizes {
  int width = 1;           ///< lanes of a vector
  int components = 1;      ///< harmonics of an edge
  int64_t weight_row = 0;  ///< values of W an edge in Scratch::weights
  int64_t max_channels = 0;
  int32_t max_pairs = 0;
};

/// The edges of consecutive nodes [node, node + nodes).
template <typename T>
struct EdgeTile {
  int32_t node = 0, nodes = 0, edges = 0, components = 0, groups = 0;
  Buffer<int32_t> first, edge;           ///< edge: id in the graph
  Buffer<int64_t> far_row, weight_rows;  ///< offsets of the far node's features and of the row of W
  Buffer<T> harmonics, grad_harmonics, slope;
  Buffer<double> unit, inverse, dt_dr;  ///< per edge: direction (3), 1/r, dt/dr
  Buffer<double> density_slope;         ///< per edge: dE/dr by way of the receiver's density
  bool has_density = false;             ///< whether density_slope is filled
  Buffer<int32_t> group_first;          ///< groups of edges that share a table row (see ExpandArgs)
  Buffer<int64_t> group_row;            ///< offset of a group's table row
  Buffer<T> t;                          ///< position inside the table piece, group after group

  /// Room for so many nodes and edges.
  void reserve(int64_t max_nodes, int64_t max_edges, const TileSizes& sizes);
  TileView<T> view() const { return {node, nodes, first.data(), far_row.data(), harmonics.data(), components}; }
};

/// Scratch of one thread.
template <typename T>
struct Scratch {
  Buffer<T> weights;                            ///< W of a slice of a path's channels, made from the table
  Buffer<T> matrix, b_scratch, reduce_scratch;  ///< see CoupleArgs, EdgeArgs
  Buffer<int64_t> table_row;                    ///< per edge, number of the table row
  Buffer<T> t;                                  ///< per edge
  Buffer<uint64_t> sort_keys;
  Buffer<int32_t> bins, order;
  void reserve(int64_t max_edges, const TileSizes& sizes);
};

/// What fill_tile needs of a call to interaction.
template <typename T>
struct TileSource {
  const GraphView& graph;
  const RadialTableView<T>& radial;
  int32_t rows;
  int lmax;
  int width;
  Side side;
  int64_t far_stride;                       ///< length of a row of the gathered features
  int64_t weight_stride;                    ///< length of a row of Scratch::weights
  const DensityView<T>* density = nullptr;  ///< Side::receiver: sums, or with `grad` slopes, made on the way
};

/// Fills a tile with the edges of nodes [begin, end) that lie within their cutoff and end at a row < source.rows.
/// Returns the (centre type, neighbour type) index of an edge without a table, or -1 when all is well.
template <typename T>
int64_t fill_tile(const TileSource<T>& source, int32_t begin, int32_t end, EdgeTile<T>& tile, Scratch<T>& scratch);

/// dE/d edge_vec of the tile's edges from grad_harmonics, slope and density_slope; writes their rows of grad_edge_vec.
template <typename T>
void edge_vector_gradient(const EdgeTile<T>& tile, int lmax, int width, double* grad_edge_vec);

}  // namespace clebsch::cpu
