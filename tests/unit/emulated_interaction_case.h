// One problem and graph for the generated interaction kernels in the emulator, and the slow loops they are compared
// with.
#pragma once

#include <gtest/gtest.h>

#include <limits>

#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "core/radial/radial_spline.h"
#include "cuda/emit/reductions.h"
#include "cuda/interaction/interaction.h"
#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/driver.h"
#include "reference.h"

namespace clebsch::cuda {

using reference::Values;

/// Kernels of a source, launched one by one: slabs and splits of small graphs are not what the launcher would choose.
class Program {
 public:
  Program(const std::string& source, const std::vector<std::string>& names)
      : names_(names),
        kernels_(load_module(cached_compile(CubinCache::standard(), source, names[0], 90).code, names)) {}
  void launch(const std::string& name, int64_t grid_x, int64_t grid_y, int threads,
              std::vector<void*> arguments) const {
    const auto place = std::find(names_.begin(), names_.end(), name) - names_.begin();
    kernels_.at(static_cast<size_t>(place)).launch(grid_x, grid_y, threads, nullptr, std::move(arguments));
  }

 private:
  std::vector<std::string> names_;
  std::vector<Kernel> kernels_;
};

/// What is summed beside the messages, for kernels with a density.
constexpr const char* kDensityProblem =
    "conv in1=1x0e in2=1x0e out=1x0e paths=uvu:0,0,0,1 radial=bessel,0.4,5,6-8-1,silu,density";

/// The kernels of a problem and dtype, compiled once a process.
template <typename T>
struct Kernels {
  static constexpr Scalar kScalar = sizeof(T) == 4 ? Scalar::f32 : Scalar::f64;
  Problem problem;
  bool density;
  KernelSource forward, deterministic, atomic;
  Program forward_program, deterministic_program, atomic_program, sums;

  explicit Kernels(const std::string& text, const ScheduleOptions& options = {}, bool with_density = false)
      : problem(Problem::parse(text)),
        density(with_density),
        forward(interaction_forward_source(problem, kScalar, {}, options, density)),
        deterministic(interaction_backward_source(problem, kScalar, {true, true, true}, {}, options, density)),
        atomic(interaction_backward_source(problem, kScalar, {true, true, false}, {}, options, density)),
        forward_program(forward.source, {forward.name}),
        deterministic_program(deterministic.source, {deterministic.name}),
        atomic_program(atomic.source, {atomic.name}),
        sums(interaction_sums_source(problem, deterministic.schedule), {"sum_slab", "sum_parts"}) {}
};

/// Calls f(first unit) for every launch of a schedule.
template <typename F>
void each_launch(const Schedule& schedule, F&& f) {
  for (int unit = 0; unit < static_cast<int>(schedule.units.size()); unit += schedule.units_per_launch()) f(unit);
}

inline int64_t blocks(const Schedule& schedule, int64_t rows) {
  return (rows + schedule.receivers_per_block - 1) / schedule.receivers_per_block;
}

constexpr double kUntouched = 12345.0;

/// The tables' splines as the kernels read them, table after table; the tables' own pieces become those splines, so
/// that the reference evaluates the same functions.
inline Values take_splines(reference::Tables& tables, int64_t columns) {
  const auto size = static_cast<size_t>((tables.pieces + 1) * kTableOrder * columns);
  Values splines;
  for (size_t first = 0; first < tables.values.size(); first += size) {
    double* table = tables.values.data() + first;
    const Values one = radial_spline(Values(table, table + size), tables.pieces, columns);
    const Values pieces = spline_pieces(one, tables.pieces, columns);
    std::copy(pieces.begin(), pieces.end(), table);
    splines.insert(splines.end(), one.begin(), one.end());
  }
  return splines;
}

template <typename T>
struct Case {
  unsigned seed = reference::fresh_seed();
  std::mt19937_64 random{seed};
  const Kernels<T>& kernels;
  const Problem& problem;
  reference::PaddedGraph graph;
  reference::Tables tables;
  int32_t rows;
  Values x, grad_out;
  std::vector<T> table, xt, gt;
  const void *x_data, *table_data, *grad_data;
  const Problem density_problem = Problem::parse(kDensityProblem);
  reference::Tables density_tables;
  std::vector<T> density_table, density, grad_density;  ///< density: of the last forward(), (nodes)

  Case(const Kernels<T>& k, Graph source, int types, int64_t padding, int pieces = kTablePieces)
      : kernels(k),
        problem(k.problem),
        graph(std::move(source), padding),
        tables(reference::make_tables(reference::random_network(problem, random), types, pieces)),
        rows(graph.graph.layer_rows[0]),
        x(reference::random_values(graph.view.n_nodes * problem.in1.dim(), random)),
        grad_out(reference::random_values(graph.view.n_nodes * problem.out.dim(), random)),
        table(numbers(kernels.forward.schedule.spline ? take_splines(tables, problem.weight_count) : tables.values)),
        xt(x.begin(), x.end()),
        gt(grad_out.begin(), grad_out.end()),
        x_data(xt.data()),
        table_data(table.data()),
        grad_data(gt.data()),
        density_tables(reference::make_tables(reference::random_network(density_problem, random), types, 4 * pieces)),
        density_table(numbers(density_tables.values)),
        grad_density(numbers(reference::random_values(graph.view.n_nodes, random))) {}

  static std::vector<T> numbers(const Values& values) { return {values.begin(), values.end()}; }

  /// Arguments up to graph_rows.
  std::vector<void*> head(int& unit) {
    static const int32_t* none = nullptr;
    GraphView& g = graph.view;
    index = tables.table_index.data();
    cutoffs = tables.cutoffs.data();
    return {&x_data,
            &g.edge_vec,
            &g.senders,
            &g.types,
            &table_data,
            &index,
            &cutoffs,
            &types_,
            &tables.pieces,
            &g.row_ptr,
            g.layer_rows ? &g.layer_rows : &none,
            &unit,
            &g.n_rows};
  }

  /// The arguments behind the outputs; `last`: the address of the density or of its gradient.
  void add_density(std::vector<void*>& arguments, void* last) {
    if (!kernels.density) return;
    density_data = density_table.data();
    density_index = density_tables.table_index.data();
    ratio = static_cast<double>(density_tables.pieces) / tables.pieces;
    arguments.insert(arguments.end(), {&density_data, &density_index, &density_tables.pieces, &ratio, last});
  }

  /// With `splits`, the first third of the receivers is whole all the same.
  std::vector<T> forward(int splits = 1) {
    types_ = tables.types;
    const Schedule& schedule = kernels.forward.schedule;
    int32_t out_rows = graph.view.n_nodes;
    const int group = schedule.receivers_per_block;
    const int32_t whole = splits > 1 ? out_rows / (3 * group) * group : out_rows;
    std::vector<T> out(out_rows * problem.out.dim(), kUntouched);
    density.assign(out_rows, kUntouched);
    launch_forward(0, whole, out_rows, 1, out.data(), density.data());
    if (whole == out_rows) return out;
    const int32_t rows = out_rows - whole;
    long long count = rows * problem.out.dim(), density_count = rows;
    std::vector<T> parts(splits * count, kUntouched), density_parts(splits * rows, kUntouched);
    launch_forward(whole, rows, rows, splits, parts.data(), density_parts.data());
    void *from = parts.data(), *to = out.data() + whole * problem.out.dim();
    kernels.sums.launch("sum_parts", (count + kReductionThreads - 1) / kReductionThreads, 1, kReductionThreads,
                        {&from, &count, &splits, &to});
    from = density_parts.data();
    to = density.data() + whole;
    kernels.sums.launch("sum_parts", 1, 1, kReductionThreads, {&from, &density_count, &splits, &to});
    return out;
  }

  /// Receivers from `first` on, `rows` of them in `splits` parts of part_rows rows.
  void launch_forward(int32_t first, int32_t rows, int32_t part_rows, int splits, void* target, void* density_target) {
    if (rows == 0) return;
    int32_t out_rows = graph.view.n_nodes;
    const Schedule& schedule = kernels.forward.schedule;
    each_launch(schedule, [&](int unit) {
      std::vector<void*> arguments = head(unit);
      arguments.insert(arguments.end(), {&out_rows, &first, &part_rows, &target});
      add_density(arguments, &density_target);
      kernels.forward_program.launch(kernels.forward.name, blocks(schedule, rows), splits, schedule.threads(),
                                     arguments);
    });
  }

  struct Gradients {
    std::vector<T> x;
    Values edge_vec;
  };

  Gradients backward(bool deterministic, int64_t slab = int64_t{1} << 20, int splits = 1) {
    types_ = tables.types;
    const KernelSource& kernel = deterministic ? kernels.deterministic : kernels.atomic;
    const Program& program = deterministic ? kernels.deterministic_program : kernels.atomic_program;
    const Schedule& schedule = kernel.schedule;
    const int64_t edges = graph.view.n_edges, nodes = graph.view.n_nodes;
    const int parts = max_input_parts(problem, schedule);
    Gradients grad{std::vector<T>(xt.size(), deterministic ? kUntouched : 0.0), Values(3 * edges, kUntouched)};
    std::vector<T> workspace(std::min(edges, slab) * parts * problem.in1.dim(), std::numeric_limits<T>::quiet_NaN());
    T *x_target = deterministic ? workspace.data() : grad.x.data(), *result = grad.x.data(),
      *rows_data = workspace.data();
    double* vectors = grad.edge_vec.data();
    const void* from_density = grad_density.data();
    for (int64_t first = 0; first == 0 || first < edges; first += slab) {
      int32_t begin = static_cast<int32_t>(first), end = static_cast<int32_t>(std::min(edges, first + slab));
      each_launch(schedule, [&](int unit) {
        std::vector<void*> arguments = head(unit);
        arguments.insert(arguments.end(), {&grad_data, &begin, &end, &x_target, &vectors, &adds_vectors_});
        add_density(arguments, &from_density);
        program.launch(kernel.name, blocks(schedule, graph.view.n_rows), splits, schedule.threads(), arguments);
      });
      if (deterministic) {
        kernels.sums.launch("sum_slab", nodes, 1, kReductionThreads,
                            {&rows_data, &graph.view.col_ptr, &graph.view.col_edge, &begin, &end, &result});
      }
    }
    return grad;
  }

  void compare(double tolerance, int64_t slab = int64_t{1} << 20, int splits = 1) {
    SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
    const std::vector<T> out = forward(splits);
    const Values expected = reference::interaction_forward(problem, graph.view, rows, tables, x);
    EXPECT_LE(reference::block_error(problem.out, graph.view.n_nodes, out, expected), tolerance);
    auto grad = reference::interaction_backward(problem, graph.view, rows, tables, x, grad_out);
    if (kernels.density) {
      const Values ones(graph.view.n_nodes, 1.0), above(grad_density.begin(), grad_density.end());
      const Values sums = reference::interaction_forward(density_problem, graph.view, rows, density_tables, ones);
      EXPECT_LE(reference::array_error(density, sums, sums.size()), tolerance);
      const auto more = reference::interaction_backward(density_problem, graph.view, rows, density_tables, ones, above);
      for (size_t k = 0; k < grad.edge_vec.size(); ++k) grad.edge_vec[k] += more.edge_vec[k];
    }
    const size_t used = 3 * static_cast<size_t>(graph.graph.row_ptr.back());
    for (bool deterministic : {true, false}) {
      SCOPED_TRACE(deterministic ? "deterministic" : "atomic");
      const Gradients got = backward(deterministic, deterministic ? slab : int64_t{1} << 20, splits);
      EXPECT_LE(reference::block_error(problem.in1, graph.view.n_nodes, got.x, grad.x), tolerance);
      EXPECT_LE(reference::array_error(got.edge_vec, grad.edge_vec, used), tolerance);
      for (size_t k = used; k < got.edge_vec.size(); ++k) ASSERT_EQ(got.edge_vec[k], kUntouched) << "padding written";
      if (deterministic) {
        const Gradients again = backward(true, slab, splits);
        EXPECT_EQ(std::memcmp(again.x.data(), got.x.data(), got.x.size() * sizeof(T)), 0);
        EXPECT_EQ(std::memcmp(again.edge_vec.data(), got.edge_vec.data(), used * sizeof(double)), 0);
      }
    }
  }

 private:
  int types_ = 0, adds_vectors_ = 0;
  const int32_t* index = nullptr;
  const double* cutoffs = nullptr;
  const void* density_data = nullptr;
  const int32_t* density_index = nullptr;
  double ratio = 1;
};

template <typename T>
double tolerance() {
  return sizeof(T) == 4 ? 2e-5 : 1e-11;
}

inline Graph small_graph(std::mt19937_64& random, int32_t local, int32_t rows, int32_t nodes, int degree, int types = 2,
                         int32_t layer_rows = -1) {
  reference::GraphShape shape;
  shape.n_local = local;
  shape.n_rows = rows;
  shape.n_nodes = nodes;
  shape.max_degree = degree;
  shape.types = types;
  Graph graph = reference::random_graph(shape, random);
  if (layer_rows >= 0) graph.layer_rows.assign(1, layer_rows);
  return graph;
}

/// What a component of an edge vector must not be.
constexpr double kNotFinite[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity()};

/// One receiver with two edges from another node, the second of which has that component.
inline Graph graph_with(double component, std::mt19937_64& random) {
  Graph graph = small_graph(random, 1, 1, 2, 0, 1);
  graph.row_ptr = {0, 2};
  graph.senders = {1, 1};
  graph.edge_vec = {1, 1, 1, component, 0, 0};
  graph.finish();
  return graph;
}

}  // namespace clebsch::cuda
