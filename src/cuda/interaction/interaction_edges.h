#pragma once
// The edge prologue of the interaction: geometry, harmonics and radial basis of a receiver's edges in shared memory.
//
// The warps of a receiver fill one row an edge together (harmonics, and the numbers that combine the knots of a radial
// table) and sort the edges by table row, so that edges of one piece follow each other and a warp reads a piece's
// coefficients once. Geometry is fp64 up to the unit vector and the place in the piece.
#include <string>

#include "core/problem/problem.h"
#include "cuda/emit/source_writer.h"
#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

class InteractionEdges {
 public:
  /// density: one more radial function is summed by receiver, `density` in docs/developers/kernels.md. The thread that
  /// makes an edge's geometry evaluates it: no warp reads it, so it is in no row. fixed_point: what rows hold backward
  /// is in quanta (kernels/fixed_point.h). turned: a row is a sender and `senders` names receivers
  /// (InteractionOutputs::turned).
  InteractionEdges(const Problem& problem, const Schedule& schedule, bool density = false, bool fixed_point = false,
                   bool turned = false);

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
  /// Forward with a density, before and after the units' loops: clears this warp's part of the sum; adds the parts in
  /// order and writes them to density[blockIdx.y * out_rows + row].
  void start_density(SourceWriter& w) const;
  void write_density(SourceWriter& w) const;

 private:
  void geometry(SourceWriter& w) const;
  void density_function(SourceWriter& w) const;
  void basis(SourceWriter& w) const;
  void spline_basis(SourceWriter& w) const;
  /// Emits an expression that computes the receiver's row anew, because keeping it over the loops costs large kernels a
  /// register that they do not have.
  std::string row_again(const char* group) const;
  /// Index of edge `first + i` in edge_vec and senders; index of its pair of types in the tables' lists.
  std::string edge() const { return turned_ ? "__ldg(s.edge_of + first + i)" : "first + i"; }
  std::string pair(const char* other) const;
  bool backward() const { return !is_forward(schedule_.pass); }

  const Problem& problem_;
  const Schedule& schedule_;
  bool density_, fixed_point_, turned_;
  int components_, row_;
};

}  // namespace clebsch::cuda
