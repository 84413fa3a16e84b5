#pragma once
// Runs the kernels of all paths of a problem over a batch of tiles: shared by interaction and tensor_product_conv.
#include "cpu/path_plan.h"
#include "cpu/tile_batches.h"

namespace clebsch::cpu {

/// The weights of a call: a radial table (interaction), or rows of W per edge (tensor_product_conv).
template <typename T>
struct WeightView {
  bool table;
  const T* data;
  int64_t row;  ///< columns: between the coefficients of a table, or between rows of W
};

/// Length of a row of Scratch::weights: values of W an edge that the loops below expand a table to at a time.
int64_t gather_weight_row(int width);
int64_t edge_weight_row(const ProblemPlan& plan, int width);

/// Sums over edges; overwrites the rows of the batch's nodes.
/// Side::receiver: in = x, out = out. Side::sender: in = grad_out, out = grad_x.
template <typename T>
void gather_paths(const ProblemPlan& plan, const KernelTable<T>& kernels, Side side, TileBatch<T>& batch,
                  const WeightView<T>& weights, const T* in, T* out);

/// Gradients of the batch's edges: grad_harmonics, and slope (tables) or grad_weights (arrays; null to skip).
/// Those of the tiles are cleared first. `harmonics` = false skips the gradient of the harmonics.
template <typename T>
void edge_paths(const ProblemPlan& plan, const KernelTable<T>& kernels, TileBatch<T>& batch,
                const WeightView<T>& weights, const T* x, const T* grad_out, bool harmonics, T* grad_weights);

}  // namespace clebsch::cpu
