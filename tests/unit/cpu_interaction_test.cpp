// clebsch::interaction on the CPU against slow loops in fp64: values, gradients, precision, threads, instruction sets.
#include "cpu/interaction.h"

#include <gtest/gtest.h>

#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "cpu/dispatch.h"
#include "reference.h"

namespace clebsch {
namespace {

using reference::Values;

/// Problems that interaction can do: harmonics and radial functions inside.
std::vector<std::string> problem_names() {
  std::vector<std::string> names;
  for (const NamedProblem& named : named_problems()) {
    if (Problem::parse(named.problem).radial.has_value()) names.push_back(named.name);
  }
  return names;
}

std::vector<cpu::Isa> available_isas() {
  std::vector<cpu::Isa> list;
  const cpu::Isa before = cpu::isa();
  for (cpu::Isa isa : {cpu::Isa::baseline, cpu::Isa::avx2, cpu::Isa::avx512}) {
    try {
      cpu::set_isa(isa);
      list.push_back(isa);
    } catch (const Error&) {
    }
  }
  cpu::set_isa(before);
  return list;
}

/// Restores the instruction set at the end of a test.
struct IsaGuard {
  cpu::Isa before = cpu::isa();
  ~IsaGuard() { cpu::set_isa(before); }
};

template <typename T>
struct Output {
  std::vector<T> out, grad_x;
  Values grad_edge_vec;
};

/// Values that an op must overwrite or leave alone.
constexpr double kUntouched = 12345.0;

template <typename T>
cpu::RadialTableView<T> view_of(const reference::Tables& tables, const std::vector<T>& values, int64_t columns) {
  cpu::RadialTableView<T> radial;
  radial.table = values.data();
  radial.table_index = tables.table_index.data();
  radial.cutoffs = tables.cutoffs.data();
  radial.types = tables.types;
  radial.tables = static_cast<int>(tables.table_index.size());
  radial.pieces = tables.pieces;
  radial.columns = columns;
  return radial;
}

struct Case {
  unsigned seed;
  std::mt19937_64 random;
  Problem problem;
  reference::PaddedGraph graph;
  reference::Tables tables;
  int32_t rows;
  Values x, grad_out;

  Case(const std::string& name, const reference::GraphShape& shape, int32_t rows_ = -1)
      : seed(reference::fresh_seed()),
        random(seed),
        problem(Problem::parse(named_problem(name).problem)),
        graph(reference::random_graph(shape, random), shape.padding),
        tables(reference::make_tables(reference::random_network(problem, random), shape.types)),
        rows(rows_ < 0 ? shape.n_rows : rows_),
        x(reference::random_values(shape.n_nodes * problem.in1.dim(), random)),
        grad_out(reference::random_values(shape.n_nodes * problem.out.dim(), random)) {}

  template <typename T>
  Output<T> run(int threads = 1, const cpu::DensityView<T>* sums = nullptr,
                const cpu::DensityView<T>* slopes = nullptr) const {
    const std::vector<T> table(tables.values.begin(), tables.values.end()), xt(x.begin(), x.end()),
        gt(grad_out.begin(), grad_out.end());
    const cpu::RadialTableView<T> radial = view_of(tables, table, problem.weight_count);
    Output<T> result;
    result.out.assign(graph.view.n_nodes * problem.out.dim(), static_cast<T>(kUntouched));
    result.grad_x.assign(xt.size(), static_cast<T>(kUntouched));
    result.grad_edge_vec.assign(3 * graph.view.n_edges, kUntouched);
    cpu::interaction_forward(problem, graph.view, radial, rows, xt.data(), result.out.data(), threads, sums);
    cpu::interaction_backward(problem, graph.view, radial, rows, xt.data(), gt.data(), result.grad_edge_vec.data(),
                              result.grad_x.data(), threads, slopes);
    return result;
  }

  template <typename T>
  void compare(const Output<T>& got, double tolerance) const {
    SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
    const Values out = reference::interaction_forward(problem, graph.view, rows, tables, x);
    const auto grad = reference::interaction_backward(problem, graph.view, rows, tables, x, grad_out);
    EXPECT_LE(reference::block_error(problem.out, rows, got.out, out), tolerance);
    for (size_t k = rows * problem.out.dim(); k < got.out.size(); ++k) {
      ASSERT_EQ(got.out[k], static_cast<T>(kUntouched)) << "row beyond the computed ones was written";
    }
    EXPECT_LE(reference::block_error(problem.in1, graph.view.n_nodes, got.grad_x, grad.x), tolerance);
    EXPECT_LE(reference::array_error(got.grad_edge_vec, grad.edge_vec, 3 * graph.graph.row_ptr.back()), tolerance);
  }
};

reference::GraphShape small_shape() {
  reference::GraphShape shape;
  shape.n_local = 7;
  shape.n_rows = 9;
  shape.n_nodes = 13;
  shape.max_degree = 24;
  return shape;
}

class InteractionProblem : public testing::TestWithParam<std::string> {};

TEST_P(InteractionProblem, MatchesReferenceInEveryInstructionSet) {
  const Case test(GetParam(), small_shape());
  IsaGuard guard;
  for (cpu::Isa isa : available_isas()) {
    SCOPED_TRACE(cpu::isa_name(isa));
    cpu::set_isa(isa);
    test.compare(test.run<double>(), 1e-12);
    test.compare(test.run<float>(), 1e-5);
  }
}

TEST_P(InteractionProblem, SameBitsForAnyThreadCount) {
  reference::GraphShape shape = small_shape();
  shape.n_rows = shape.n_local = shape.n_nodes = 60;
  shape.max_degree = 40;
  const Case test(GetParam(), shape);
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(test.seed));
  const Output<float> one = test.run<float>(1);
  for (int threads : {2, 3, 7}) {
    const Output<float> many = test.run<float>(threads);
    EXPECT_EQ(one.out, many.out) << threads;
    EXPECT_EQ(one.grad_x, many.grad_x) << threads;
    EXPECT_EQ(one.grad_edge_vec, many.grad_edge_vec) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, InteractionProblem, testing::ValuesIn(problem_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Interaction, GraphsOfEveryKind) {
  reference::GraphShape one_atom, isolated, single_edges, ghosts, crowded;
  one_atom.n_local = one_atom.n_rows = one_atom.n_nodes = 1;
  one_atom.max_degree = 0;
  isolated.max_degree = 0;
  single_edges.max_degree = 1;
  ghosts.n_local = 5;
  ghosts.n_rows = 11;
  ghosts.n_nodes = 40;
  crowded.n_local = crowded.n_rows = crowded.n_nodes = 3;
  crowded.max_degree = 3000;
  for (const auto& shape : {one_atom, isolated, single_edges, ghosts, crowded}) {
    const Case test("test-uneven", shape);
    test.compare(test.run<double>(), 1e-12);
    const Case vectors("nequip-S", shape);
    vectors.compare(vectors.run<double>(), 1e-12);
  }
}

TEST(Interaction, EmptyGraph) {
  reference::GraphShape shape;
  shape.n_local = shape.n_rows = shape.n_nodes = 0;
  const Case test("test-uneven", shape);
  const auto got = test.run<float>();
  for (double g : got.grad_edge_vec) EXPECT_EQ(g, 0.0);
}

TEST(Interaction, FewerRowsThanTheGraphHas) {
  const Case test("test-uneven", small_shape(), 4);
  const auto got = test.run<double>();
  test.compare(got, 1e-12);
  for (size_t k = 3 * test.graph.graph.row_ptr[4]; k < got.grad_edge_vec.size(); ++k) {
    ASSERT_EQ(got.grad_edge_vec[k], 0.0);
  }
  const Case none("test-uneven", small_shape(), 0);
  none.compare(none.run<double>(), 1e-12);
}

TEST(Interaction, GradientsAreThoseOfTheFiniteDifferences) {
  reference::GraphShape shape = small_shape();
  Case test("nequip-M", shape);
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(test.seed));
  const auto exact = test.run<double>();
  const auto energy = [&] {
    const auto out = test.run<double>().out;
    double sum = 0;
    for (size_t k = 0; k < test.rows * static_cast<size_t>(test.problem.out.dim()); ++k)
      sum += out[k] * test.grad_out[k];
    return sum;
  };
  double scale = 0;
  for (size_t k = 0; k < 3 * static_cast<size_t>(test.graph.graph.row_ptr.back()); ++k) {
    scale = std::max(scale, std::abs(exact.grad_edge_vec[k]));
  }
  const auto derivative = [&](double& variable, double step) {
    const double kept = variable;
    double values[2];
    for (int side = 0; side < 2; ++side) {
      variable = kept + (side == 0 ? -step : step);
      values[side] = energy();
    }
    variable = kept;
    return (values[1] - values[0]) / (2 * step);
  };
  for (int k = 0; k < 12; ++k) {
    const size_t edge_component = test.random() % (3 * test.graph.graph.row_ptr.back());
    EXPECT_NEAR(derivative(test.graph.graph.edge_vec[edge_component], 1e-5), exact.grad_edge_vec[edge_component],
                1e-6 * scale);
    const size_t feature = test.random() % test.x.size();
    EXPECT_NEAR(derivative(test.x[feature], 1e-3), exact.grad_x[feature], 1e-6 * scale);
  }
}

/// The density and its gradient in the pass of the messages against slow loops; rows beyond those are not written.
template <typename T>
void test_density(const reference::GraphShape& shape, int32_t rows, int threads, double tolerance) {
  Case test("test-uneven", shape, rows);
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(test.seed));
  const Problem problem =
      Problem::parse("conv in1=1x0e in2=1x0e out=1x0e paths=uvu:0,0,0,1 radial=bessel,0.4,5,6-8-1,silu,density");
  const auto tables = reference::make_tables(reference::random_network(problem, test.random), shape.types, 200);
  const std::vector<T> values(tables.values.begin(), tables.values.end());
  std::vector<T> sums(shape.n_nodes, static_cast<T>(kUntouched)), above;
  for (double g : reference::random_values(shape.n_nodes, test.random)) above.push_back(static_cast<T>(g));
  const cpu::DensityView<T> forward{view_of(tables, values, 1), sums.data(), nullptr};
  const cpu::DensityView<T> backward{view_of(tables, values, 1), nullptr, above.data()};
  auto got = test.run<T>(threads, &forward, &backward);
  const GraphView& graph = test.graph.view;
  const Values ones(shape.n_nodes, 1.0), wide(above.begin(), above.end());
  const size_t used = 3 * static_cast<size_t>(test.graph.graph.row_ptr.back());
  const Values expected = reference::interaction_forward(problem, graph, test.rows, tables, ones);
  EXPECT_LE(reference::array_error(sums, expected, test.rows), tolerance);
  for (int32_t i = test.rows; i < shape.n_nodes; ++i) EXPECT_EQ(sums[i], static_cast<T>(kUntouched));
  const auto more = reference::interaction_backward(problem, graph, test.rows, tables, ones, wide);
  auto both = reference::interaction_backward(test.problem, graph, test.rows, test.tables, test.x, test.grad_out);
  for (size_t k = 0; k < used; ++k) both.edge_vec[k] += more.edge_vec[k];
  EXPECT_LE(reference::array_error(got.grad_edge_vec, both.edge_vec, used), tolerance);
  // What has nothing to do with the density is bitwise what it is without.
  const Output<T> plain = test.run<T>(threads);
  EXPECT_EQ(plain.out, got.out);
  EXPECT_EQ(plain.grad_x, got.grad_x);
}

TEST(Interaction, DensityBesideTheMessages) {
  reference::GraphShape crowded, isolated;
  crowded.n_local = crowded.n_rows = crowded.n_nodes = 3;
  crowded.max_degree = 3000;
  crowded.types = 3;
  isolated.max_degree = 0;
  for (const auto& shape : {small_shape(), crowded, isolated}) {
    for (int threads : {1, 3}) {
      test_density<double>(shape, -1, threads, 1e-12);
      test_density<float>(shape, -1, threads, 1e-5);
    }
  }
  test_density<double>(small_shape(), 4, 1, 1e-12);
  test_density<double>(small_shape(), 0, 1, 1e-12);
}

TEST(Interaction, PairWithoutTableIsAnErrorOnlyWhenAnEdgeNeedsIt) {
  Case test("test-uneven", small_shape());
  for (int32_t& index : test.tables.table_index) index = -1;
  EXPECT_THROW(test.run<float>(), Error);
  for (double& cutoff : test.tables.cutoffs) cutoff = 0.1;
  for (float v : test.run<float>().grad_x) EXPECT_EQ(v, 0.0f);
}

TEST(Interaction, VectorsThatAreNoNumbersShowInTheResult) {
  Case test("test-uneven", small_shape());
  for (size_t k = 0; k < 3 * static_cast<size_t>(test.graph.graph.row_ptr.back()); ++k)
    test.graph.graph.edge_vec[k] = NAN;
  const auto got = test.run<float>();
  EXPECT_TRUE(std::isnan(got.grad_edge_vec[0]));
}

TEST(Interaction, MissingTransposeIsAnError) {
  Case test("test-uneven", small_shape());
  test.graph.view.col_ptr = nullptr;
  EXPECT_THROW(test.run<float>(), Error);
}

}  // namespace
}  // namespace clebsch
