#include "cpu/interaction.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/errors.h"
#include "core/harmonics.h"
#include "cpu/path_loops.h"

namespace clebsch::cpu {
namespace {

/// Edges of a tile. Many, so that a slice of the radial table is reused while it is in cache; few enough for the
/// tile's own arrays to stay there too, and for every thread to find work. docs/performance.md, "CPU".
constexpr int64_t kTileEdges = 1024;

/// Scratch of a calling thread's parallel regions, one tile a worker; it keeps its capacity between calls.
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

template <typename T>
void check(const Problem& problem, const GraphView& graph, const RadialTableView<T>& radial, int32_t rows) {
  require(rows >= 0 && rows <= graph.n_rows, "interaction: expected 0 <= rows <= {}, got {}", graph.n_rows, rows);
  require(radial.columns == problem.weight_count, "interaction: the problem has {} weight columns, the table {}",
          problem.weight_count, radial.columns);
}

/// Runs work(begin, end, tile) over all nodes of one side in parallel and reports edges that lack a table.
template <typename T, typename Work>
void over_tiles(const Problem& problem, const ProblemPlan& plan, const KernelTable<T>& kernels,
                const TileSource<T>& source, Side side, int32_t nodes, int threads, const Work& work) {
  Workspace<T>& space = workspace<T>();
  const int32_t* ptr = side == Side::receiver ? source.graph.row_ptr : source.graph.col_ptr;
  threads = std::max(threads, 1);
  const int64_t fair = static_cast<int64_t>(ptr[nodes] - ptr[0]) / (4 * threads) + 1;
  const int64_t target = threads == 1 ? kTileEdges : std::min(kTileEdges, std::max<int64_t>(fair, kTileEdges / 16));
  const int64_t most = split_nodes(ptr, nodes, target, space.starts);
  const int32_t tiles = static_cast<int32_t>(space.starts.size()) - 1;
  if (space.tiles.size() < static_cast<size_t>(threads)) space.tiles.resize(threads);
  const int components = harmonics_count(problem.lmax_in2);
  for (int k = 0; k < threads; ++k) {
    space.tiles[k].reserve(target, most, kernels.width, components, source.weight_stride, plan.max_channels,
                           plan.max_pairs);
  }
  EdgeTile<T>* pool = space.tiles.data();
  const int32_t* starts = space.starts.data();
  std::atomic<int> next_tile{0};
  std::atomic<int64_t> missing{-1};
#pragma omp parallel num_threads(threads)
  {
    EdgeTile<T>& tile = pool[next_tile.fetch_add(1)];
#pragma omp for schedule(dynamic, 1)
    for (int32_t k = 0; k < tiles; ++k) {
      const int64_t bad = fill_tile(source, side, starts[k], starts[k + 1], tile);
      if (bad >= 0) missing.store(bad, std::memory_order_relaxed);
      work(tile);
    }
  }
  const int64_t pair = missing.load();
  require(pair < 0, "interaction: no radial table was built for centre type {} and neighbour type {}",
          pair / std::max(source.radial.types, 1), pair % std::max(source.radial.types, 1));
}

}  // namespace

template <typename T>
void interaction_forward(const Problem& problem, const GraphView& graph, const RadialTableView<T>& radial, int32_t rows,
                         const T* x, T* out, int threads) {
  check(problem, graph, radial, rows);
  if (rows == 0) return;
  const auto plan = problem_plan(problem, HarmonicsOrder::by_degree);
  const KernelTable<T>& table = kernels<T>();
  const WeightView<T> weights{true, radial.table, radial.columns};
  const TileSource<T> source{
      graph, radial, rows, problem.lmax_in2, table.width, plan->x_dim, gather_weight_row(table.width)};
  over_tiles(problem, *plan, table, source, Side::receiver, rows, threads, [&](EdgeTile<T>& tile) {
    std::fill_n(out + tile.node * plan->out_dim, tile.nodes * plan->out_dim, T(0));
    gather_paths(*plan, table, Side::receiver, tile, weights, x, out);
  });
}

template <typename T>
void interaction_backward(const Problem& problem, const GraphView& graph, const RadialTableView<T>& radial,
                          int32_t rows, const T* x, const T* grad_out, double* grad_edge_vec, T* grad_x, int threads) {
  check(problem, graph, radial, rows);
  require(grad_x == nullptr || graph.col_ptr != nullptr,
          "interaction: the gradient of the features needs the transposed graph (col_ptr)");
  const auto plan = problem_plan(problem, HarmonicsOrder::by_degree);
  const KernelTable<T>& table = kernels<T>();
  const WeightView<T> weights{true, radial.table, radial.columns};
  if (grad_edge_vec != nullptr) {
    // Edges beyond their cutoff are in no tile.
    std::fill_n(grad_edge_vec, 3 * graph.n_edges, 0.0);
    const TileSource<T> source{
        graph, radial, rows, problem.lmax_in2, table.width, plan->x_dim, edge_weight_row(*plan, table.width)};
    over_tiles(problem, *plan, table, source, Side::receiver, rows, threads, [&](EdgeTile<T>& tile) {
      edge_paths(*plan, table, tile, weights, x, grad_out, true, static_cast<T*>(nullptr));
      edge_vector_gradient(tile, problem.lmax_in2, table.width, grad_edge_vec);
    });
  }
  if (grad_x != nullptr) {
    const TileSource<T> source{
        graph, radial, rows, problem.lmax_in2, table.width, plan->out_dim, gather_weight_row(table.width)};
    over_tiles(problem, *plan, table, source, Side::sender, graph.n_nodes, threads, [&](EdgeTile<T>& tile) {
      std::fill_n(grad_x + tile.node * plan->x_dim, tile.nodes * plan->x_dim, T(0));
      gather_paths(*plan, table, Side::sender, tile, weights, grad_out, grad_x);
    });
  }
}

template void interaction_forward(const Problem&, const GraphView&, const RadialTableView<float>&, int32_t,
                                  const float*, float*, int);
template void interaction_forward(const Problem&, const GraphView&, const RadialTableView<double>&, int32_t,
                                  const double*, double*, int);
template void interaction_backward(const Problem&, const GraphView&, const RadialTableView<float>&, int32_t,
                                   const float*, const float*, double*, float*, int);
template void interaction_backward(const Problem&, const GraphView&, const RadialTableView<double>&, int32_t,
                                   const double*, const double*, double*, double*, int);

}  // namespace clebsch::cpu
