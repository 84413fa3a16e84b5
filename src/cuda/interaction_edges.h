#pragma once
// The edge prologue of the interaction: geometry, harmonics and radial basis of a receiver's edges in shared memory.
//
// The warps of a receiver fill one row an edge together (harmonics, and the numbers that combine the knots of a radial
// table) and sort the edges by table row, so that edges of one piece follow each other and a warp reads a piece's
// coefficients once. Geometry is fp64 up to the unit vector and the place in the piece.
#include <string>

#include "core/problem.h"
#include "cuda/schedule.h"

namespace clebsch::cuda {

/// Parameters of every interaction kernel before its outputs:
///   const real* x, const double* edge_vec, const int* senders, const int* types, const real* table, const int*
///   table_index, const double* cutoffs, int type_count, int pieces, const int* row_ptr, const int* row_limit,
///   int first_unit, int graph_rows
std::string interaction_parameters();

class InteractionEdges {
 public:
  InteractionEdges(const Problem& problem, const Schedule& schedule);

  /// struct Slot, struct Edges, group_barrier(group), fill_chunk(edges, first, count) and, backward,
  /// write_edge_gradient(...): before the kernels.
  void functions(SourceWriter& w) const;
  /// In the kernel: shared memory, lane, warp, unit, group and row.
  void declare(SourceWriter& w, const char* rows) const;
  /// `const Edges edges` once the row is known to be in range.
  void make_edges(SourceWriter& w) const;
  /// The loop over chunks of [begin, end) up to where rows and slots of the chunk are at hand: `first`, `count`,
  /// `active` (edges within their cutoff, slots 0..active-1); opens one brace.
  void chunk_loop(SourceWriter& w) const;
  /// Reads harmonics [first, last) as y<c> and the basis as h0..h5 (and, backward, d0..d5) of the slot's edge.
  void read(SourceWriter& w, int first, int last) const;

 private:
  void geometry(SourceWriter& w) const;
  void basis(SourceWriter& w) const;
  void spline_basis(SourceWriter& w) const;
  bool backward() const { return !is_forward(schedule_.pass); }

  const Problem& problem_;
  const Schedule& schedule_;
  int components_, row_;
};

}  // namespace clebsch::cuda
