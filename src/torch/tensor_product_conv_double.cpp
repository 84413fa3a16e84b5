// clebsch::tensor_product_conv_double_backward where no fused kernel is: the derivative of the backward pass, made of
// the ops of lower order.
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <string>

#include "torch/conv_derivatives.h"
#include "torch/shared_weights.h"
#include "torch/tensors.h"

namespace clebsch::ops {
namespace {

using Incoming = std::optional<at::Tensor>;

/// The problem without its weightless paths, "" when nothing is left: the part that is linear in W.
std::string weighted_part(const std::string& text) {
  Problem problem = *conv_problem("tensor_product_conv", text, false);
  const auto end =
      std::remove_if(problem.paths.begin(), problem.paths.end(), [](const Path& p) { return !p.weighted; });
  if (end == problem.paths.end()) return text;
  problem.paths.erase(end, problem.paths.end());
  if (problem.paths.empty()) return "";
  problem.finish();
  return problem.str();
}

/// The kernels where the result is final; where it will be differentiated again, a sum that can be.
ConvSecondGradients double_backward_autograd(const at::Tensor& grad_out, const at::Tensor& x,
                                             const at::Tensor& harmonics, const at::Tensor& weights,
                                             const Incoming& from_x, const Incoming& from_harmonics,
                                             const Incoming& from_weights, at::TensorList graph, int64_t layer,
                                             std::string_view text, std::array<bool, 4> mask) {
  const auto required = [](const Incoming& t) { return t && t->requires_grad(); };
  if (at::GradMode::is_enabled() &&
      (grad_out.requires_grad() || x.requires_grad() || harmonics.requires_grad() || weights.requires_grad() ||
       required(from_x) || required(from_harmonics) || required(from_weights))) {
    return compose_conv_double_backward(grad_out, x, harmonics, weights, from_x, from_harmonics, from_weights, graph,
                                        layer, text, mask);
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return call_conv_double_backward(grad_out, x, harmonics, weights, from_x, from_harmonics, from_weights, graph, layer,
                                   text, mask);
}

ConvSecondGradients double_backward_meta(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& harmonics,
                                         const at::Tensor& weights, const Incoming&, const Incoming&, const Incoming&,
                                         at::TensorList, int64_t, std::string_view, std::array<bool, 4> mask) {
  auto like = [](const at::Tensor& t, bool wanted) {
    return wanted ? at::empty_symint(t.sym_sizes(), t.options()) : at::Tensor();
  };
  return {like(grad_out, mask[0]), like(x, mask[1]), like(harmonics, mask[2]), like(weights, mask[3])};
}

}  // namespace

ConvGradients call_conv_backward(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& harmonics,
                                 const at::Tensor& weights, at::TensorList graph, int64_t layer,
                                 std::string_view problem, std::array<bool, 3> mask) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::tensor_product_conv_backward", "")
                             .typed<decltype(call_conv_backward)>();
  return op.call(grad_out, x, harmonics, weights, graph, layer, problem, mask);
}

ConvSecondGradients call_conv_double_backward(const at::Tensor& grad_out, const at::Tensor& x,
                                              const at::Tensor& harmonics, const at::Tensor& weights,
                                              const Incoming& from_x, const Incoming& from_harmonics,
                                              const Incoming& from_weights, at::TensorList graph, int64_t layer,
                                              std::string_view problem, std::array<bool, 4> mask) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::tensor_product_conv_double_backward", "")
                             .typed<decltype(call_conv_double_backward)>();
  return op.call(grad_out, x, harmonics, weights, from_x, from_harmonics, from_weights, graph, layer, problem, mask);
}

// F(g, x, Y, W) = <g, conv(x, Y, W)> is linear in each of its arguments (in W apart from weightless paths), and the
// backward pass made its derivatives by x, Y and W. With gradients a, b, c arriving for them, what is differentiated is
//   F(g, a, Y, W) + F(g, x, b, W) + F(g, x, Y, c),
// so every result is again a sum of the two ops of lower order with a, b or c in the place of x, Y or W: three calls of
// the convolution and three of its backward, each of which makes two of the gradients.
ConvSecondGradients compose_conv_double_backward(const at::Tensor& grad_out, const at::Tensor& x,
                                                 const at::Tensor& harmonics, const at::Tensor& weights,
                                                 const Incoming& from_x, const Incoming& from_harmonics,
                                                 const Incoming& from_weights, at::TensorList graph, int64_t layer,
                                                 std::string_view problem, std::array<bool, 4> wanted) {
  const Incoming* const from[] = {&from_x, &from_harmonics, &from_weights};
  std::array<at::Tensor, 4> sums;
  const auto add = [&](size_t k, const at::Tensor& term) {
    if (term.defined()) sums[k] = sums[k].defined() ? sums[k] + term : term;
  };
  const std::string text(problem);
  for (size_t k = 0; k < 3; ++k) {
    if (!*from[k] || !(*from[k])->defined()) continue;
    std::array<at::Tensor, 3> operands{x, harmonics, weights};
    operands[k] = (*from[k])->contiguous();
    const std::string part = k == 2 ? weighted_part(text) : text;
    if (part.empty()) continue;
    if (wanted[0]) add(0, call_conv(operands[0], operands[1], operands[2], graph, layer, part));
    std::array<bool, 3> mask{wanted[1], wanted[2], wanted[3]};
    mask[k] = false;
    if (!mask[0] && !mask[1] && !mask[2]) continue;
    const auto [dx, dy, dw] =
        call_conv_backward(grad_out, operands[0], operands[1], operands[2], graph, layer, part, mask);
    add(1, dx);
    add(2, dy);
    add(3, dw);
  }
  return {sums[0], sums[1], sums[2], sums[3]};
}

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("tensor_product_conv_double_backward", compose_conv_double_backward);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("tensor_product_conv_double_backward", double_backward_meta);
}
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) {
  library.impl("tensor_product_conv_double_backward", double_backward_autograd);
}

}  // namespace clebsch::ops
