#pragma once
// What the kernels of the interaction are given.
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// Operands of an interaction, all device pointers; numbers are float or double as the kernels were made for. Edges are
/// in CSR order by receiver. Sizes are capacities: the true edge count is row_ptr[graph_rows], what lies beyond is not
/// read.
struct InteractionOperands {
  /// One radial function more, summed by receiver: for kernels with a density.
  struct Density {
    const void* table = nullptr;     ///< (tables, pieces + 1, kTableOrder, 1), aligned to two numbers
    const int32_t* index = nullptr;  ///< (type_count, type_count), as table_index
    int32_t tables = 0, pieces = 0;
    void* sum = nullptr;         ///< forward: (out_rows), every row written
    const void* grad = nullptr;  ///< backward: dE/d sum, (>= graph_rows)
  };
  const void* x = nullptr;           ///< (nodes, in1.dim()), channel fastest
  const double* edge_vec = nullptr;  ///< (E,3) Angstrom
  const int32_t* senders = nullptr;  ///< (E), below nodes
  const int32_t* types = nullptr;    ///< (nodes), below type_count
  /// (tables, pieces + 1, kTableOrder, weight_count), core/radial/radial_table.h; for kernels with splines (tables,
  /// spline_rows(pieces), 1, weight_count), core/radial/radial_spline.h
  const void* table = nullptr;
  const int32_t* table_index = nullptr;  ///< (type_count, type_count) [centre][neighbour], -1: none was built
  const double* cutoffs = nullptr;       ///< (type_count, type_count), Angstrom
  int32_t type_count = 0, tables = 0, pieces = 0;
  const int32_t* row_ptr = nullptr;   ///< (graph_rows + 1)
  const int32_t* col_ptr = nullptr;   ///< (nodes + 1), for a deterministic backward
  const int32_t* col_edge = nullptr;  ///< (E)
  /// (E), for a backward pass that is turned; null: it never is.
  const int32_t* receivers = nullptr;
  const int32_t* row_limit = nullptr;  ///< one number: rows from there on are zero; null: all of graph_rows
  int32_t graph_rows = 0, nodes = 0;
  int64_t edges = 0;         ///< capacity E
  int32_t adds_vectors = 0;  ///< 1: backward, dE/d edge_vec is added to what stands there
  Density density;
};

/// Arguments of the forward or the backward kernel, with a density or without.
struct InteractionArguments {
  bool backward = false, density = false, fixed_point = false, turned = false;
  InteractionOperands o = {};
  int32_t first_unit = 0;
  int32_t out_rows = 0;
  /// Forward, the receivers of a launch begin with first_row, which is the first row of out and of density.sum; a part
  /// of split receivers has part_rows rows there.
  int32_t first_row = 0, part_rows = 0;
  void* out = nullptr;
  const void* grad_out = nullptr;
  int32_t edge_begin = 0, edge_end = 0;
  void* grad_x = nullptr;
  int32_t* bad = nullptr;  ///< with fixed_point: as FixedPointArguments
  const uint32_t* largest = nullptr;
  int32_t receivers = 0;  ///< turned: rows of the graph, where graph_rows are senders
  double* grad_edge_vec = nullptr;
  double density_ratio = 0;  ///< the density's pieces / pieces; its cutoffs are those of the interaction

  template <typename F>
  void each(F&& visit) {
    visit("const real* __restrict__ x", o.x);
    visit("const double* __restrict__ edge_vec", o.edge_vec);
    visit("const int* __restrict__ senders", o.senders);
    visit("const int* __restrict__ types", o.types);
    visit("const real* __restrict__ table", o.table);
    visit("const int* __restrict__ table_index", o.table_index);
    visit("const double* __restrict__ cutoffs", o.cutoffs);
    visit("int type_count", o.type_count);
    visit("int pieces", o.pieces);
    visit("const int* __restrict__ row_ptr", o.row_ptr);
    visit("const int* __restrict__ row_limit", o.row_limit);
    visit("int first_unit", first_unit);
    visit("int graph_rows", o.graph_rows);
    if (backward) {
      visit("const real* __restrict__ grad_out", grad_out);
      visit("int edge_begin", edge_begin);
      visit("int edge_end", edge_end);
      visit(fixed_point ? "unsigned long long* __restrict__ grad_x" : "real* __restrict__ grad_x", grad_x);
      if (fixed_point) {
        visit("int* __restrict__ bad", bad);
        visit("const unsigned* __restrict__ largest", largest);
      }
      visit("double* __restrict__ grad_edge_vec", grad_edge_vec);
      visit("int adds_vectors", o.adds_vectors);
      if (turned) {
        visit("const int* __restrict__ edge_of", o.col_edge);
        visit("int receivers", receivers);
      }
    } else {
      visit("int out_rows", out_rows);
      visit("int first_row", first_row);
      visit("int part_rows", part_rows);
      visit("real* __restrict__ out", out);
    }
    if (!density) return;
    visit("const real* __restrict__ density_table", o.density.table);
    visit("const int* __restrict__ density_index", o.density.index);
    visit("int density_pieces", o.density.pieces);
    visit("double density_ratio", density_ratio);
    if (backward) {
      visit("const real* __restrict__ grad_density", o.density.grad);
    } else {
      visit("real* __restrict__ density", o.density.sum);
    }
  }
};

}  // namespace clebsch::cuda
