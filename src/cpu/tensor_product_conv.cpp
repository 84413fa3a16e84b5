#include "cpu/tensor_product_conv.h"

#include <algorithm>
#include <atomic>

#include "core/errors.h"
#include "cpu/path_loops.h"

namespace clebsch::cpu {
namespace {

/// Edges of a tile: enough to fill vectors of edges, small enough for cache.
constexpr int64_t kTileEdges = 512;

template <typename T>
struct Workspace {
  std::vector<EdgeTile<T>> tiles;
  std::vector<int32_t> starts;
};

template <typename T>
Workspace<T>& workspace() {
  thread_local Workspace<T> value;
  return value;
}

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

/// Runs work(tile) over all nodes of one side in parallel.
template <typename T, typename Work>
void over_tiles(const ProblemPlan& plan, int64_t weight_count, const KernelTable<T>& kernels, const GraphView& graph,
                int32_t rows, const T* harmonics, Side side, int32_t nodes, int threads, const Work& work) {
  Workspace<T>& space = workspace<T>();
  threads = std::max(threads, 1);
  const int32_t* ptr = side == Side::receiver ? graph.row_ptr : graph.col_ptr;
  const int64_t most = split_nodes(ptr, nodes, kTileEdges, space.starts);
  if (space.tiles.size() < static_cast<size_t>(threads)) space.tiles.resize(threads);
  for (int k = 0; k < threads; ++k) {
    space.tiles[k].reserve(kTileEdges, most, kernels.width, static_cast<int>(plan.y_source.size()), 0,
                           plan.max_channels, plan.max_pairs);
  }
  EdgeTile<T>* pool = space.tiles.data();
  const int32_t* starts = space.starts.data();
  const int32_t tiles = static_cast<int32_t>(space.starts.size()) - 1;
  std::atomic<int> next_tile{0};
#pragma omp parallel num_threads(threads)
  {
    EdgeTile<T>& tile = pool[next_tile.fetch_add(1)];
#pragma omp for schedule(dynamic, 1)
    for (int32_t k = 0; k < tiles; ++k) {
      fill_conv_tile(graph, plan, weight_count, kernels.width, rows, harmonics, side, starts[k], starts[k + 1], tile);
      work(tile);
    }
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
  if (rows == 0) return;
  const auto plan = problem_plan(problem, HarmonicsOrder::as_in2);
  const KernelTable<T>& table = kernels<T>();
  const WeightView<T> view{false, weights, problem.weight_count};
  over_tiles(*plan, problem.weight_count, table, graph, rows, harmonics, Side::receiver, rows, threads,
             [&](EdgeTile<T>& tile) {
               std::fill_n(out + tile.node * plan->out_dim, tile.nodes * plan->out_dim, T(0));
               gather_paths(*plan, table, Side::receiver, tile, view, x, out);
             });
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
  const int width = table.width;
  const WeightView<T> view{false, weights, problem.weight_count};
  if (grad_harmonics != nullptr) std::fill_n(grad_harmonics, graph.n_edges * plan->y_dim, T(0));
  if (grad_weights != nullptr) std::fill_n(grad_weights, graph.n_edges * problem.weight_count, T(0));
  if (grad_harmonics != nullptr || grad_weights != nullptr) {
    over_tiles(*plan, problem.weight_count, table, graph, rows, harmonics, Side::receiver, rows, threads,
               [&](EdgeTile<T>& tile) {
                 edge_paths(*plan, table, tile, view, x, grad_out, grad_harmonics != nullptr, grad_weights);
                 if (grad_harmonics == nullptr) return;
                 for (int32_t e = 0; e < tile.edges; ++e) {
                   const T* lane = tile.grad_harmonics.data() +
                                   static_cast<int64_t>(e / width) * tile.components * width + e % width;
                   T* row = grad_harmonics + tile.edge.data()[e] * plan->y_dim;
                   for (int m = 0; m < tile.components; ++m) row[plan->y_source[m]] = lane[m * width];
                 }
               });
  }
  if (grad_x != nullptr) {
    over_tiles(*plan, problem.weight_count, table, graph, rows, harmonics, Side::sender, graph.n_nodes, threads,
               [&](EdgeTile<T>& tile) {
                 std::fill_n(grad_x + tile.node * plan->x_dim, tile.nodes * plan->x_dim, T(0));
                 gather_paths(*plan, table, Side::sender, tile, view, grad_out, grad_x);
               });
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
