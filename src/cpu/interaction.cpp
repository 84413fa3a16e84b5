#include "cpu/interaction.h"

#include <algorithm>
#include <atomic>

#include "core/errors.h"
#include "core/math/harmonics.h"
#include "cpu/path_loops.h"

namespace clebsch::cpu {
namespace {

/// Measured: docs/notebook/interaction_cpu.md.
constexpr BatchShape kGatherShape{1024, 8192}, kEdgeShape{512, 8192};

template <typename T>
void check(const Problem& problem, const GraphView& graph, const RadialTableView<T>& radial, int32_t rows,
           const DensityView<T>* density) {
  require(rows >= 0 && rows <= graph.n_rows, "interaction: expected 0 <= rows <= {}, got {}", graph.n_rows, rows);
  require(radial.columns == problem.weight_count, "interaction: the problem has {} weight columns, the table {}",
          problem.weight_count, radial.columns);
  require(density == nullptr || (density->radial.columns == 1 && density->radial.types == radial.types),
          "interaction: expected a density table of one column for the same types");
}

/// Runs work(batch) over all nodes of the source's side in parallel and reports edges that lack a table.
template <typename T, typename Work>
void over_edges(const ProblemPlan& plan, const TileSource<T>& source, int32_t nodes, const BatchShape& shape,
                int threads, const Work& work) {
  const TileSizes sizes{source.width, harmonics_count(source.lmax), source.weight_stride, plan.max_channels,
                        plan.max_pairs};
  const int32_t* ptr = source.side == Side::receiver ? source.graph.row_ptr : source.graph.col_ptr;
  std::atomic<int64_t> missing{-1};
  const auto fill = [&](int32_t begin, int32_t end, EdgeTile<T>& tile, Scratch<T>& scratch) {
    const int64_t pair = fill_tile(source, begin, end, tile, scratch);
    if (pair >= 0) missing.store(pair, std::memory_order_relaxed);
  };
  over_batches<T>(ptr, nodes, shape, sizes, threads, fill, work);
  const int64_t pair = missing.load(), types = std::max(source.radial.types, 1);
  require(pair < 0, "interaction: no radial table was built for centre type {} and neighbour type {}", pair / types,
          pair % types);
}

}  // namespace

template <typename T>
void interaction_forward(const Problem& problem, const GraphView& graph, const RadialTableView<T>& radial, int32_t rows,
                         const T* x, T* out, int threads, const DensityView<T>* density) {
  check(problem, graph, radial, rows, density);
  const auto plan = problem_plan(problem, HarmonicsOrder::by_degree);
  const KernelTable<T>& table = kernels<T>();
  const WeightView<T> weights{true, radial.table, radial.columns};
  const TileSource<T> source{graph,       radial,         rows,        problem.lmax_in2,
                             table.width, Side::receiver, plan->x_dim, gather_weight_row(table.width),
                             density};
  over_edges(*plan, source, rows, kGatherShape, threads,
             [&](TileBatch<T>& batch) { gather_paths(*plan, table, Side::receiver, batch, weights, x, out); });
}

template <typename T>
void interaction_backward(const Problem& problem, const GraphView& graph, const RadialTableView<T>& radial,
                          int32_t rows, const T* x, const T* grad_out, double* grad_edge_vec, T* grad_x, int threads,
                          const DensityView<T>* density) {
  check(problem, graph, radial, rows, density);
  require(grad_x == nullptr || graph.col_ptr != nullptr,
          "interaction: the gradient of the features needs the transposed graph (col_ptr)");
  const auto plan = problem_plan(problem, HarmonicsOrder::by_degree);
  const KernelTable<T>& table = kernels<T>();
  const WeightView<T> weights{true, radial.table, radial.columns};
  const int lmax = problem.lmax_in2, width = table.width;
  if (grad_edge_vec != nullptr) {
    // Edges beyond their cutoff are in no tile.
    std::fill_n(grad_edge_vec, 3 * graph.n_edges, 0.0);
    const TileSource<T> source{
        graph, radial, rows, lmax, width, Side::receiver, plan->x_dim, edge_weight_row(*plan, width), density};
    over_edges(*plan, source, rows, kEdgeShape, threads, [&](TileBatch<T>& batch) {
      edge_paths(*plan, table, batch, weights, x, grad_out, true, static_cast<T*>(nullptr));
      for (int32_t k = 0; k < batch.count; ++k) edge_vector_gradient(batch.tiles[k], lmax, width, grad_edge_vec);
    });
  }
  if (grad_x != nullptr) {
    const TileSource<T> source{graph, radial, rows, lmax, width, Side::sender, plan->out_dim, gather_weight_row(width)};
    over_edges(*plan, source, graph.n_nodes, kGatherShape, threads, [&](TileBatch<T>& batch) {
      gather_paths(*plan, table, Side::sender, batch, weights, grad_out, grad_x);
    });
  }
}

template void interaction_forward(const Problem&, const GraphView&, const RadialTableView<float>&, int32_t,
                                  const float*, float*, int, const DensityView<float>*);
template void interaction_forward(const Problem&, const GraphView&, const RadialTableView<double>&, int32_t,
                                  const double*, double*, int, const DensityView<double>*);
template void interaction_backward(const Problem&, const GraphView&, const RadialTableView<float>&, int32_t,
                                   const float*, const float*, double*, float*, int, const DensityView<float>*);
template void interaction_backward(const Problem&, const GraphView&, const RadialTableView<double>&, int32_t,
                                   const double*, const double*, double*, double*, int, const DensityView<double>*);

}  // namespace clebsch::cpu
