// clebsch::tensor_product_conv: sum over each receiver's edges of the weighted tensor product of sender features and
// harmonics, with the radial weights given. Differentiable any number of times on every device; the second derivatives
// are in tensor_product_conv_double.cpp.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>

#include "core/math/harmonics.h"
#include "cpu/tensor_product_conv.h"
#include "torch/conv_derivatives.h"
#include "torch/shared_weights.h"
#include "torch/tensors.h"

namespace clebsch::ops::tensor_product_conv_op {
namespace {

constexpr const char* kOp = "tensor_product_conv";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Gradients = ConvGradients;
using Mask = std::array<bool, 3>;

struct Arguments {
  std::shared_ptr<const Problem> problem;
  CheckedGraph graph;
  at::ScalarType dtype;
};

Arguments check(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights, at::TensorList graph,
                int64_t layer, std::string_view text) {
  Arguments a;
  a.problem = conv_problem(kOp, text, false);
  a.dtype = check_compute_dtype(kOp, "x", x);
  check_tensor(kOp, "x", x, a.dtype, {-1, a.problem->in1.dim()});
  a.graph = check_graph(kOp, graph, x.size(0), layer);
  const int64_t edges = a.graph.view.n_edges;
  check_tensor(kOp, "harmonics", harmonics, a.dtype, {edges, a.problem->in2.dim()});
  check_tensor(kOp, "weights", weights, a.dtype, {edges, a.problem->weight_count});
  return a;
}

at::Tensor forward_cpu(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights,
                       at::TensorList graph, int64_t layer, std::string_view text) {
  if (weights.dim() == 1) return conv_with_shared_weights(x, harmonics, weights, graph, layer, text);
  const Arguments a = check(x, harmonics, weights, graph, layer, text);
  at::Tensor out = at::empty({x.size(0), a.problem->out.dim()}, x.options().requires_grad(false));
  zero_tail(out, a.graph.rows);
  dispatch_dtype(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::tensor_product_conv_forward<T>(*a.problem, a.graph.view, a.graph.rows, x.const_data_ptr<T>(),
                                        harmonics.const_data_ptr<T>(), weights.const_data_ptr<T>(),
                                        out.mutable_data_ptr<T>(), at::get_num_threads());
  });
  return out;
}

Gradients backward_cpu(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& harmonics,
                       const at::Tensor& weights, at::TensorList graph, int64_t layer, std::string_view text,
                       Mask mask) {
  Arguments a = check(x, harmonics, weights, graph, layer, text);
  check_tensor(kOp, "grad_out", grad_out, a.dtype, {x.size(0), a.problem->out.dim()});
  const Transpose transpose(a.graph.view, mask[0]);
  auto like = [](const at::Tensor& t, bool wanted) {
    return wanted ? at::empty(t.sizes(), t.options().requires_grad(false)) : at::Tensor();
  };
  Gradients grads{like(x, mask[0]), like(harmonics, mask[1]), like(weights, mask[2])};
  dispatch_dtype(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto data = [](at::Tensor& t) { return t.defined() ? t.mutable_data_ptr<T>() : nullptr; };
    cpu::tensor_product_conv_backward<T>(*a.problem, a.graph.view, a.graph.rows, x.const_data_ptr<T>(),
                                         harmonics.const_data_ptr<T>(), weights.const_data_ptr<T>(),
                                         grad_out.const_data_ptr<T>(), data(std::get<0>(grads)),
                                         data(std::get<1>(grads)), data(std::get<2>(grads)), at::get_num_threads());
  });
  return grads;
}

at::Tensor forward_meta(const at::Tensor& x, const at::Tensor&, const at::Tensor&, at::TensorList, int64_t,
                        std::string_view text) {
  return at::empty_symint({x.sym_size(0), conv_problem(kOp, text, false)->out.dim()}, x.options());
}

Gradients backward_meta(const at::Tensor&, const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights,
                        at::TensorList, int64_t, std::string_view, Mask mask) {
  auto like = [](const at::Tensor& t, bool wanted) {
    return wanted ? at::empty_symint(t.sym_sizes(), t.options()) : at::Tensor();
  };
  return {like(x, mask[0]), like(harmonics, mask[1]), like(weights, mask[2])};
}

class TensorProductConv : public torch::autograd::Function<TensorProductConv> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& harmonics,
                            const at::Tensor& weights, std::vector<at::Tensor> graph, int64_t layer, std::string text) {
    at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor out = call_conv(x, harmonics, weights, graph, layer, text);
    ctx->save_for_backward({x, harmonics, weights});
    ctx->saved_data["graph"] = std::move(graph);
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["problem"] = std::move(text);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Mask mask{ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->needs_input_grad(2)};
    auto [x, harmonics, weights] = call_conv_backward(
        grads[0].contiguous(), saved[0], saved[1], saved[2], ctx->saved_data["graph"].toTensorVector(),
        ctx->saved_data["layer"].toInt(), ctx->saved_data["problem"].toStringRef(), mask);
    return {x, harmonics, weights, {}, {}, {}};
  }
};

/// The first derivatives as an op that can be differentiated in turn, any number of times: its derivatives are those of
/// tensor_product_conv_double_backward.
class TensorProductConvBackward : public torch::autograd::Function<TensorProductConvBackward> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& grad_out, const at::Tensor& x,
                               const at::Tensor& harmonics, const at::Tensor& weights, std::vector<at::Tensor> graph,
                               int64_t layer, std::string text, Mask mask) {
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [grad_x, grad_harmonics, grad_weights] =
        call_conv_backward(grad_out, x, harmonics, weights, graph, layer, text, mask);
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({grad_out, x, harmonics, weights});
    ctx->saved_data["graph"] = std::move(graph);
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["problem"] = std::move(text);
    ctx->saved_data["mask"] = std::vector<bool>(mask.begin(), mask.end());
    // Only what was asked for: autograd's outputs must be defined.
    variable_list results;
    for (const at::Tensor& grad : {grad_x, grad_harmonics, grad_weights}) {
      if (grad.defined()) results.push_back(grad);
    }
    return results;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto made = ctx->saved_data["mask"].toBoolList();
    std::array<std::optional<at::Tensor>, 3> from;
    size_t next = 0;
    for (size_t k = 0; k < 3; ++k) {
      if (!made[k]) continue;
      const at::Tensor& incoming = grads[next++];
      if (incoming.defined()) from[k] = incoming.contiguous();
    }
    if (!from[0] && !from[1] && !from[2]) return variable_list(8);
    const auto [grad_out, x, harmonics, weights] = call_conv_double_backward(
        saved[0], saved[1], saved[2], saved[3], from[0], from[1], from[2], ctx->saved_data["graph"].toTensorVector(),
        ctx->saved_data["layer"].toInt(), ctx->saved_data["problem"].toStringRef(),
        {ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->needs_input_grad(2), ctx->needs_input_grad(3)});
    return {grad_out, x, harmonics, weights, {}, {}, {}, {}};
  }
};

at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights,
                            at::TensorList graph, int64_t layer, std::string_view text) {
  if (weights.dim() == 1) return conv_with_shared_weights(x, harmonics, weights, graph, layer, text);
  return TensorProductConv::apply(x, harmonics, weights, graph.vec(), layer, std::string(text));
}

Gradients backward_autograd(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& harmonics,
                            const at::Tensor& weights, at::TensorList graph, int64_t layer, std::string_view text,
                            Mask mask) {
  if (!mask[0] && !mask[1] && !mask[2]) return {};
  const auto results =
      TensorProductConvBackward::apply(grad_out, x, harmonics, weights, graph.vec(), layer, std::string(text), mask);
  std::array<at::Tensor, 3> grads;
  size_t next = 0;
  for (size_t k = 0; k < 3; ++k) {
    if (mask[k]) grads[k] = results[next++];
  }
  return {grads[0], grads[1], grads[2]};
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("tensor_product_conv", forward_cpu);
  library.impl("tensor_product_conv_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("tensor_product_conv", forward_meta);
  library.impl("tensor_product_conv_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) {
  library.impl("tensor_product_conv", forward_autograd);
  library.impl("tensor_product_conv_backward", backward_autograd);
}

}  // namespace clebsch::ops::tensor_product_conv_op
