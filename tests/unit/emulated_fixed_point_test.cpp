// dX as sums of integers (kernels/fixed_point.h), with the launcher: right, the same bits whatever the
// order of the edges and the unit of the gradient, and not a number where an integer cannot hold it.
#include <numeric>

#include "cuda/kernels/fixed_point.h"
#include "emulated_interaction_launch.h"

namespace clebsch::cuda {
namespace {

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
