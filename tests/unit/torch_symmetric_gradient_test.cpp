// The coefficients' gradient made of at:: ops, which CUDA uses, against the CPU op's own.
#include "torch/symmetric_gradient.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <string>

namespace {

const char* const kProblem =
    "symmetric in=5x0e+5x1o out=5x0e+5x1o "
    "terms=0,0.0,1.1,0.0.0,0.2.2,0.0.1.1,1.1.2.3;1,0.1,0.0.0.1;;0.3,1.2.3,3.3.3,0.1.2.3";

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

template <typename F>
auto find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<F>();
}

TEST(SymmetricCoefficientGradient, IsThatOfTheCpuOp) {
  const auto problem = clebsch::cached_symmetric_problem(kProblem);
  const int64_t rows = 23, types = 3, limit = 20;
  const at::Tensor x = at::randn({rows, 20}, at::kDouble), tangent = at::randn({rows, 20}, at::kDouble);
  const at::Tensor grad_out = at::randn({rows, 20}, at::kDouble);
  const at::Tensor coefficients = at::randn({types, 14, 5}, at::kDouble);
  const at::Tensor type = at::randint(0, types, {rows}, at::kInt);
  const at::Tensor limits = at::full({1}, limit, at::kInt);
  const std::vector<at::Tensor> graph{limits, limits, limits, limits, limits, limits, limits};
  const auto [unused, expected] =
      find_op<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, at::TensorList, int64_t,
                   std::string_view, std::array<bool, 2>)>("clebsch::symmetric_contraction_backward")
          .call(grad_out, x, coefficients, type, graph, 0, kProblem, {false, true});
  const at::Tensor got = clebsch::ops::symmetric_coefficient_gradient(*problem, grad_out, x, {}, type, limits, types);
  EXPECT_LT((got - expected).abs().max().item<double>(), 1e-12 * expected.abs().max().item<double>());

  const auto [out, grad_x, change] =
      find_op<Triple(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                     const at::Tensor&, at::TensorList, int64_t, std::string_view, std::array<bool, 3>)>(
          "clebsch::symmetric_contraction_double_backward")
          .call(grad_out, x, tangent, coefficients, at::zeros_like(coefficients), type, graph, 0, kProblem,
                {false, false, true});
  const at::Tensor got_change =
      clebsch::ops::symmetric_coefficient_gradient(*problem, grad_out, x, tangent, type, limits, types);
  EXPECT_LT((got_change - change).abs().max().item<double>(), 1e-12 * change.abs().max().item<double>());
}

TEST(SymmetricCoefficientGradient, LeavesOutTypesOutOfRange) {
  const auto problem = clebsch::cached_symmetric_problem(kProblem);
  const at::Tensor x = at::ones({3, 20}, at::kDouble), type = at::tensor({-1, 1, 7}, at::kInt);
  const at::Tensor sum = clebsch::ops::symmetric_coefficient_gradient(*problem, x, x, {}, type, {}, 2);
  EXPECT_EQ(sum.sum().item<double>(), 14 * 5);
  EXPECT_EQ(sum[0].abs().max().item<double>(), 0);
  const at::Tensor none = at::zeros({0, 20}, at::kDouble);
  EXPECT_EQ(
      clebsch::ops::symmetric_coefficient_gradient(*problem, none, none, {}, at::zeros({0}, at::kInt), {}, 2).sizes(),
      (std::vector<int64_t>{2, 14, 5}));
}

}  // namespace
