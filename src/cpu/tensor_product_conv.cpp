#include "cpu/tensor_product_conv.h"

#include <algorithm>

#include "core/errors.h"
#include "cpu/mixing_paths.h"
#include "cpu/path_loops.h"

namespace clebsch::cpu {
namespace {

constexpr BatchShape kShape{512, 512};

/// Edges of nodes [begin, end) that end at a row < rows, with their harmonics read from memory.
template <typename T>
void fill_conv_tile(const GraphView& graph, const ProblemPlan& plan, int64_t weight_count, int width, int32_t rows,
                    const T* harmonics, Side side, int32_t begin, int32_t end, EdgeTile<T>& tile) {
  const int32_t* ptr = side == Side::receiver ? graph.row_ptr : graph.col_ptr;
  int32_t count = 0;
  tile.node = begin;
  tile.nodes = end - begin;
  for (int32_t node = begin; node < end; ++node) {
    tile.first.data()[node - begin] = count;
    for (int32_t k = ptr[node]; k < ptr[node + 1]; ++k) {
      const int32_t edge = side == Side::receiver ? k : graph.col_edge[k];
      if (side == Side::sender && graph.receivers[edge] >= rows) continue;
      tile.far_row.data()[count] =
          side == Side::receiver ? graph.senders[edge] * plan.x_dim : graph.receivers[edge] * plan.out_dim;
      tile.weight_rows.data()[count] = edge * weight_count;
      tile.edge.data()[count] = edge;
      const T* y = harmonics + edge * plan.y_dim;
      T* lane = tile.harmonics.data() + static_cast<int64_t>(count / width) * tile.components * width + count % width;
      for (int m = 0; m < tile.components; ++m) lane[m * width] = y[plan.y_source[m]];
      ++count;
    }
  }
  tile.first.data()[end - begin] = count;
  tile.edges = count;
}

/// Runs work(batch) over all nodes of one side in parallel.
template <typename T, typename Work>
void over_edges(const ProblemPlan& plan, int64_t weight_count, int width, const GraphView& graph, int32_t rows,
                const T* harmonics, Side side, int threads, const Work& work) {
  const TileSizes sizes{width, static_cast<int>(plan.y_source.size()), 0, plan.max_channels, plan.max_pairs};
  const bool by_receiver = side == Side::receiver;
  over_batches<T>(
      by_receiver ? graph.row_ptr : graph.col_ptr, by_receiver ? rows : graph.n_nodes, kShape, sizes, threads,
      [&](int32_t begin, int32_t end, EdgeTile<T>& tile, Scratch<T>&) {
        fill_conv_tile(graph, plan, weight_count, width, rows, harmonics, side, begin, end, tile);
      },
      work);
}

/// Copies the gradient of the harmonics of a tile's edges to their rows.
template <typename T>
void write_harmonics_gradient(const ProblemPlan& plan, const EdgeTile<T>& tile, int width, T* grad_harmonics) {
  for (int32_t e = 0; e < tile.edges; ++e) {
    const T* lane = tile.grad_harmonics.data() + static_cast<int64_t>(e / width) * tile.components * width + e % width;
    T* row = grad_harmonics + tile.edge.data()[e] * plan.y_dim;
    for (int m = 0; m < tile.components; ++m) row[plan.y_source[m]] = lane[m * width];
  }
}

void check(const GraphView& graph, int32_t rows) {
  require(rows >= 0 && rows <= graph.n_rows, "tensor_product_conv: expected 0 <= rows <= {}, got {}", graph.n_rows,
          rows);
}

}  // namespace

template <typename T>
void tensor_product_conv_forward(const Problem& problem, const GraphView& graph, int32_t rows, const T* x,
                                 const T* harmonics, const T* weights, T* out, int threads) {
  check(graph, rows);
  const auto plan = problem_plan(problem, HarmonicsOrder::as_in2);
  const KernelTable<T>& table = kernels<T>();
  const WeightView<T> view{false, weights, problem.weight_count};
  over_edges(*plan, problem.weight_count, table.width, graph, rows, harmonics, Side::receiver, threads,
             [&](TileBatch<T>& batch) { gather_paths(*plan, table, Side::receiver, batch, view, x, out); });
  if (has_mixing_paths(problem)) mixing_paths_forward(problem, graph, rows, x, harmonics, weights, out, threads);
}

template <typename T>
void tensor_product_conv_backward(const Problem& problem, const GraphView& graph, int32_t rows, const T* x,
                                  const T* harmonics, const T* weights, const T* grad_out, T* grad_x, T* grad_harmonics,
                                  T* grad_weights, int threads) {
  check(graph, rows);
  require(grad_x == nullptr || graph.col_ptr != nullptr,
          "tensor_product_conv: the gradient of the features needs the transposed graph (col_ptr)");
  const auto plan = problem_plan(problem, HarmonicsOrder::as_in2);
  const KernelTable<T>& table = kernels<T>();
  const WeightView<T> view{false, weights, problem.weight_count};
  const bool of_harmonics = grad_harmonics != nullptr;
  if (of_harmonics) std::fill_n(grad_harmonics, graph.n_edges * plan->y_dim, T(0));
  if (grad_weights != nullptr) std::fill_n(grad_weights, graph.n_edges * problem.weight_count, T(0));
  if (of_harmonics || grad_weights != nullptr) {
    over_edges(*plan, problem.weight_count, table.width, graph, rows, harmonics, Side::receiver, threads,
               [&](TileBatch<T>& batch) {
                 edge_paths(*plan, table, batch, view, x, grad_out, of_harmonics, grad_weights);
                 for (int32_t k = 0; of_harmonics && k < batch.count; ++k) {
                   write_harmonics_gradient(*plan, batch.tiles[k], table.width, grad_harmonics);
                 }
               });
    if (has_mixing_paths(problem)) {
      mixing_paths_edges(problem, graph, rows, x, harmonics, weights, grad_out, grad_harmonics, grad_weights, threads);
    }
  }
  if (grad_x != nullptr) {
    over_edges(*plan, problem.weight_count, table.width, graph, rows, harmonics, Side::sender, threads,
               [&](TileBatch<T>& batch) { gather_paths(*plan, table, Side::sender, batch, view, grad_out, grad_x); });
    if (has_mixing_paths(problem)) {
      mixing_paths_features(problem, graph, rows, harmonics, weights, grad_out, grad_x, threads);
    }
  }
}

template void tensor_product_conv_forward(const Problem&, const GraphView&, int32_t, const float*, const float*,
                                          const float*, float*, int);
template void tensor_product_conv_forward(const Problem&, const GraphView&, int32_t, const double*, const double*,
                                          const double*, double*, int);
template void tensor_product_conv_backward(const Problem&, const GraphView&, int32_t, const float*, const float*,
                                           const float*, const float*, float*, float*, float*, int);
template void tensor_product_conv_backward(const Problem&, const GraphView&, int32_t, const double*, const double*,
                                           const double*, const double*, double*, double*, double*, int);

}  // namespace clebsch::cpu
