#pragma once
// Pairs that may be edges: a neighbour list with a skin, which holds for some steps, and the edges among them at the
// positions of one step.
#include <cstdint>

namespace clebsch {

/// Pointers to a list; nothing is owned. Counts as in GraphView. Points are positions: those of the nodes first, in
/// their order, then images of nodes, if the caller keeps any.
struct PairListView {
  int32_t n_local = 0, n_rows = 0, n_nodes = 0, n_points = 0;
  int32_t n_layers = 0;                 ///< entries of layer_rows
  int32_t n_systems = 1;                ///< cells of PointsView
  const int32_t* row_ptr = nullptr;     ///< (N+1), pairs of receiver i are row_ptr[i] .. row_ptr[i+1]-1
  const int32_t* neighbours = nullptr;  ///< (P) points
  const int32_t* shifts = nullptr;      ///< (P,3) cell vectors that are added to the neighbour, -511 .. 511; or null
  const int32_t* owners = nullptr;      ///< (n_points - n_nodes), the node that an image stands for
  const int32_t* layer_rows = nullptr;  ///< (L) or null: all rows in every layer
  const int32_t* types = nullptr;       ///< (M)
  const int32_t* systems = nullptr;     ///< (M), the system of each node; or null: all nodes are of one
  int64_t pairs() const { return n_rows > 0 ? row_ptr[n_rows] : 0; }
};

/// Where the points of a list are at a step.
struct PointsView {
  const double* positions = nullptr;  ///< (n_points,3) Angstrom
  const double* cell = nullptr;       ///< (n_systems,3,3) Angstrom, rows are vectors; not read without shifts
};

constexpr int32_t kLargestShift = 511;
/// Three numbers of -511 to 511 in one, as find_edges on a GPU reads them.
inline int32_t packed_shift(const int32_t* shift) {
  return (shift[0] + 512) | (shift[1] + 512) << 10 | (shift[2] + 512) << 20;
}
inline void unpack_shift(int32_t packed, int32_t* shift) {
  for (int d = 0; d < 3; ++d) shift[d] = (packed >> 10 * d & 1023) - 512;
}

/// Checks every index, offset, shift and type of a list. Throws Error with expected/got.
void validate_pairs(const PairListView& list, int types_count);

/// Throws Error naming the first position, or the cell, that is not finite. Without this check the comparison with the
/// cutoff would silently drop the pair.
void require_finite_points(const PairListView& list, const PointsView& points);

/// The edges of a step: pairs nearer than cutoffs[type of receiver * types + type of sender], Angstrom, in list order,
/// with edge_vec = neighbour + shift . cell - receiver. Counts first: row_ptr (N+1); returns the number of edges.
int64_t count_edges(const PairListView& list, const PointsView& points, const double* cutoffs, int types,
                    int32_t* row_ptr, int threads);
/// Then fills senders (nodes) and edge_vec (E,3). Where row_ptr gives a row less room than it has edges, the row's
/// first edges are written and the others left out.
void fill_edges(const PairListView& list, const PointsView& points, const double* cutoffs, int types,
                const int32_t* row_ptr, int32_t* senders, double* edge_vec, int threads);

}  // namespace clebsch
