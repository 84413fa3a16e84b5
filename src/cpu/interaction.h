#pragma once
// clebsch::interaction on the CPU: radial table + harmonics + uvu tensor product + receiver sum, fused.
#include <cstdint>

#include "core/graph.h"
#include "core/problem/problem.h"

namespace clebsch::cpu {

/// A radial table as the kernels read it.
template <typename T>
struct RadialTableView {
  const T* table = nullptr;              ///< [tables][pieces + 1][kTableOrder][columns]
  const int32_t* table_index = nullptr;  ///< (types, types) [centre][neighbour] -> table, -1 if none was built
  const double* cutoffs = nullptr;       ///< (types, types) [centre][neighbour], Angstrom
  int types = 0, tables = 0, pieces = 0;
  int64_t columns = 0;  ///< = problem.weight_count
};

/// One radial function summed over the same edges: sum[i] = sum over the edges of i of f(r) (MACE's density).
template <typename T>
struct DensityView {
  RadialTableView<T> radial;  ///< one column, pieces of its own; the pairs' cutoffs are those of the interaction
  T* sum = nullptr;           ///< forward: (rows), overwritten
  const T* grad = nullptr;    ///< backward: dE/d sum, (rows)
};

/// out (M, problem.out.dim()) for rows < rows; other rows are not touched. x (M, problem.in1.dim()), channel-fastest
/// layout (core/math/irreps.h). Edges at or beyond their pair's cutoff contribute exactly nothing. `density`, unless
/// null, is summed in the same pass.
template <typename T>
void interaction_forward(const Problem& problem, const GraphView& graph, const RadialTableView<T>& radial, int32_t rows,
                         const T* x, T* out, int threads, const DensityView<T>* density = nullptr);

/// Backward of interaction_forward: adds nothing, overwrites.
///   grad_edge_vec (E,3) fp64: every edge of rows < rows; edges of other rows are set to zero. Null to skip.
///   grad_x (M, in1.dim()): all M rows, by the transposed list (graph.col_ptr must be set). Null to skip.
///   density: what density->grad gives is part of grad_edge_vec. Null to skip.
/// Bitwise the same for any thread count.
template <typename T>
void interaction_backward(const Problem& problem, const GraphView& graph, const RadialTableView<T>& radial,
                          int32_t rows, const T* x, const T* grad_out, double* grad_edge_vec, T* grad_x, int threads,
                          const DensityView<T>* density = nullptr);

}  // namespace clebsch::cpu
