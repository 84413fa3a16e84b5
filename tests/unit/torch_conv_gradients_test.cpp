// Gradients of clebsch::tensor_product_conv in a program without Python: three orders against finite differences, with
// entries beyond the last edge, ghosts, and rows that are not computed.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/model.h"

namespace {

using Tensors = std::vector<at::Tensor>;

const char* const kUvu =
    "conv in1=3x0e+2x1o in2=1x0e+1x1o out=3x0e+3x1o+2x1o+2x0e "
    "paths=uvu:0,0,0,1;uvu:0,1,1,0.7;uvu0:1,0,2,0.4;uvu:1,1,3,1.3";
const char* const kUvw =
    "conv in1=3x0e+2x1o in2=1x0e+1x1o out=4x0e+3x1o "
    "paths=uvw:0,0,0,1;uvw:0,1,1,0.7;uvw:1,0,1,0.4;uvw:1,1,0,1.3";

/// A new one for every run; CLEBSCH_TEST_SEED repeats a run.
unsigned fresh_seed() {
  const char* text = std::getenv("CLEBSCH_TEST_SEED");
  return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : std::random_device{}();
}

struct Case {
  unsigned seed = fresh_seed();
  Tensors inputs, graph;  // x, harmonics, weights
  std::string problem;

  at::Tensor conv(const Tensors& in, int64_t layer = 0) const {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("clebsch::tensor_product_conv", "")
                               .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                 at::TensorList, int64_t, std::string_view)>();
    return op.call(in[0], in[1], in[2], graph, layer, problem);
  }
};

at::Tensor ints(const std::vector<int>& values) { return at::tensor(values, at::kInt); }

Case make_case(const char* problem, int64_t x_dim, int64_t columns, bool shared = false) {
  // 4 rows of 6 nodes, of which 3 are computed; 7 edges and 2 entries that must not be read.
  constexpr int kNever = 1 << 30;
  Case c;
  c.problem = problem;
  c.graph = {ints({0, 3, 3, 5, 7}),
             ints({0, 5, 5, 1, 4, 2, 0, kNever, kNever}),
             ints({0, 0, 0, 2, 2, 3, 3, kNever, kNever}),
             at::empty({0}, at::kInt),
             at::empty({0}, at::kInt),
             ints({3}),
             ints({3})};
  at::manual_seed(c.seed);
  const auto random = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  c.inputs = {random({6, x_dim}), random({9, 4}), shared ? random({columns}) : random({9, columns})};
  c.inputs[1].slice(0, 7).fill_(std::numeric_limits<double>::quiet_NaN());
  if (!shared) c.inputs[2].slice(0, 7).fill_(std::numeric_limits<double>::quiet_NaN());
  return c;
}

/// A scalar of the order-th derivatives, so that differentiating it makes the next order.
at::Tensor scalar(const Case& c, const Tensors& in, int order) {
  const auto mix = [](const at::Tensor& t) {
    return (t * at::cos(at::arange(t.numel(), at::kDouble)).view_as(t)).nansum();
  };
  at::Tensor value = mix(c.conv(in).pow(2));
  for (int k = 0; k < order; ++k) {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const at::Tensor& g : torch::autograd::grad({value}, in, {}, true, true)) sum = sum + mix(g);
    value = sum;
  }
  return value;
}

void check_derivatives(const Case& c) {
  SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(c.seed));
  Tensors in;
  for (const at::Tensor& t : c.inputs) in.push_back(t.clone().requires_grad_());
  for (int order = 0; order < 3; ++order) {
    SCOPED_TRACE("order " + std::to_string(order + 1));
    const Tensors grads = torch::autograd::grad({scalar(c, in, order)}, in);
    const double step = 1e-5;
    Tensors above, below;
    double expected = 0;
    for (size_t k = 0; k < in.size(); ++k) {
      ASSERT_TRUE(at::isfinite(grads[k]).all().item<bool>());
      const at::Tensor direction = at::randn(in[k].sizes(), at::kDouble);
      expected += (grads[k] * direction).sum().item<double>();
      above.push_back((in[k].detach() + step * direction).requires_grad_());
      below.push_back((in[k].detach() - step * direction).requires_grad_());
    }
    const double slope = (scalar(c, above, order).item<double>() - scalar(c, below, order).item<double>()) / (2 * step);
    EXPECT_NEAR(slope, expected, 1e-6 * (1 + std::abs(expected)));
  }
}

// Loading the library registers the ops; a linker leaves out a library of which a program uses nothing.
TEST(TorchConvGradients, LibraryIsLoaded) { EXPECT_STRNE(clebsch::version(), ""); }

TEST(TorchConvGradients, ThreeOrdersOfUvu) { check_derivatives(make_case(kUvu, 9, 8)); }
TEST(TorchConvGradients, ThreeOrdersOfUvw) { check_derivatives(make_case(kUvw, 9, 35)); }
TEST(TorchConvGradients, ThreeOrdersOfSharedUvu) { check_derivatives(make_case(kUvu, 9, 8, true)); }
TEST(TorchConvGradients, ThreeOrdersOfSharedUvw) { check_derivatives(make_case(kUvw, 9, 35, true)); }

TEST(TorchConvGradients, RowsThatAreNotComputedAreZero) {
  const Case c = make_case(kUvw, 9, 35);
  const at::Tensor out = c.conv(c.inputs);
  EXPECT_EQ(out.size(0), 6);
  EXPECT_FALSE(out.slice(0, 3).any().item<bool>());
  EXPECT_FALSE(out[1].any().item<bool>());  // without edges
  EXPECT_TRUE(out[0].any().item<bool>());
}

TEST(TorchConvGradients, SharedWeightsEqualTheSameWeightsOnEveryEdge) {
  for (const char* problem : {kUvu, kUvw}) {
    Case c = make_case(problem, 9, problem == kUvu ? 8 : 35, true);
    Tensors repeated = c.inputs;
    repeated[2] = c.inputs[2].expand({9, c.inputs[2].size(0)}).contiguous();
    EXPECT_TRUE(at::allclose(c.conv(c.inputs), c.conv(repeated), 1e-12, 1e-12));
  }
}

}  // namespace
