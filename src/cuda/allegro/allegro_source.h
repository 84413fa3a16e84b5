#pragma once
// The generators of an Allegro network's kernels. All work on one chunk of whole receivers, whose numbers lie in the
// workspace as AllegroLayout says; `chunks` holds {first row, end row, first edge, end edge} of every chunk.
#include <string>

#include "core/problem/allegro_problem.h"
#include "cuda/allegro/allegro_layout.h"
#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

/// Threads a block of every generated kernel but allegro_dense.
constexpr int kAllegroThreads = 128;

/// Entry points, grids and parameters:
///   <geometry>: const int4* chunks, int chunk, const double* edge_vec, const int* senders, const int* receivers, const
///     int* types, const int* table_index, const double* cutoffs, int type_count, int pieces
///   allegro_edges(<geometry>, const int* order, const real* table, real* work, int64 capacity, int gradients)
///     harmonics and two-body part. Edges from their cutoff on get zeros.
///   allegro_edge_gradient(<geometry>, const int* order, const real* table, real* work, int64 capacity, double*
///                         gradient): dE/d edge_vec
///     grid of both: (ceil(capacity / kAllegroThreads))
///   allegro_readout(real* work, int64 capacity, const int4* chunks, int chunk, const int* row_ptr, const real* dense,
///                   double* energy, int gradients)
///     grid (any, a block a receiver in turn): energies, and the gradient of what the readout's last column multiplies
std::string allegro_edges_source(const AllegroProblem& problem, Scalar scalar);

/// One layer's tensor product with the environment of the centre.
///   allegro_product(real* work, int64 capacity, const int4* chunks, int chunk, const int* row_ptr, const int* types,
///                   const real* paths, const double* norm)
///   allegro_product_backward(<the same>): from the gradient of the features after the product to those of the
///     features before it (layer 0: grad_first), of the environment weights and, added, of the harmonics
/// grid of both: any, a block a receiver in turn. paths: of all layers.
std::string allegro_product_source(const AllegroProblem& problem, int layer, Scalar scalar);

/// How fp32 products of matrices are made: by fused multiply-adds, or on tensor cores by three products of tf32 (no
/// more than twice plain fp32's error; compute capability 8.0 and later).
enum class DenseMath { fp32, tf32x3 };

/// Tile of one block of allegro_dense.
struct DenseTiling {
  int rows, columns, depth, thread_rows, thread_columns;
  int threads() const { return rows / thread_rows * (columns / thread_columns); }
};
DenseTiling dense_tiling(Scalar scalar, DenseMath math);
/// The matrix products of AllegroDense:
///   allegro_dense(real* work, int64 capacity, const int4* chunks, int chunk, const real* dense, int call,
///                 int gradients)
/// grid (ceil(capacity / rows) * ceil(columns / tile columns)). Every sum runs over its inputs in order. gradients = 0:
/// slopes are not kept. math: of fp32; fp64 is always plain.
std::string allegro_dense_source(const AllegroProblem& problem, Scalar scalar, DenseMath math);

/// Lines that every source begins with: number types.
void write_allegro_head(SourceWriter& w, Scalar scalar);
/// "work + capacity * OFFSET + EDGE * STRIDE"
std::string edge_row(const EdgeArray& array, const std::string& edge);

}  // namespace clebsch::cuda
