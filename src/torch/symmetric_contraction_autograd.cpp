// Derivatives of clebsch::symmetric_contraction: first and second, on every device.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>

#include "core/errors.h"
#include "torch/symmetric_contraction.h"

namespace clebsch::ops::symmetric_contraction_gradients {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensor = at::Tensor;
using Text = std::string_view;

Tensor call_forward(const Tensor& x, const Tensor& coefficients, const Tensor& types, at::TensorList graph,
                    int64_t layer, Text text) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::symmetric_contraction", "")
                             .typed<decltype(call_forward)>();
  return op.call(x, coefficients, types, graph, layer, text);
}

std::tuple<Tensor, Tensor> call_backward(const Tensor& grad_out, const Tensor& x, const Tensor& coefficients,
                                         const Tensor& types, at::TensorList graph, int64_t layer, Text text,
                                         std::array<bool, 2> mask) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::symmetric_contraction_backward", "")
                             .typed<decltype(call_backward)>();
  return op.call(grad_out, x, coefficients, types, graph, layer, text, mask);
}

SymmetricGradients call_double_backward(const Tensor& grad_out, const Tensor& x, const Tensor& tangent_x,
                                        const Tensor& coefficients, const Tensor& tangent_coefficients,
                                        const Tensor& types, at::TensorList graph, int64_t layer, Text text,
                                        std::array<bool, 3> mask) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::symmetric_contraction_double_backward", "")
                             .typed<decltype(call_double_backward)>();
  return op.call(grad_out, x, tangent_x, coefficients, tangent_coefficients, types, graph, layer, text, mask);
}

/// The arguments that are not differentiated, kept for a backward pass.
struct Rest {
  std::vector<Tensor> graph;
  int64_t layer;
  std::string text;

  Rest(at::TensorList graph_, int64_t layer_, Text text_) : graph(graph_.vec()), layer(layer_), text(text_) {}
  explicit Rest(AutogradContext* ctx)
      : graph(ctx->saved_data["graph"].toTensorVector()),
        layer(ctx->saved_data["layer"].toInt()),
        text(ctx->saved_data["problem"].toStringRef()) {}
  void save(AutogradContext* ctx) const {
    ctx->saved_data["graph"] = graph;
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["problem"] = text;
  }
};

class Forward : public torch::autograd::Function<Forward> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& coefficients, const Tensor& types,
                        const Rest& rest) {
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensor out = call_forward(x, coefficients, types, rest.graph, rest.layer, rest.text);
    ctx->save_for_backward({x, coefficients, types});
    rest.save(ctx);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Rest rest(ctx);
    auto [x, coefficients] = call_backward(grads[0].contiguous(), saved[0], saved[1], saved[2], rest.graph, rest.layer,
                                           rest.text, {ctx->needs_input_grad(0), ctx->needs_input_grad(1)});
    return {x, coefficients, {}, {}};
  }
};

/// The first derivatives. With F(g, x, c) = sum(g * out(x, c)) they are dF/dx and dF/dc; gradients a and b arriving for
/// them make S = a dF/dx + b dF/dc, the change of F along (a, b). So dS/dg, dS/dx and dS/dc are the changes of out,
/// dF/dx and dF/dc along (a, b): one call of double_backward.
class Backward : public torch::autograd::Function<Backward> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& grad_out, const Tensor& x,
                               const Tensor& coefficients, const Tensor& types, const Rest& rest,
                               std::array<bool, 2> mask) {
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [grad_x, grad_coefficients] =
        call_backward(grad_out, x, coefficients, types, rest.graph, rest.layer, rest.text, mask);
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({grad_out, x, coefficients, types});
    rest.save(ctx);
    ctx->saved_data["of_x"] = mask[0];
    // Only what was asked for: autograd's outputs must be defined.
    variable_list results;
    for (const Tensor& grad : {grad_x, grad_coefficients}) {
      if (grad.defined()) results.push_back(grad);
    }
    return results;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Rest rest(ctx);
    const bool of_x = ctx->saved_data["of_x"].toBool();
    const auto direction = [&](bool there, size_t k, const Tensor& shape) {
      return there && grads[k].defined() ? grads[k].contiguous() : at::zeros_like(shape);
    };
    const Tensor a = direction(of_x, 0, saved[1]), b = direction(grads.size() > size_t{of_x}, of_x, saved[2]);
    auto [grad_out, x, coefficients] =
        call_double_backward(saved[0], saved[1], a, saved[2], b, saved[3], rest.graph, rest.layer, rest.text,
                             {ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->needs_input_grad(2)});
    return {grad_out, x, coefficients, {}, {}, {}};
  }
};

/// The second derivatives, which end the chain: differentiating them throws instead of giving zero silently.
class DoubleBackward : public torch::autograd::Function<DoubleBackward> {
 public:
  static variable_list forward(AutogradContext*, const Tensor& grad_out, const Tensor& x, const Tensor& tangent_x,
                               const Tensor& coefficients, const Tensor& tangent_coefficients, const Tensor& types,
                               const Rest& rest, std::array<bool, 3> mask) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [of_grad_out, of_x, of_coefficients] = call_double_backward(
        grad_out, x, tangent_x, coefficients, tangent_coefficients, types, rest.graph, rest.layer, rest.text, mask);
    variable_list results;
    for (const Tensor& grad : {of_grad_out, of_x, of_coefficients}) {
      if (grad.defined()) results.push_back(grad);
    }
    return results;
  }

  static variable_list backward(AutogradContext*, const variable_list&) {
    fail(
        "clebsch::symmetric_contraction has first and second derivatives, but a third derivative was asked for. "
        "Differentiate twice at most, or use mace-torch's own product");
  }
};

Tensor forward_autograd(const Tensor& x, const Tensor& coefficients, const Tensor& types, at::TensorList graph,
                        int64_t layer, Text text) {
  return Forward::apply(x, coefficients, types, Rest(graph, layer, text));
}

std::tuple<Tensor, Tensor> backward_autograd(const Tensor& grad_out, const Tensor& x, const Tensor& coefficients,
                                             const Tensor& types, at::TensorList graph, int64_t layer, Text text,
                                             std::array<bool, 2> mask) {
  if (!mask[0] && !mask[1]) return {};
  const auto results = Backward::apply(grad_out, x, coefficients, types, Rest(graph, layer, text), mask);
  return {mask[0] ? results[0] : Tensor(), mask[1] ? results.back() : Tensor()};
}

SymmetricGradients double_backward_autograd(const Tensor& grad_out, const Tensor& x, const Tensor& tangent_x,
                                            const Tensor& coefficients, const Tensor& tangent_coefficients,
                                            const Tensor& types, at::TensorList graph, int64_t layer, Text text,
                                            std::array<bool, 3> mask) {
  if (!mask[0] && !mask[1] && !mask[2]) return {};
  const auto results = DoubleBackward::apply(grad_out, x, tangent_x, coefficients, tangent_coefficients, types,
                                             Rest(graph, layer, text), mask);
  std::array<Tensor, 3> grads;
  size_t next = 0;
  for (size_t k = 0; k < 3; ++k) {
    if (mask[k]) grads[k] = results[next++];
  }
  return {grads[0], grads[1], grads[2]};
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, Autograd, library) {
  library.impl("symmetric_contraction", forward_autograd);
  library.impl("symmetric_contraction_backward", backward_autograd);
  library.impl("symmetric_contraction_double_backward", double_backward_autograd);
}

}  // namespace clebsch::ops::symmetric_contraction_gradients
