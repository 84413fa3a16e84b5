// The generated kernels of interaction_density in the emulator against slow loops in fp64: the density beside the
// messages and its part of the vectors' gradient, on the graphs and under the plans where either could go wrong.
#include "cuda/interaction/interaction.h"
#include "emulated_interaction_case.h"

namespace clebsch::cuda {
namespace {

ScheduleOptions options_of(int units, int code, int spline = -1) {
  ScheduleOptions options;
  options.units = units;
  options.code = code;
  options.spline = spline;
  return options;
}

/// Asymmetric, two types with four cutoffs, ghosts that compute nothing in this layer, edges on knots and at cutoffs.
template <typename T>
void test_problem(const Kernels<T>& kernels) {
  std::mt19937_64 random(reference::fresh_seed());
  Case<T>(kernels, small_graph(random, 3, 4, 6, 20, 2, 3), 2, 5).compare(tolerance<T>());
}

TEST(EmulatedInteractionDensity, Float) {
  test_problem(Kernels<float>(named_problem("test-uneven").problem, {}, true));
}
TEST(EmulatedInteractionDensity, Double) {
  test_problem(Kernels<double>(named_problem("test-parity").problem, {}, true));
}

TEST(EmulatedInteractionDensity, WarpsThatShareAReceiver) {
  const Kernels<float> kernels(named_problem("mace-l1").problem, {}, true);
  ASSERT_GT(kernels.forward.schedule.units_per_launch(), 1);
  std::mt19937_64 random(reference::fresh_seed());
  Case<float>(kernels, small_graph(random, 2, 2, 3, 20), 2, 3).compare(tolerance<float>());
}

/// One of several launches makes the sum, and one adds the slope.
TEST(EmulatedInteractionDensity, SeveralLaunches) {
  const Kernels<float> kernels(named_problem("test-uneven").problem, options_of(2, 1), true);
  ASSERT_EQ(kernels.forward.schedule.launches, 2);
  ASSERT_EQ(kernels.atomic.schedule.launches, 2);
  std::mt19937_64 random(reference::fresh_seed());
  Case<float>(kernels, small_graph(random, 3, 3, 4, 12), 2, 3).compare(tolerance<float>(), 5);
}

/// The messages' tables as splines; the density's stays a table.
TEST(EmulatedInteractionDensity, BesideSplines) {
  const Kernels<double> kernels(named_problem("test-one-channel").problem, options_of(0, 0, 1), true);
  ASSERT_TRUE(kernels.forward.schedule.spline);
  std::mt19937_64 random(reference::fresh_seed());
  Case<double>(kernels, small_graph(random, 3, 4, 6, 40, 3, 3), 3, 5, 24).compare(1e-11, 33, 2);
}

/// The launcher, on a device with eight places for receivers: 4 receivers are split to fill them, of 11 the first eight
/// are whole and the others split.
TEST(EmulatedInteractionDensity, ReceiversOfTheLastRoundAreSplit) {
  std::mt19937_64 random(reference::fresh_seed());
  setenv("CLEBSCH_CUDA_INTERACTION", "blocks=1,receivers=1", 1);
  for (const bool density : {false, true}) {
    const auto problem = std::make_shared<const Problem>(Problem::parse(named_problem("test-one-channel").problem));
    const Kernels<double> kernels(problem->str(), {}, density);
    const auto launcher = Interaction::make(problem, Scalar::f64, false, density);
    for (const int32_t rows : {4, 11}) {
      SCOPED_TRACE(rows);
      Case<double> test(kernels, small_graph(random, rows, rows, rows + 1, 400), 2, 3);
      const std::vector<double> expected = test.forward();
      const std::vector<double> density_expected = test.density;
      const GraphView& g = test.graph.view;
      InteractionOperands o;
      o.x = test.x_data;
      o.edge_vec = g.edge_vec;
      o.senders = g.senders;
      o.types = g.types;
      o.table = test.table_data;
      o.table_index = test.tables.table_index.data();
      o.cutoffs = test.tables.cutoffs.data();
      o.type_count = test.tables.types;
      o.tables = static_cast<int32_t>(test.tables.values.size() / (test.tables.pieces + 1) / kTableOrder /
                                      static_cast<size_t>(problem->weight_count));
      o.pieces = test.tables.pieces;
      o.row_ptr = g.row_ptr;
      o.row_limit = g.layer_rows;
      o.graph_rows = g.n_rows;
      o.nodes = g.n_nodes;
      o.edges = g.row_ptr[g.n_rows];
      std::vector<double> sums(static_cast<size_t>(g.n_nodes), kUntouched), out(expected.size(), kUntouched);
      o.density.table = test.density_table.data();
      o.density.index = test.density_tables.table_index.data();
      o.density.tables = o.tables;
      o.density.pieces = test.density_tables.pieces;
      o.density.sum = sums.data();
      const int64_t bytes = launcher->forward_workspace(o, g.n_nodes), row = problem->out.dim() + density;
      // All receivers, or the last ones, have a row a part.
      const int64_t split = rows == 4 ? g.n_nodes : g.n_nodes - 8;
      EXPECT_GT(bytes, split * row * 8);
      EXPECT_EQ(bytes % (split * row * 8), 0);
      std::vector<char> workspace(static_cast<size_t>(bytes));
      launcher->forward(o, g.n_nodes, out.data(), workspace.data(), nullptr);
      EXPECT_LE(reference::array_error(out, expected, out.size()), 1e-12);
      if (density) {
        EXPECT_LE(reference::array_error(sums, density_expected, sums.size()), 1e-12);
      }
    }
  }
  unsetenv("CLEBSCH_CUDA_INTERACTION");
}

/// Graphs that a run meets; one small problem, so that it compiles once.
class EmulatedInteractionDensityGraph : public testing::Test {
 protected:
  static const Kernels<double>& kernels() {
    static const Kernels<double> made(named_problem("test-one-channel").problem, {}, true);
    return made;
  }
  std::mt19937_64 random{reference::fresh_seed()};
};

TEST_F(EmulatedInteractionDensityGraph, Empty) {
  Case<double>(kernels(), small_graph(random, 1, 1, 1, 0), 2, 0).compare(1e-11);         // one atom alone
  Case<double>(kernels(), small_graph(random, 3, 3, 5, 0), 2, 4).compare(1e-11);         // isolated atoms
  Case<double>(kernels(), small_graph(random, 2, 6, 8, 30, 2, 0), 2, 3).compare(1e-11);  // no row computed
  Case<double>(kernels(), small_graph(random, 1, 1, 1, 1, 1), 1, 3).compare(1e-11);      // one edge at most
}

TEST_F(EmulatedInteractionDensityGraph, ReceiversLongerThanAChunkSplitOnesAndSlabs) {
  const Graph graph = small_graph(random, 6, 7, 9, 300, 3, 5);
  for (int splits : {1, 3}) Case<double>(kernels(), graph, 3, 3).compare(1e-11, 64, splits);
}

TEST_F(EmulatedInteractionDensityGraph, FewPieces) {
  for (int pieces : {1, 24}) Case<double>(kernels(), small_graph(random, 4, 4, 4, 40), 2, 3, pieces).compare(1e-11);
}

TEST_F(EmulatedInteractionDensityGraph, SameBitsInEveryRun) {
  Case<double> test(kernels(), small_graph(random, 6, 7, 9, 300), 2, 3);
  test.forward();
  const std::vector<double> first = test.density;
  test.forward();
  EXPECT_EQ(test.density, first);
}

TEST_F(EmulatedInteractionDensityGraph, VectorsThatAreNoNumbersAndMissingTablesShow) {
  for (double component : kNotFinite) {
    Case<double> broken(kernels(), graph_with(component, random), 1, 0);
    broken.forward();
    EXPECT_TRUE(std::isnan(broken.density[0]));
    EXPECT_EQ(broken.density[1], 0.0);
  }
  const Graph graph = graph_with(1, random);
  Case<double> missing(kernels(), graph, 1, 0);
  missing.forward();
  EXPECT_FALSE(std::isnan(missing.density[0]));
  missing.density_tables.table_index[0] = -1;
  missing.forward();
  EXPECT_TRUE(std::isnan(missing.density[0]));
  EXPECT_TRUE(std::isnan(missing.backward(false).edge_vec[0]));
}

/// The densities' gradient is that of their sums, on the knots of the finer table too.
TEST_F(EmulatedInteractionDensityGraph, FiniteDifferences) {
  constexpr int kPieces = 2;
  const double cutoff = reference::pair_cutoffs(1)[0], first = std::sqrt(kTableStart);
  for (int knot = 0; knot <= 4 * kPieces; ++knot) {
    const double s = first + (std::sqrt(cutoff) - first) * knot / (4 * kPieces), r = s * s;
    Graph graph = small_graph(random, 1, 1, 2, 0, 1);
    graph.row_ptr = {0, 1};
    graph.senders = {1};
    graph.edge_vec = {0.6 * r, 0.64 * r, 0.48 * r};
    graph.finish();
    Case<double> test(kernels(), graph, 1, 0, kPieces);
    std::fill(test.gt.begin(), test.gt.end(), 0.0);
    test.grad_density[0] = 1;
    const Values gradient = test.backward(false).edge_vec;
    for (int d = 0; d < 3; ++d) {
      double& place = test.graph.graph.edge_vec[static_cast<size_t>(d)];
      const double at = place, step = 1e-7;  // short: below the first knot the curvature is another
      double ends[2];
      for (int side : {0, 1}) {
        place = at + (side ? step : -step);
        test.forward();
        ends[side] = test.density[0];
      }
      place = at;
      const double slope = gradient[static_cast<size_t>(d)];
      EXPECT_NEAR(slope, (ends[1] - ends[0]) / (2 * step), 1e-6 * (1 + std::abs(slope))) << "knot " << knot;
    }
  }
}

}  // namespace
}  // namespace clebsch::cuda
