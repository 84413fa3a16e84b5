// The generated CUDA kernels of tensor_product_conv and their launcher against slow loops in fp64, in the emulator.
#include <gtest/gtest.h>

#include "conv_case.h"
#include "core/errors.h"
#include "core/registry.h"
#include "cuda/tensor_product_conv.h"

namespace clebsch {
namespace {

using reference::cast;
using reference::ConvCase;
using reference::ConvOutput;
using reference::small_shape;

/// Forward and backward; the transpose is given or, for atomics, kept back.
template <typename T>
ConvOutput<T> run(const ConvCase& test, bool deterministic) {
  const auto problem = std::make_shared<const Problem>(test.problem);
  const auto scalar = sizeof(T) == 4 ? cuda::Scalar::f32 : cuda::Scalar::f64;
  const auto kernels = cuda::TensorProductConv::make(problem, scalar);
  const auto x = cast<T>(test.x), y = cast<T>(test.harmonics), w = cast<T>(test.weights), g = cast<T>(test.grad_out);
  const GraphView& graph = test.graph.view;
  cuda::ConvOperands o;
  o.x = x.data();
  o.harmonics = y.data();
  o.weights = w.data();
  o.weight_stride = test.problem.weight_count;
  o.row_ptr = graph.row_ptr;
  o.senders = graph.senders;
  o.col_ptr = deterministic ? graph.col_ptr : nullptr;
  o.col_edge = deterministic ? graph.col_edge : nullptr;
  o.row_limit = &test.rows;
  o.graph_rows = static_cast<int32_t>(graph.n_rows);
  o.nodes = static_cast<int32_t>(graph.n_nodes);
  o.edges = graph.n_edges;
  ConvOutput<T> result;
  result.out.assign(graph.n_nodes * test.problem.out.dim(), T(NAN));
  result.grad_x.assign(test.x.size(), T(NAN));
  result.grad_harmonics.assign(test.harmonics.size(), T(77));
  result.grad_weights.assign(test.weights.size(), T(77));
  // 16-byte aligned, as device memory is, and full of what must not be read
  const cuda::BackwardOutputs wanted{true, true, true, deterministic};
  const int64_t bytes = std::max(kernels->forward_workspace(o, graph.n_nodes), kernels->backward_workspace(o, wanted));
  std::vector<double> scratch(static_cast<size_t>(bytes) / 8 + 2, NAN);
  kernels->forward(o, graph.n_nodes, result.out.data(), scratch.data(), nullptr);
  std::fill(scratch.begin(), scratch.end(), NAN);
  kernels->backward(o, wanted, g.data(), result.grad_x.data(), result.grad_harmonics.data(), result.grad_weights.data(),
                    scratch.data(), nullptr);
  return result;
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

INSTANTIATE_TEST_SUITE_P(Registry, EmulatedConv, testing::Values("test-uneven", "test-parity", "nequip-water"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(EmulatedConvGraphs, LongAndEmptyReceivers) {
  reference::GraphShape shape;
  shape.n_local = shape.n_rows = 3;
  shape.n_nodes = 4;
  shape.max_degree = 700;  // receivers are split over blocks
  check<float>(named_problem("test-uneven").problem, shape);
}

TEST(EmulatedConvGraphs, OneAtomAndNoEdges) {
  reference::GraphShape shape;
  shape.n_local = shape.n_rows = shape.n_nodes = 1;
  shape.max_degree = 0;
  check<float>(named_problem("test-uneven").problem, shape);
  shape.n_nodes = 5;
  shape.n_local = shape.n_rows = 0;
  check<float>(named_problem("test-uneven").problem, shape);
}

TEST(EmulatedConvGraphs, DeterministicMeansTheSameBits) {
  const ConvCase test(named_problem("test-uneven").problem, small_shape());
  const auto one = run<float>(test, true), two = run<float>(test, true);
  EXPECT_EQ(one.out, two.out);
  EXPECT_EQ(one.grad_x, two.grad_x);
}

}  // namespace
}  // namespace clebsch
