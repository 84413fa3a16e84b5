// dX as sums of integers (kernels/fixed_point.h), with the launcher: right, the same bits whatever the
// order of the edges and the unit of the gradient, and not a number where an integer cannot hold it.
#include <numeric>

#include "cuda/kernels/fixed_point.h"
#include "emulated_interaction_case.h"

namespace clebsch::cuda {
namespace {

constexpr InteractionOutputs kBoth{true, true, true};

/// A case and what a test may change of it.
struct Launch {
  Case<float>& test;
  std::vector<int32_t> senders, col_ptr;
  std::vector<double> edge_vec;
  std::vector<float> grad_out, table;

  explicit Launch(Case<float>& c)
      : test(c),
        senders(c.graph.graph.senders),
        col_ptr(c.graph.graph.col_ptr),
        edge_vec(c.graph.graph.edge_vec),
        grad_out(c.gt),
        table(c.table) {}

  struct Gradients {
    std::vector<float> x;
    Values edge_vec;
  };

  Gradients backward(const InteractionOutputs& wanted = kBoth) const {
    const GraphView& g = test.graph.view;
    const bool density = test.kernels.density;
    const auto kernels = Interaction::make(cached_problem(test.problem.str()), Scalar::f32,
                                           test.kernels.forward.schedule.spline, density);
    InteractionOperands o;
    o.x = test.xt.data();
    o.edge_vec = edge_vec.data();
    o.senders = senders.data();
    o.types = g.types;
    o.table = table.data();
    o.table_index = test.tables.table_index.data();
    o.cutoffs = test.tables.cutoffs.data();
    o.type_count = test.tables.types;
    o.tables =
        static_cast<int32_t>(*std::max_element(test.tables.table_index.begin(), test.tables.table_index.end())) + 1;
    o.pieces = test.tables.pieces;
    o.row_ptr = g.row_ptr;
    o.col_ptr = col_ptr.data();
    o.col_edge = g.col_edge;
    o.row_limit = g.layer_rows;
    o.graph_rows = g.n_rows;
    o.nodes = g.n_nodes;
    o.edges = g.n_edges;
    if (density) {
      o.density.table = test.density_table.data();
      o.density.index = test.density_tables.table_index.data();
      o.density.tables = o.tables;
      o.density.pieces = test.density_tables.pieces;
      o.density.grad = test.grad_density.data();
    }
    Gradients grad{std::vector<float>(test.xt.size(), kUntouched), Values(edge_vec.size(), kUntouched)};
    std::vector<int64_t> scratch(static_cast<size_t>(kernels->backward_workspace(o, wanted) + 7) / 8, 77);
    kernels->backward(o, wanted, grad_out.data(), grad.x.data(), grad.edge_vec.data(), scratch.data(), nullptr);
    return grad;
  }
};

void expect_right(const Case<float>& test, const Launch::Gradients& got) {
  auto grad =
      reference::interaction_backward(test.problem, test.graph.view, test.rows, test.tables, test.x, test.grad_out);
  if (test.kernels.density) {
    const Values ones(test.graph.view.n_nodes, 1.0), above(test.grad_density.begin(), test.grad_density.end());
    const auto more = reference::interaction_backward(test.density_problem, test.graph.view, test.rows,
                                                      test.density_tables, ones, above);
    for (size_t k = 0; k < grad.edge_vec.size(); ++k) grad.edge_vec[k] += more.edge_vec[k];
  }
  const size_t used = 3 * static_cast<size_t>(test.graph.graph.row_ptr.back());
  EXPECT_LE(reference::block_error(test.problem.in1, test.graph.view.n_nodes, got.x, grad.x), tolerance<float>());
  EXPECT_LE(reference::array_error(got.edge_vec, grad.edge_vec, used), tolerance<float>());
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class EmulatedFixedPoint : public testing::Test {
 protected:
  void SetUp() override { setenv("CLEBSCH_CUDA_INTERACTION", "integers=1", 1); }
  void TearDown() override { unsetenv("CLEBSCH_CUDA_INTERACTION"); }
  static const Kernels<float>& kernels() {
    static const Kernels<float> made(named_problem("test-uneven").problem);
    return made;
  }
  std::mt19937_64 random{reference::fresh_seed()};
  Case<float> test{kernels(), small_graph(random, 3, 4, 6, 40, 2, 3), 2, 5};
};

TEST_F(EmulatedFixedPoint, AsInFloat64) { expect_right(test, Launch(test).backward()); }

TEST_F(EmulatedFixedPoint, WarpsThatShareAReceiver) {
  const Kernels<float> several(named_problem("mace-l1").problem);
  Case<float> other(several, small_graph(random, 2, 2, 3, 20), 2, 3);
  expect_right(other, Launch(other).backward());
}

TEST_F(EmulatedFixedPoint, BesideADensity) {
  const Kernels<float> dense(named_problem("test-uneven").problem, {}, true);
  Case<float> other(dense, small_graph(random, 3, 4, 6, 20, 2, 3), 2, 5);
  expect_right(other, Launch(other).backward());
}

TEST_F(EmulatedFixedPoint, WithoutVectors) {
  Launch run(test);
  const auto alone = run.backward({true, false, true});
  EXPECT_TRUE(same_bits(alone.x, run.backward().x));
  for (const double value : alone.edge_vec) EXPECT_EQ(value, kUntouched);
}

TEST_F(EmulatedFixedPoint, NoGraph) {
  Case<float> empty(kernels(), small_graph(random, 3, 3, 5, 0), 2, 4);
  for (const float value : Launch(empty).backward().x) EXPECT_EQ(value, 0.0f);
}

TEST_F(EmulatedFixedPoint, TheOrderOfEdgesDoesNotMatter) {
  Launch run(test);
  const auto before = run.backward();
  const std::vector<int32_t>& row_ptr = test.graph.graph.row_ptr;
  for (size_t row = 0; row + 1 < row_ptr.size(); ++row) {
    std::vector<int32_t> order(static_cast<size_t>(row_ptr[row + 1] - row_ptr[row]));
    std::iota(order.begin(), order.end(), row_ptr[row]);
    const std::vector<int32_t> sorted = order;
    std::shuffle(order.begin(), order.end(), random);
    for (size_t i = 0; i < order.size(); ++i) {
      run.senders[sorted[i]] = test.graph.graph.senders[order[i]];
      for (int d = 0; d < 3; ++d) run.edge_vec[3 * sorted[i] + d] = test.graph.graph.edge_vec[3 * order[i] + d];
    }
  }
  EXPECT_TRUE(same_bits(run.backward().x, before.x));
}

TEST_F(EmulatedFixedPoint, AnyUnitOfTheGradient) {
  Launch run(test);
  const auto before = run.backward();
  for (const float power : {0x1p-70f, 0x1p-30f, 0x1p20f, 0x1p70f}) {
    SCOPED_TRACE(power);
    for (size_t i = 0; i < run.grad_out.size(); ++i) run.grad_out[i] = test.gt[i] * power;
    auto scaled = run.backward();
    for (float& value : scaled.x) value /= power;
    EXPECT_TRUE(same_bits(scaled.x, before.x));
  }
}

TEST_F(EmulatedFixedPoint, WhatIntegersDoNotHoldIsNotANumber) {
  const auto right = Launch(test).backward();
  const auto expect_unknown = [&](const Launch& run, double factor = 0) {
    const auto got = run.backward();
    bool some = false;
    for (size_t i = 0; i < got.x.size(); ++i) {
      some = some || std::isnan(got.x[i]);
      // A sender whose terms are all small, as on edges at the cutoff, is right.
      const double scaled = factor * right.x[i];
      EXPECT_TRUE(std::isnan(got.x[i]) || right.x[i] == 0 || std::abs(got.x[i] - scaled) < 1e-3 * std::abs(scaled))
          << i;
    }
    EXPECT_TRUE(some);
  };
  Launch large(test);  // terms far larger than the largest incoming gradient
  for (float& value : large.table) value *= 1e8f;
  expect_unknown(large, 1e8);
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Launch broken(test);
    broken.grad_out[0] = value;
    expect_unknown(broken);
  }
  Launch long_sums(test);
  for (size_t node = 0; node < long_sums.col_ptr.size(); ++node)
    long_sums.col_ptr[node] = static_cast<int32_t>(node << kTermsExponent);
  expect_unknown(long_sums);
  Launch vector(test);
  vector.edge_vec[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(vector.backward().x[static_cast<size_t>(vector.senders[0]) * test.problem.in1.dim()]));
}

}  // namespace
}  // namespace clebsch::cuda
