// The generated interaction kernels in the emulator against slow loops in fp64: values, gradients, deterministic and
// atomic, and graphs with every oddity that a run can have.
#include "emulated_interaction_case.h"

namespace clebsch::cuda {
namespace {

template <typename T>
void test_problem(const std::string& name, int degree) {
  const Kernels<T> kernels(named_problem(name).problem);
  std::mt19937_64 random(reference::fresh_seed());
  // Asymmetric, two types with four cutoffs, ghosts that compute nothing in this layer, edges on knots and at cutoffs.
  Case<T>(kernels, small_graph(random, 3, 4, 6, degree, 2, 3), 2, 5).compare(tolerance<T>());
}

TEST(EmulatedInteraction, UnevenChannelsFloat) { test_problem<float>("test-uneven", 20); }
TEST(EmulatedInteraction, UnevenChannelsDouble) { test_problem<double>("test-uneven", 20); }
TEST(EmulatedInteraction, BothParitiesFloat) { test_problem<float>("test-parity", 12); }
TEST(EmulatedInteraction, UnsortedBlocksDouble) { test_problem<double>("test-unsorted", 12); }

TEST(EmulatedInteraction, WarpsThatShareAReceiver) {
  // Four warps a receiver in fp32, several launches in fp64.
  const Kernels<float> kernels(named_problem("mace-l1").problem);
  std::mt19937_64 random(reference::fresh_seed());
  Case<float>(kernels, small_graph(random, 2, 2, 3, 20), 2, 3).compare(tolerance<float>());
}

TEST(EmulatedInteraction, SeveralLaunchesAddUp) {
  ScheduleOptions options;
  options.units = 2;
  options.code = 1;
  const Kernels<float> kernels(named_problem("test-uneven").problem, options);
  ASSERT_EQ(kernels.atomic.schedule.launches, 2);
  std::mt19937_64 random(reference::fresh_seed());
  Case<float>(kernels, small_graph(random, 3, 3, 4, 12), 2, 3).compare(tolerance<float>(), 5);
}

TEST(EmulatedInteraction, PathWithoutWeights) {
  std::mt19937_64 random(reference::fresh_seed());
  const Kernels<double> kernels(named_problem("test-weightless").problem + " radial=bessel,0.08,6,8-16-12,silu");
  Graph graph = small_graph(random, 3, 4, 5, 12);
  for (double& c : graph.edge_vec) c *= 0.8;  // the reference has no cutoff without a weight
  Case<double>(kernels, graph, 2, 3).compare(tolerance<double>());
}

ScheduleOptions with_splines() {
  ScheduleOptions options;
  options.spline = 1;
  return options;
}

/// Tables as splines: several types, edges on knots, below the first and beyond the cutoffs, long and split receivers.
template <typename T>
void test_splines(const std::string& name, int degree) {
  const Kernels<T> kernels(named_problem(name).problem, with_splines());
  ASSERT_TRUE(kernels.forward.schedule.spline && kernels.atomic.schedule.spline);
  std::mt19937_64 random(reference::fresh_seed());
  for (int pieces : {1, 7, 96}) {
    Case<T>(kernels, small_graph(random, 3, 4, 6, degree, 3, 3), 3, 5, pieces).compare(tolerance<T>(), 33, 2);
  }
}

TEST(EmulatedInteraction, SplinesFloat) { test_splines<float>("test-uneven", 40); }
TEST(EmulatedInteraction, SplinesDouble) { test_splines<double>("test-one-channel", 300); }

TEST(EmulatedInteraction, SplinesOfVectorsThatAreNoNumbers) {
  const Kernels<double> kernels(named_problem("test-one-channel").problem, with_splines());
  std::mt19937_64 random(reference::fresh_seed());
  for (double component : kNotFinite) {
    Case<double> broken(kernels, graph_with(component, random), 1, 0);
    EXPECT_TRUE(std::isnan(broken.forward()[0]));
    EXPECT_TRUE(std::isnan(broken.backward(false).edge_vec[3]));
  }
}

/// Pieces by their own coefficients in both passes, and sums over lanes through shared memory.
ScheduleOptions with_pieces_and_lanes() {
  ScheduleOptions options;
  options.horner = 2;
  options.lanes = 1;
  return options;
}

template <typename T>
void test_pieces_and_lanes(const std::string& name, int degree) {
  const Kernels<T> kernels(named_problem(name).problem, with_pieces_and_lanes());
  ASSERT_TRUE(kernels.forward.schedule.horner && kernels.atomic.schedule.horner);
  ASSERT_EQ(kernels.atomic.schedule.lanes, sizeof(T) == 4);
  std::mt19937_64 random(reference::fresh_seed());
  // A single piece has coefficients so much larger than its values that powers of the place lose a digit in fp32.
  for (int pieces : {sizeof(T) == 4 ? 8 : 1, 24}) {
    SCOPED_TRACE(pieces);
    Case<T>(kernels, small_graph(random, 3, 4, 6, degree, 2, 3), 2, 5, pieces).compare(tolerance<T>(), 33, 2);
  }
}

TEST(EmulatedInteraction, PiecesAndLanesFloat) { test_pieces_and_lanes<float>("test-uneven", 40); }
TEST(EmulatedInteraction, PiecesAndLanesOfHighDegree) { test_pieces_and_lanes<float>("test-l7", 12); }
TEST(EmulatedInteraction, PiecesAndLanesDouble) { test_pieces_and_lanes<double>("test-one-channel", 60); }
TEST(EmulatedInteraction, PiecesAndLanesOfWarpsThatShareAReceiver) { test_pieces_and_lanes<float>("mace-l1", 20); }

TEST(EmulatedInteraction, PiecesOfVectorsThatAreNoNumbers) {
  const Kernels<double> kernels(named_problem("test-one-channel").problem, with_pieces_and_lanes());
  std::mt19937_64 random(reference::fresh_seed());
  for (double component : kNotFinite) {
    Case<double> broken(kernels, graph_with(component, random), 1, 0);
    EXPECT_TRUE(std::isnan(broken.forward()[0]));
    EXPECT_TRUE(std::isnan(broken.backward(false).edge_vec[3]));
  }
}

/// Graphs that a run meets; one small problem, so that it compiles once.
class EmulatedInteractionGraph : public testing::Test {
 protected:
  static const Kernels<double>& kernels() {
    static const Kernels<double> made(named_problem("test-one-channel").problem);
    return made;
  }
  std::mt19937_64 random{reference::fresh_seed()};
};

TEST_F(EmulatedInteractionGraph, Empty) {
  Case<double>(kernels(), small_graph(random, 0, 0, 0, 0), 2, 4).compare(1e-11);
  Case<double>(kernels(), small_graph(random, 1, 1, 1, 0), 2, 0).compare(1e-11);  // one atom alone
  Case<double>(kernels(), small_graph(random, 3, 3, 5, 0), 2, 4).compare(1e-11);  // isolated atoms
}

TEST_F(EmulatedInteractionGraph, OneAtomThatSeesItsImages) {
  Case<double>(kernels(), small_graph(random, 1, 1, 1, 40, 1), 1, 3).compare(1e-11);
}

TEST_F(EmulatedInteractionGraph, ReceiversLongerThanAChunkAndSplitOnes) {
  const Graph graph = small_graph(random, 6, 7, 9, 300, 3);
  for (int splits : {1, 3}) Case<double>(kernels(), graph, 3, 3).compare(1e-11, int64_t{1} << 20, splits);
}

TEST_F(EmulatedInteractionGraph, SlabsOfEdges) {
  const Graph graph = small_graph(random, 6, 7, 9, 50);
  for (int64_t slab : {1, 7, 64}) Case<double>(kernels(), graph, 2, 5).compare(1e-11, slab);
}

TEST_F(EmulatedInteractionGraph, FewPieces) {
  for (int pieces : {1, 2, 24}) Case<double>(kernels(), small_graph(random, 4, 4, 4, 40), 2, 3, pieces).compare(1e-11);
}

TEST_F(EmulatedInteractionGraph, RowsBeyondTheLayerAreZero) {
  Case<double>(kernels(), small_graph(random, 2, 6, 8, 30, 2, 0), 2, 3).compare(1e-11);
  Case<double>(kernels(), small_graph(random, 2, 6, 8, 30, 2, 2), 2, 3).compare(1e-11);
}

TEST_F(EmulatedInteractionGraph, EdgesBeyondTheirCutoffsGiveNothing) {
  Graph graph = small_graph(random, 3, 3, 3, 20);
  for (double& c : graph.edge_vec) c *= 100;
  Case<double> test(kernels(), graph, 2, 3);
  for (double value : test.forward()) EXPECT_EQ(value, 0.0);
  for (bool deterministic : {true, false}) {
    const auto grad = test.backward(deterministic);
    for (double value : grad.x) EXPECT_EQ(value, 0.0);
    for (int k = 0; k < 3 * graph.row_ptr.back(); ++k) EXPECT_EQ(grad.edge_vec[static_cast<size_t>(k)], 0.0);
  }
}

TEST_F(EmulatedInteractionGraph, VectorsThatAreNoNumbersAndMissingTablesShow) {
  for (double component : kNotFinite) {
    Case<double> broken(kernels(), graph_with(component, random), 1, 0);
    EXPECT_TRUE(std::isnan(broken.forward()[0]));
    EXPECT_TRUE(std::isnan(broken.backward(false).edge_vec[3]));
  }
  const Graph graph = graph_with(1, random);
  Case<double> missing(kernels(), graph, 1, 0);
  EXPECT_FALSE(std::isnan(missing.forward()[0]));
  missing.tables.table_index[0] = -1;
  EXPECT_TRUE(std::isnan(missing.forward()[0]));
}

/// Moving one edge across every knot and the cutoff: the energy is continuous and its gradient is the kernels'.
TEST_F(EmulatedInteractionGraph, GradientIsThatOfTheSumOnEveryKnot) {
  constexpr int kPieces = 6;
  const double cutoff = reference::pair_cutoffs(1)[0], first = std::sqrt(kTableStart);
  for (int knot = 0; knot <= kPieces; ++knot) {
    const double s = first + (std::sqrt(cutoff) - first) * knot / kPieces, r = s * s;
    Graph graph = small_graph(random, 1, 1, 2, 0, 1);
    graph.row_ptr = {0, 1};
    graph.senders = {1};
    graph.edge_vec = {0.6 * r, 0.64 * r, 0.48 * r};
    graph.finish();
    Case<double> test(kernels(), graph, 1, 0, kPieces);
    const auto energy = [&] {
      const std::vector<double> out = test.forward();
      double sum = 0;
      for (int64_t k = 0; k < test.problem.out.dim(); ++k) sum += out[k] * test.gt[k];
      return sum;
    };
    const Values gradient = test.backward(false).edge_vec;
    for (int d = 0; d < 3; ++d) {
      double& place = test.graph.graph.edge_vec[static_cast<size_t>(d)];
      const double at = place, step = 1e-7;  // short: below the first knot the curvature is another
      place = at + step;
      const double above = energy();
      place = at - step;
      const double below = energy();
      place = at;
      const double slope = gradient[static_cast<size_t>(d)];
      EXPECT_NEAR(slope, (above - below) / (2 * step), 1e-6 * (1 + std::abs(slope))) << "knot " << knot;
    }
  }
}

}  // namespace
}  // namespace clebsch::cuda
