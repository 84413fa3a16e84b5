// The generated CUDA kernels of tensor_product_conv and their launcher against slow loops in fp64, in the emulator.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "conv_case.h"
#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "cuda/conv/tensor_product_conv.h"

namespace clebsch {
namespace {

using reference::cast;
using reference::ConvCase;
using reference::ConvOutput;
using reference::small_shape;

cuda::ConvOperands operands_of(const ConvCase& test, const void* x, const void* y, const void* w, bool transpose) {
  const GraphView& graph = test.graph.view;
  cuda::ConvOperands o;
  o.x = x;
  o.harmonics = y;
  o.weights = w;
  o.weight_stride = test.problem.weight_count;
  o.row_ptr = graph.row_ptr;
  o.senders = graph.senders;
  o.col_ptr = transpose ? graph.col_ptr : nullptr;
  o.col_edge = transpose ? graph.col_edge : nullptr;
  o.row_limit = &test.rows;
  o.graph_rows = static_cast<int32_t>(graph.n_rows);
  o.nodes = static_cast<int32_t>(graph.n_nodes);
  o.edges = graph.n_edges;
  return o;
}

/// Forward and backward; the transpose is given or, for atomics, kept back.
template <typename T>
ConvOutput<T> run(const ConvCase& test, bool deterministic, cuda::BackwardOutputs wanted = {}) {
  wanted.deterministic = deterministic;
  const auto problem = std::make_shared<const Problem>(test.problem);
  const auto scalar = sizeof(T) == 4 ? cuda::Scalar::f32 : cuda::Scalar::f64;
  const auto kernels = cuda::TensorProductConv::make(problem, scalar);
  const auto x = cast<T>(test.x), y = cast<T>(test.harmonics), w = cast<T>(test.weights), g = cast<T>(test.grad_out);
  const GraphView& graph = test.graph.view;
  const cuda::ConvOperands o = operands_of(test, x.data(), y.data(), w.data(), deterministic);
  ConvOutput<T> result;
  result.out.assign(graph.n_nodes * test.problem.out.dim(), T(NAN));
  result.grad_x.assign(test.x.size(), T(NAN));
  result.grad_harmonics.assign(test.harmonics.size(), T(77));
  result.grad_weights.assign(test.weights.size(), T(77));
  // 16-byte aligned, as device memory is, and full of what must not be read
  const int64_t bytes = std::max(kernels->forward_workspace(o, graph.n_nodes), kernels->backward_workspace(o, wanted));
  std::vector<double> scratch(static_cast<size_t>(bytes) / 8 + 2, NAN);
  kernels->forward(o, graph.n_nodes, result.out.data(), scratch.data(), nullptr);
  std::fill(scratch.begin(), scratch.end(), NAN);
  kernels->backward(o, wanted, g.data(), result.grad_x.data(), result.grad_harmonics.data(), result.grad_weights.data(),
                    scratch.data(), nullptr);
  return result;
}

/// The double backward pass; what is not wanted stays empty.
template <typename T>
ConvOutput<T> run_double(const ConvCase& test, const reference::ConvIncoming& from, bool deterministic,
                         std::array<bool, 4> mask) {
  const auto problem = std::make_shared<const Problem>(test.problem);
  const auto kernels = cuda::TensorProductConv::make(problem, sizeof(T) == 4 ? cuda::Scalar::f32 : cuda::Scalar::f64);
  const auto x = cast<T>(test.x), y = cast<T>(test.harmonics), w = cast<T>(test.weights), g = cast<T>(test.grad_out);
  const auto a = cast<T>(from.x), b = cast<T>(from.harmonics), c = cast<T>(from.weights);
  const cuda::ConvOperands o = operands_of(test, x.data(), y.data(), w.data(), deterministic);
  const int64_t nodes = test.graph.view.n_nodes;
  const cuda::DoubleBackwardOutputs wanted{
      !a.empty(), !b.empty(), !c.empty(), mask[0], {mask[1], mask[2], mask[3], deterministic}};
  ConvOutput<T> result;
  if (mask[0]) result.out.assign(g.size(), T(NAN));
  if (mask[1]) result.grad_x.assign(x.size(), T(NAN));
  if (mask[2]) result.grad_harmonics.assign(y.size(), T(77));
  if (mask[3]) result.grad_weights.assign(w.size(), T(77));
  std::vector<double> scratch(static_cast<size_t>(kernels->double_backward_workspace(o, nodes, wanted)) / 8 + 2, NAN);
  kernels->double_backward(
      o, nodes, wanted, {a.data(), b.data(), c.data(), g.data()},
      {result.out.data(), result.grad_x.data(), result.grad_harmonics.data(), result.grad_weights.data()},
      scratch.data(), nullptr);
  return result;
}

template <typename T>
void check_double(const std::string& text, const reference::GraphShape& shape, int32_t rows = -1) {
  ConvCase test(text, shape, rows);
  const reference::ConvIncoming from = test.incoming();
  const ConvOutput<double> expected = test.double_backward(from);
  for (bool deterministic : {true, false}) {
    SCOPED_TRACE(deterministic ? "deterministic" : "atomic");
    const auto got = run_double<T>(test, from, deterministic, {true, true, true, true});
    test.compare(got, expected, sizeof(T) == 4 ? 1e-5 : 1e-12);
    for (size_t k = test.rows * test.problem.out.dim(); k < got.out.size(); ++k) ASSERT_EQ(got.out[k], T(0)) << k;
  }
}

template <typename T>
void check(const std::string& text, const reference::GraphShape& shape, int32_t rows = -1) {
  const ConvCase test(text, shape, rows);
  for (bool deterministic : {true, false}) {
    SCOPED_TRACE(deterministic ? "deterministic" : "atomic");
    test.compare(run<T>(test, deterministic), sizeof(T) == 4 ? 1e-5 : 1e-12);
  }
}

/// Small problems of the registry that between them have odd multiplicities, both parities, weightless paths, several
/// paths into one output and more channels than a warp has lanes.
class EmulatedConv : public testing::TestWithParam<const char*> {};

TEST_P(EmulatedConv, MatchesTheReference) {
  check<float>(named_problem(GetParam()).problem, small_shape());
  check<double>(named_problem(GetParam()).problem, small_shape(), 5);
}

TEST_P(EmulatedConv, DoubleBackwardMatchesTheReference) {
  check_double<float>(named_problem(GetParam()).problem, small_shape());
  check_double<double>(named_problem(GetParam()).problem, small_shape(), 5);
}

INSTANTIATE_TEST_SUITE_P(Registry, EmulatedConv, testing::Values("test-uneven", "test-parity", "nequip-water"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// uvw paths: channels of all counts below, at and above a slice, more units than a block holds, paths of both modes.
TEST(EmulatedConvUvw, MatchesTheReference) {
  const char* const texts[] = {
      "conv in1=5x0e+3x1o in2=1x0e+1x1o out=4x0e+6x1o "
      "paths=uvw:0,0,0,0.5;uvw:1,1,0,0.5;uvw:0,1,1,0.75;uvw:1,0,1,0.75",
      "conv in1=33x0e+17x1o in2=1x0e+1x1o+1x2e out=48x0e+1x1o+9x2e+32x1o+2x0e "
      "paths=uvw:0,0,0,0.5;uvw:1,1,0,0.5;uvw:0,1,1,0.75;uvw:1,0,3,0.75;uvw:0,2,2,1.5;uvw:1,1,2,0.3;uvw:1,1,4,1",
      "conv in1=6x0e+3x1o in2=1x0e+1x1o out=6x0e+5x1o+3x1o+4x0o "
      "paths=uvu:0,0,0,1;uvw:1,1,0,0.4;uvw:0,1,1,0.7;uvu0:1,0,2,1.5;uvw:1,0,2,0.3"};
  for (const char* text : texts) {
    SCOPED_TRACE(text);
    check<float>(text, small_shape());
    check<double>(text, small_shape(), 5);
  }
}

TEST(EmulatedConvUvw, LongReceiversAndNoEdges) {
  reference::GraphShape shape;
  shape.n_local = shape.n_rows = 3;
  shape.n_nodes = 4;
  shape.max_degree = 700;
  const char* const mixed =
      "conv in1=6x0e+3x1o in2=1x0e+1x1o out=6x0e+5x1o+3x1o+4x0o "
      "paths=uvu:0,0,0,1;uvw:1,1,0,0.4;uvw:0,1,1,0.7;uvu0:1,0,2,1.5;uvw:1,0,2,0.3";
  check<float>(mixed, shape);
  shape.max_degree = 0;
  check<float>(mixed, shape);
}

/// Only some of the gradients, and one warp a receiver.
TEST(EmulatedConvUvw, PartsOfTheResults) {
  for (const char* schedule : {"units=1", ""}) {
    ::setenv("CLEBSCH_CUDA_SCHEDULE", schedule, 1);
    const ConvCase test(named_problem("test-uvw").problem, small_shape());
    for (int bits : {1, 2, 4, 6, 7}) {
      SCOPED_TRACE(bits);
      const auto all = run<double>(test, true);
      const auto part = run<double>(test, true, {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, true});
      if (bits & 1) {
        EXPECT_EQ(part.grad_x, all.grad_x);
      }
      if (bits & 2) {
        EXPECT_EQ(part.grad_harmonics, all.grad_harmonics);
      }
      if (bits & 4) {
        EXPECT_EQ(part.grad_weights, all.grad_weights);
      }
      test.compare(all, 1e-12);
    }
  }
  ::unsetenv("CLEBSCH_CUDA_SCHEDULE");
}

TEST(EmulatedConvGraphs, LongAndEmptyReceivers) {
  reference::GraphShape shape;
  shape.n_local = shape.n_rows = 3;
  shape.n_nodes = 4;
  shape.max_degree = 700;  // receivers are split over blocks
  check<float>(named_problem("test-uneven").problem, shape);
  check_double<float>(named_problem("test-uneven").problem, shape);
}

TEST(EmulatedConvGraphs, OneAtomAndNoEdges) {
  reference::GraphShape shape;
  shape.n_local = shape.n_rows = shape.n_nodes = 1;
  shape.max_degree = 0;
  check<float>(named_problem("test-uneven").problem, shape);
  shape.n_nodes = 5;
  shape.n_local = shape.n_rows = 0;
  check<float>(named_problem("test-uneven").problem, shape);
  check_double<float>(named_problem("test-uneven").problem, shape);
}

/// Some choices of incoming gradients with all results, and of results with all incoming gradients.
TEST(EmulatedConvDouble, PartsOfTheIncomingAndOfTheResults) {
  ConvCase test(named_problem("test-weightless").problem, small_shape());
  for (int bits : {1, 2, 4, 7, 8 + 1, 8 + 2, 8 + 4, 8 + 8, 8 + 14}) {
    SCOPED_TRACE(bits);
    const bool all = bits >= 8;
    const reference::ConvIncoming from = test.incoming(all || (bits & 1), all || (bits & 2), all || (bits & 4));
    const auto bit = [&](int k) { return !all || ((bits - 8) >> k & 1); };
    const ConvOutput<double> expected = test.double_backward(from);
    auto got = run_double<double>(test, from, true, {bit(0), bit(1), bit(2), bit(3)});
    if (!bit(0)) got.out = expected.out;
    if (!bit(1)) got.grad_x = expected.grad_x;
    if (!bit(2)) got.grad_harmonics = expected.grad_harmonics;
    if (!bit(3)) got.grad_weights = expected.grad_weights;
    test.compare(got, expected, 1e-12);
  }
}

/// dX as integers in windows (cuda/emit/window_sums.h), whatever the graph.
class EmulatedConvWindows : public testing::Test {
 protected:
  void SetUp() override { ::setenv("CLEBSCH_CUDA_SCHEDULE", "integers=1", 1); }
  void TearDown() override { ::unsetenv("CLEBSCH_CUDA_SCHEDULE"); }
  std::vector<float> sums(const reference::ConvIncoming& from) {
    return run_double<float>(test, from, true, {true, true, true, true}).grad_x;
  }
  ConvCase test{named_problem("test-uneven").problem, small_shape()};
};

TEST_F(EmulatedConvWindows, MatchTheReference) {
  for (const char* schedule : {"integers=1", "integers=1,units=3,sender=0", "integers=1,units=4,copies=0",
                               "integers=1,stored=1,registers=100", "stored=1,lanes=0,ahead=2"}) {
    SCOPED_TRACE(schedule);
    ::setenv("CLEBSCH_CUDA_SCHEDULE", schedule, 1);
    check_double<float>(named_problem("test-uneven").problem, small_shape());
    check_double<float>(named_problem("test-unsorted").problem, small_shape(), 5);
  }
  // Two launches of seven slices of the only kind.
  ::setenv("CLEBSCH_CUDA_SCHEDULE", "integers=1,stored=1", 1);
  check_double<float>(
      "conv in1=448x0e+448x1o in2=1x0e+1x1o out=448x0e+448x1o "
      "paths=uvu:0,0,0,1;uvu:0,1,1,0.5;uvu:1,0,1,0.5;uvu:1,1,0,1",
      small_shape());
  // Launches of two slices of a kind each.
  ::setenv("CLEBSCH_CUDA_SCHEDULE", "integers=1,stored=1,registers=80", 1);
  check_double<float>(named_problem("nequip-aspirin").problem, small_shape());
}

TEST_F(EmulatedConvWindows, TheSameBitsInEveryOrderAndWindow) {
  const reference::ConvIncoming from = test.incoming();
  const std::vector<float> once = sums(from);
  for (const int exponent : {0, -48, 16, 64, 112}) {
    SCOPED_TRACE(exponent);
    reference::ConvIncoming scaled = from;
    for (auto* numbers : {&scaled.x, &scaled.harmonics, &scaled.weights})
      for (double& number : *numbers) number = std::ldexp(number, exponent);
    const std::vector<float> again = sums(scaled);  // the emulator takes the threads in another order
    for (size_t k = 0; k < once.size(); ++k) EXPECT_EQ(again[k], std::ldexp(once[k], exponent)) << k;
  }
}

TEST_F(EmulatedConvWindows, NoNumberStaysNone) {
  reference::ConvIncoming from = test.incoming();
  const int64_t count = test.problem.weight_count, edge = 2;
  const int32_t sender = test.graph.view.senders[edge];
  for (int64_t k = 0; k < count; ++k) from.weights[edge * count + k] = INFINITY;
  const std::vector<float> got = sums(from);
  const int64_t width = test.problem.in1.dim();
  for (size_t k = 0; k < got.size(); ++k)
    EXPECT_EQ(std::isfinite(got[k]), static_cast<int64_t>(k) / width != sender) << k;
}

/// Every unit of a receiver in a launch of its own, or all in one, whatever the planner would choose.
TEST(EmulatedConvSchedules, LaunchesOfTheirOwnAndSmallTiles) {
  for (const char* schedule : {"units=3,code=1,tile=4", "units=4,receivers=2,hoist=0,prefetch=1,ahead=2",
                               "stages=2,tile=4", "stages=4,units=3,registers=90", "units=4,copies=0"}) {
    SCOPED_TRACE(schedule);
    ::setenv("CLEBSCH_CUDA_SCHEDULE", schedule, 1);
    check<double>(named_problem("test-unsorted").problem, small_shape());
    check_double<double>(named_problem("test-unsorted").problem, small_shape());
    ::unsetenv("CLEBSCH_CUDA_SCHEDULE");
  }
}

TEST(EmulatedConvGraphs, DeterministicMeansTheSameBits) {
  const ConvCase test(named_problem("test-uneven").problem, small_shape());
  const auto one = run<float>(test, true), two = run<float>(test, true);
  EXPECT_EQ(one.out, two.out);
  EXPECT_EQ(one.grad_x, two.grad_x);
}

}  // namespace
}  // namespace clebsch
