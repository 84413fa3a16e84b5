// clebsch::interaction: radial functions, harmonics, tensor product and receiver sum in one op, for dynamics.
// With an empty table it is the composite of the exact ops instead: slow, the reference of every table.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/errors.h"
#include "torch/dense.h"
#include "torch/exact_radial.h"
#include "torch/tensors.h"

namespace clebsch::ops::interaction_op {
namespace {

constexpr const char* kOp = "interaction";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Gradients = std::tuple<at::Tensor, at::Tensor>;
using Mask = std::array<bool, 2>;

struct Arguments {
  std::shared_ptr<const Problem> problem;
  CheckedGraph graph;
  at::ScalarType dtype;
};

Arguments check(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                at::TensorList radial, int64_t layer, std::string_view text) {
  Arguments a;
  a.problem = conv_problem(kOp, text, true);
  a.dtype = check_compute_dtype(kOp, "x", x);
  check_tensor(kOp, "x", x, a.dtype, {-1, a.problem->in1.dim()});
  a.graph = check_graph(kOp, graph, x.size(0), layer);
  check_tensor(kOp, "edge_vec", edge_vec, at::kDouble, {a.graph.view.n_edges, 3});
  check_types(kOp, types, x.size(0), check_radial(kOp, radial, *a.problem));
  a.graph.view.types = types.const_data_ptr<int32_t>();
  a.graph.view.edge_vec = edge_vec.const_data_ptr<double>();
  return a;
}

/// The op made of its exact parts; all of its derivatives come from theirs.
at::Tensor exact(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                 at::TensorList radial, int64_t layer, std::string_view text) {
  using Embedding = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, at::TensorList, const at::Tensor&,
                                                       at::TensorList, int64_t, std::string_view, at::ScalarType);
  using Conv =
      at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, at::TensorList, int64_t, std::string_view);
  static const auto embedding =
      c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::edge_embedding", "").typed<Embedding>();
  static const auto conv =
      c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::tensor_product_conv", "").typed<Conv>();
  const auto problem = conv_problem(kOp, text, true);
  const RadialDescription& description = *problem->radial;
  require(radial.size() == 5, "clebsch::{}: expected radial of 5 tensors, got {}", kOp, radial.size());
  if (!description.plain()) {
    // The op that makes the harmonics also makes a radial basis. Nobody reads it, so it has one function.
    Problem bare = *problem;
    bare.radial = RadialDescription{};
    bare.radial->widths = {1, bare.weight_count};
    const std::vector<at::Tensor> one = {radial[0], radial[1], radial[2], radial[3].narrow(0, 0, 1), radial[4]};
    const at::Tensor harmonics =
        std::get<0>(embedding.call(edge_vec, graph, types, one, layer, bare.str(), x.scalar_type()));
    const at::Tensor weights = exact_radial(edge_vec, graph, types, radial, layer, *problem, x.scalar_type());
    return conv.call(x, harmonics, weights, graph, layer, text);
  }
  const at::Tensor& network = radial[4];
  require(network.defined() && network.device() == x.device() && network.scalar_type() == x.scalar_type() &&
              network.dim() == 1 && network.size(0) == description.weight_count() && network.is_contiguous(),
          "clebsch::{}: expected radial's network to be a contiguous tensor of {} numbers, of x's dtype and device",
          kOp, description.weight_count());
  auto [harmonics, weights] = embedding.call(edge_vec, graph, types, radial, layer, text, x.scalar_type());
  int64_t offset = 0;
  for (size_t k = 0; k + 1 < description.widths.size(); ++k) {
    const int64_t in = description.widths[k], out = description.widths[k + 1];
    weights = dense(k ? at::silu(weights) : weights, network.narrow(0, offset, in * out).view({in, out}));
    offset += in * out;
  }
  return conv.call(x, harmonics, weights, graph, layer, text);
}

at::Tensor forward_cpu(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                       at::TensorList radial, int64_t layer, std::string_view text) {
  if (is_exact(radial)) return exact(x, edge_vec, graph, types, radial, layer, text);
  const Arguments a = check(x, edge_vec, graph, types, radial, layer, text);
  at::Tensor out = at::empty({x.size(0), a.problem->out.dim()}, x.options().requires_grad(false));
  zero_tail(out, a.graph.rows);
  dispatch_dtype(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::interaction_forward<T>(*a.problem, a.graph.view, radial_view<T>(kOp, radial, *a.problem), a.graph.rows,
                                x.const_data_ptr<T>(), out.mutable_data_ptr<T>(), at::get_num_threads());
  });
  return out;
}

Gradients backward_cpu(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& edge_vec,
                       at::TensorList graph, const at::Tensor& types, at::TensorList radial, int64_t layer,
                       std::string_view text, Mask mask) {
  Arguments a = check(x, edge_vec, graph, types, radial, layer, text);
  check_tensor(kOp, "grad_out", grad_out, a.dtype, {x.size(0), a.problem->out.dim()});
  const Transpose transpose(a.graph.view, mask[0]);
  at::Tensor grad_x, grad_edge_vec;
  if (mask[0]) grad_x = at::empty(x.sizes(), x.options().requires_grad(false));
  if (mask[1]) grad_edge_vec = at::empty(edge_vec.sizes(), edge_vec.options().requires_grad(false));
  dispatch_dtype(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::interaction_backward<T>(*a.problem, a.graph.view, radial_view<T>(kOp, radial, *a.problem), a.graph.rows,
                                 x.const_data_ptr<T>(), grad_out.const_data_ptr<T>(),
                                 mask[1] ? grad_edge_vec.mutable_data_ptr<double>() : nullptr,
                                 mask[0] ? grad_x.mutable_data_ptr<T>() : nullptr, at::get_num_threads());
  });
  return {grad_x, grad_edge_vec};
}

at::Tensor forward_meta(const at::Tensor& x, const at::Tensor&, at::TensorList, const at::Tensor&, at::TensorList,
                        int64_t, std::string_view text) {
  return at::empty_symint({x.sym_size(0), conv_problem(kOp, text, true)->out.dim()}, x.options());
}

Gradients backward_meta(const at::Tensor&, const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList,
                        const at::Tensor&, at::TensorList, int64_t, std::string_view, Mask mask) {
  at::Tensor grad_x, grad_edge_vec;
  if (mask[0]) grad_x = at::empty_symint(x.sym_sizes(), x.options());
  if (mask[1]) grad_edge_vec = at::empty_symint(edge_vec.sym_sizes(), edge_vec.options());
  return {grad_x, grad_edge_vec};
}

class Interaction : public torch::autograd::Function<Interaction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& edge_vec,
                            std::vector<at::Tensor> graph, const at::Tensor& types, std::vector<at::Tensor> radial,
                            int64_t layer, std::string text) {
    at::AutoDispatchBelowADInplaceOrView guard;
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::interaction", "").typed<decltype(forward_cpu)>();
    at::Tensor out = op.call(x, edge_vec, graph, types, radial, layer, text);
    ctx->save_for_backward({x, edge_vec, types});
    ctx->saved_data["graph"] = graph;
    ctx->saved_data["radial"] = radial;
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["problem"] = std::move(text);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("clebsch::interaction_backward", "")
                               .typed<decltype(backward_cpu)>();
    variable_list results;
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      const Mask mask{ctx->needs_input_grad(0), ctx->needs_input_grad(1)};
      auto [x, edge_vec] = op.call(grads[0].contiguous(), saved[0], saved[1], ctx->saved_data["graph"].toTensorVector(),
                                   saved[2], ctx->saved_data["radial"].toTensorVector(),
                                   ctx->saved_data["layer"].toInt(), ctx->saved_data["problem"].toStringRef(), mask);
      results = {x, edge_vec};
    }
    results = refuse_double_backward(kOp, results, {saved[0], saved[1], grads[0]});
    results.resize(7);
    return results;
  }
};

at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph,
                            const at::Tensor& types, at::TensorList radial, int64_t layer, std::string_view text) {
  if (is_exact(radial)) return exact(x, edge_vec, graph, types, radial, layer, text);
  return Interaction::apply(x, edge_vec, graph.vec(), types, radial.vec(), layer, std::string(text));
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("interaction", forward_cpu);
  library.impl("interaction_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("interaction", forward_meta);
  library.impl("interaction_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) { library.impl("interaction", forward_autograd); }

}  // namespace clebsch::ops::interaction_op
