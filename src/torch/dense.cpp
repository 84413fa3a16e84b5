// clebsch::dense: rows times a matrix. It is clebsch::linear of scalars alone, so kernels and derivatives of every
// order are that op's. torch's own products depend on process-wide switches (TF32 on a GPU, bfloat16 on a CPU); these
// do not.
#include "torch/dense.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <string_view>
#include <vector>

#include "core/errors.h"

namespace clebsch::ops {
namespace {

at::Tensor call_linear(const at::Tensor& x, const at::Tensor& weight, at::TensorList graph, int64_t layer,
                       std::string_view problem) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::linear", "").typed<decltype(call_linear)>();
  return op.call(x, weight, graph, layer, problem);
}

at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight) {
  const bool row = x.dim() == 1, column = weight.dim() == 1;
  require((row || x.dim() == 2) && (column || weight.dim() == 2),
          "clebsch::dense: expected x and weight of 1 or 2 dimensions, got {} and {}", x.dim(), weight.dim());
  const int64_t in = weight.size(0), out = column ? 1 : weight.size(1);
  require(in > 0 && out > 0 && x.sym_size(-1) == in,
          "clebsch::dense: expected as many columns of x as rows of weight, at least one of both, got {} and ({}, {})",
          x.size(-1), in, out);
  // All rows: no tensor of the graph is looked at.
  const std::vector<at::Tensor> graph(7, at::empty({0}, x.options().dtype(at::kInt).requires_grad(false)));
  at::Tensor product = call_linear(x.contiguous().view({-1, in}), weight.contiguous().view(-1), graph, -1,
                                   fmt::format("linear in={}x0e out={}x0e", in, out));
  if (column) product = product.squeeze(1);
  return row ? product.squeeze(0) : product;
}

}  // namespace

at::Tensor dense(const at::Tensor& x, const at::Tensor& weight) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::dense", "").typed<decltype(dense)>();
  return op.call(x, weight);
}

TORCH_LIBRARY_IMPL(clebsch, CompositeImplicitAutograd, library) { library.impl("dense", multiply); }

}  // namespace clebsch::ops
