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

/// Splits nodes 0..count-1 into tiles of about `target` edges (a node is never split): tile k is
/// [starts[k], starts[k+1]). Returns the most edges of a tile. Results never depend on where tiles end.
int64_t split_nodes(const int32_t* ptr, int32_t count, int64_t target, std::vector<int32_t>& starts);

/// One thread's tile and the kernels' scratch.
template <typename T>
struct EdgeTile {
  int32_t node = 0, nodes = 0, edges = 0, components = 0, groups = 0;
  Buffer<int32_t> first, edge;           ///< edge: id in the graph
  Buffer<int64_t> far_row, weight_rows;  ///< offsets of the far node's features and of the row of W
  Buffer<T> harmonics, grad_harmonics, slope;
  Buffer<double> unit, inverse, dt_dr;   ///< per edge: direction (3), 1/r, dt/dr
  Buffer<int64_t> table_row, group_row;  ///< offset of the table row, per edge and per group of edges
  Buffer<int32_t> order, group_first;    ///< edges sorted by table row (see ExpandArgs)
  Buffer<T> t, sorted_t;
  Buffer<T> weights;  ///< W of a slice of a path's channels, made from the table
  Buffer<T> matrix, b_scratch, reduce_scratch;
  Buffer<uint64_t> sort_keys;
  Buffer<int32_t> bins;

  /// Room for tiles of that many nodes and edges; `weight_channels` values of W an edge at a time.
  void reserve(int64_t max_nodes, int64_t max_edges, int width, int harmonics_components, int64_t weight_channels,
               int64_t max_channels, int32_t max_pairs);
  /// Groups the edges by table row: fills order, sorted_t and the groups. `row_size` divides every row offset, and
  /// there are `rows` rows.
  void sort_by_table_row(int64_t row_size, int64_t rows);
  TileView<T> view() const { return {node, nodes, first.data(), far_row.data(), harmonics.data(), components}; }
};

/// What fill_tile needs of a call to interaction.
template <typename T>
struct TileSource {
  const GraphView& graph;
  const RadialTableView<T>& radial;
  int32_t rows;
  int lmax;
  int width;
  int64_t far_stride;     ///< length of a row of the gathered features
  int64_t weight_stride;  ///< length of a row of EdgeTile::weights
};

/// Fills a tile with the edges of nodes [begin, end) that lie within their cutoff and end at a row < source.rows.
/// Returns the (centre type, neighbour type) index of an edge without a table, or -1 when all is well.
template <typename T>
int64_t fill_tile(const TileSource<T>& source, Side side, int32_t begin, int32_t end, EdgeTile<T>& tile);

/// dE/d edge_vec of the tile's edges from grad_harmonics and slope; writes their rows of grad_edge_vec.
template <typename T>
void edge_vector_gradient(const EdgeTile<T>& tile, int lmax, int width, double* grad_edge_vec);

}  // namespace clebsch::cpu
