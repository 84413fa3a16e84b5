#pragma once
// The generators of an Allegro network's kernels. All work on one chunk of whole receivers, whose numbers lie in the
// workspace as AllegroLayout says; `chunks` holds {first row, end row, first edge, end edge} of every chunk.
#include <string>

#include "core/problem/allegro_problem.h"
#include "cuda/allegro/allegro_layout.h"
#include "cuda/emit/source_writer.h"
#include "cuda/kernels/allegro_chunks.h"
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// Threads a block of every generated kernel but allegro_dense.
constexpr int kAllegroThreads = 128;

/// What kernels over the edges' numbers of a chunk begin with.
struct AllegroWork {
  void* work = nullptr;  ///< AllegroLayout::numbers of each edge
  int64_t capacity = 0;
  const AllegroChunk* chunks = nullptr;
  int32_t chunk = 0;

  template <typename F>
  void each(F&& visit) {
    visit("real* __restrict__ work", work);
    visit("int64 capacity", capacity);
    visit("const int4* __restrict__ chunks", chunks);
    visit("int chunk", chunk);
  }
};

/// Arguments of allegro_edges (harmonics and two-body part; edges from their cutoff on get zeros) or, backward, of
/// allegro_edge_gradient (dE/d edge_vec). Grid of both: (ceil(capacity / kAllegroThreads)).
struct AllegroEdgesArguments {
  bool backward = false;
  AllegroWork w = {};
  const double* edge_vec = nullptr;
  const int32_t *senders = nullptr, *receivers = nullptr, *types = nullptr, *table_index = nullptr;
  const double* cutoffs = nullptr;
  int32_t type_count = 0, pieces = 0;
  const int32_t* order = nullptr;  ///< of allegro_order
  const void* table = nullptr;
  int32_t gradients = 0;
  double* gradient = nullptr;

  template <typename F>
  void each(F&& visit) {
    visit("const int4* __restrict__ chunks", w.chunks);
    visit("int chunk", w.chunk);
    visit("const double* __restrict__ edge_vec", edge_vec);
    visit("const int* __restrict__ senders", senders);
    visit("const int* __restrict__ receivers", receivers);
    visit("const int* __restrict__ types", types);
    visit("const int* __restrict__ table_index", table_index);
    visit("const double* __restrict__ cutoffs", cutoffs);
    visit("int type_count", type_count);
    visit("int pieces", pieces);
    visit("const int* __restrict__ order", order);
    visit("const real* __restrict__ table", table);
    visit("real* __restrict__ work", w.work);
    visit("int64 capacity", w.capacity);
    if (backward) {
      visit("double* __restrict__ gradient", gradient);
    } else {
      visit("int gradients", gradients);
    }
  }
};

/// Arguments of allegro_readout: energies, and the gradient of what the readout's last column multiplies. Any grid, a
/// block a receiver in turn.
struct AllegroReadoutArguments {
  AllegroWork w = {};
  const int32_t* row_ptr = nullptr;
  const void* dense = nullptr;
  double* energy = nullptr;
  int32_t gradients = 0;

  template <typename F>
  void each(F&& visit) {
    w.each(visit);
    visit("const int* __restrict__ row_ptr", row_ptr);
    visit("const real* __restrict__ dense", dense);
    visit("double* __restrict__ energy", energy);
    visit("int gradients", gradients);
  }
};

/// Arguments of allegro_features: sums over a receiver's edges of what the readout's last column multiplies, before
/// allegro_readout. Any grid, a block a receiver in turn.
struct AllegroFeaturesArguments {
  AllegroWork w = {};
  const int32_t* row_ptr = nullptr;
  double* features = nullptr;
  int64_t stride = 0;  ///< of a row of features

  template <typename F>
  void each(F&& visit) {
    w.each(visit);
    visit("const int* __restrict__ row_ptr", row_ptr);
    visit("double* __restrict__ features", features);
    visit("int64 stride", stride);
  }
};

/// allegro_edges, allegro_edge_gradient, allegro_readout and allegro_features.
std::string allegro_edges_source(const AllegroProblem& problem, Scalar scalar);

/// Arguments of allegro_product and allegro_product_backward. Any grid, a block a receiver in turn.
struct AllegroProductArguments {
  AllegroWork w = {};
  const int32_t *row_ptr = nullptr, *types = nullptr;
  const void* paths = nullptr;  ///< of all layers
  const double* norm = nullptr;

  template <typename F>
  void each(F&& visit) {
    w.each(visit);
    visit("const int* __restrict__ row_ptr", row_ptr);
    visit("const int* __restrict__ types", types);
    visit("const real* __restrict__ paths", paths);
    visit("const double* __restrict__ norm", norm);
  }
};

/// One layer's tensor product with the environment of the centre: allegro_product, and allegro_product_backward from
/// the gradient of the features after the product to those of the features before it (layer 0: grad_first), of the
/// environment weights and, added, of the harmonics.
std::string allegro_product_source(const AllegroProblem& problem, int layer, Scalar scalar);

/// How fp32 products of matrices are made: by fused multiply-adds, or on tensor cores by three products of tf32 (no
/// more than twice plain fp32's error; compute capability 8.0 and later), by blocks that keep the weight
/// (allegro_rows.h) or by a block for every tile, which serves where no block can keep a weight.
enum class DenseMath { fp32, tf32x3, tf32x3_tiles };

/// Tile of one block of allegro_dense.
struct DenseTiling {
  int rows, columns, depth, thread_rows, thread_columns;
  int threads() const { return rows / thread_rows * (columns / thread_columns); }
};
DenseTiling dense_tiling(Scalar scalar, DenseMath math);
/// Arguments of allegro_dense. Grid: (ceil(capacity / rows) * ceil(columns / tile columns)).
struct AllegroDenseArguments {
  AllegroWork w = {};
  const void* dense = nullptr;
  int32_t call = 0, gradients = 0;

  template <typename F>
  void each(F&& visit) {
    w.each(visit);
    visit("const real* __restrict__ dense", dense);
    visit("int index", call);
    visit("int gradients", gradients);
  }
};
/// The matrix products of AllegroDense, a block a tile. Every sum runs over its inputs in order. gradients = 0:
/// slopes are not kept. math: of fp32; fp64 is always plain.
std::string allegro_dense_source(const AllegroProblem& problem, Scalar scalar, DenseMath math);

/// Lines that every source begins with: number types.
void write_allegro_head(SourceWriter& w, Scalar scalar);
/// "work + capacity * OFFSET + EDGE * STRIDE"
std::string edge_row(const EdgeArray& array, const std::string& edge);

}  // namespace clebsch::cuda
