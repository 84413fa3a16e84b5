// clebsch::tensor_product: one row of features per row of harmonics, no graph. It is the convolution on the graph in
// which every edge has a sender and a receiver of its own, so kernels and derivatives of every order are that op's.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <torch/library.h>

#include <string>

#include "core/errors.h"
#include "core/problem/problem.h"
#include "torch/shared_weights.h"

namespace clebsch::ops {
namespace {

at::Tensor tensor_product(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights,
                          std::string_view problem) {
  require(x.dim() == 2 && harmonics.dim() == 2,
          "clebsch::tensor_product: expected x and harmonics of 2 dimensions, got {} and {}", x.dim(), harmonics.dim());
  const c10::SymInt rows = x.sym_size(0);
  require(rows == harmonics.sym_size(0), "clebsch::tensor_product: expected as many rows of harmonics as of x");
  const auto options = x.options().dtype(at::kInt).requires_grad(false);
  const at::Tensor offsets = at::arange(c10::Scalar(rows + 1), options), edges = at::arange(c10::Scalar(rows), options);
  const at::Tensor count = at::ones({1}, options) * c10::Scalar(rows);
  const at::Tensor graph[] = {offsets, edges, edges, offsets, edges, count, count};
  return call_conv(x, harmonics, weights, graph, -1, problem);
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CompositeImplicitAutograd, library) { library.impl("tensor_product", tensor_product); }

}  // namespace clebsch::ops
