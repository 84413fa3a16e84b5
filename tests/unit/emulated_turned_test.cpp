// The backward pass by sender (InteractionOutputs::turned), with the launcher: right, the same bits in every run, also
// where rows are not computed, inputs are not read and vectors are not finite.
#include "emulated_interaction_launch.h"

namespace clebsch::cuda {
namespace {

/// Scalars alone come out, as of NequIP's last layer.
constexpr const char* kLastLayer =
    "conv in1=40x0e+33x1o+64x2e in2=1x0e+1x1o+1x2e out=40x0e+33x0e+64x0e "
    "paths=uvu:0,0,0,1;uvu:1,1,1,0.75;uvu:2,2,2,1.25 radial=bessel,0.4,6,8-16-137,silu";
/// Two paths share an input, one has an odd sum of degrees, one input is not read.
constexpr const char* kMixed =
    "conv in1=8x0e+8x1o+8x2e in2=1x0e+1x1o out=8x0e+8x1o+8x1e+8x1o "
    "paths=uvu:0,1,1,1.7;uvu:1,1,0,1;uvu:1,1,2,1.2;uvu:1,0,3,0.5 radial=bessel,0.4,6,8-16-32,silu";

class EmulatedTurned : public testing::Test {
 protected:
  void SetUp() override { setenv("CLEBSCH_CUDA_INTERACTION", "turned=1", 1); }
  void TearDown() override { unsetenv("CLEBSCH_CUDA_INTERACTION"); }
  static const Kernels<float>& kernels() {
    static const Kernels<float> made(kLastLayer);
    return made;
  }
  std::mt19937_64 random{reference::fresh_seed()};
};

TEST_F(EmulatedTurned, AsInFloat64) {
  Case<float> test(kernels(), small_graph(random, 3, 4, 6, 40, 2, 4), 2, 5);
  const auto got = Launch(test).backward();
  expect_right(test, got);
  EXPECT_TRUE(same_bits(Launch(test).backward().x, got.x));
}

TEST_F(EmulatedTurned, RowsThatAreNotComputed) {
  Case<float> test(kernels(), small_graph(random, 2, 5, 7, 20, 2, 3), 2, 3);
  expect_right(test, Launch(test).backward());
}

TEST_F(EmulatedTurned, EverySharingOfPaths) {
  for (const std::string& text : {std::string(kMixed), named_problem("mace-l1").problem}) {
    SCOPED_TRACE(text);
    const Kernels<float> several(text);
    Case<float> test(several, small_graph(random, 2, 2, 4, 20), 2, 3);
    expect_right(test, Launch(test).backward());
  }
}

TEST_F(EmulatedTurned, NoEdges) {
  Case<float> test(kernels(), small_graph(random, 2, 2, 3, 0), 1, 2);
  for (const float value : Launch(test).backward().x) EXPECT_EQ(value, 0.0f);
}

TEST_F(EmulatedTurned, VectorsThatAreNotFinite) {
  for (const double component : kNotFinite) {
    Case<float> test(kernels(), graph_with(component, random), 1, 0);
    const auto got = Launch(test).backward();
    const size_t width = static_cast<size_t>(test.problem.in1.dim());
    EXPECT_TRUE(std::isnan(got.x[width])) << component;
    EXPECT_EQ(got.x[0], 0.0f);
  }
}

}  // namespace
}  // namespace clebsch::cuda
