// clebsch::edge_embedding: harmonics and radial basis of every edge, for the exact path and training.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/harmonics.h"
#include "cpu/tensor_product_conv.h"
#include "torch/edge_embedding_gradient.h"
#include "torch/tensors.h"

namespace clebsch::ops {
namespace {

constexpr const char* kOp = "edge_embedding";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Pair = std::tuple<at::Tensor, at::Tensor>;

struct Arguments {
  std::shared_ptr<const Problem> problem;
  CheckedGraph graph;
  int types = 0;
};

Arguments check(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList radial,
                int64_t layer, std::string_view text) {
  Arguments a;
  a.problem = conv_problem(kOp, text, true);
  a.graph = check_graph(kOp, graph, types.numel(), layer);
  a.types = static_cast<int>(check_radial(kOp, radial, *a.problem));
  check_types(kOp, types, types.numel(), a.types);
  check_tensor(kOp, "edge_vec", edge_vec, at::kDouble, {a.graph.view.n_edges, 3});
  a.graph.view.types = types.const_data_ptr<int32_t>();
  a.graph.view.edge_vec = edge_vec.const_data_ptr<double>();
  return a;
}

Pair forward_cpu(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList radial,
                 int64_t layer, std::string_view text, at::ScalarType dtype) {
  const Arguments a = check(edge_vec, graph, types, radial, layer, text);
  auto options = edge_vec.options().dtype(dtype).requires_grad(false);
  at::Tensor harmonics = at::empty({edge_vec.size(0), harmonics_count(a.problem->lmax_in2)}, options);
  at::Tensor basis = at::empty({edge_vec.size(0), a.problem->radial->basis_size()}, options);
  check_compute_dtype(kOp, "the output", harmonics);
  dispatch_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::edge_embedding_forward<T>(*a.problem, a.graph.view, radial[2].const_data_ptr<double>(),
                                   radial[3].const_data_ptr<double>(), a.types, a.graph.rows,
                                   harmonics.mutable_data_ptr<T>(), basis.mutable_data_ptr<T>(), at::get_num_threads());
  });
  return {harmonics, basis};
}

at::Tensor backward_cpu(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                        at::TensorList graph, const at::Tensor& types, at::TensorList radial, int64_t layer,
                        std::string_view text) {
  const Arguments a = check(edge_vec, graph, types, radial, layer, text);
  const auto dtype = check_compute_dtype(kOp, "grad_harmonics", grad_harmonics);
  const int64_t edges = edge_vec.size(0);
  check_tensor(kOp, "grad_harmonics", grad_harmonics, dtype, {edges, harmonics_count(a.problem->lmax_in2)});
  check_tensor(kOp, "grad_basis", grad_basis, dtype, {edges, a.problem->radial->basis_size()});
  at::Tensor grad = at::empty({edges, 3}, edge_vec.options().requires_grad(false));
  dispatch_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::edge_embedding_backward<T>(*a.problem, a.graph.view, radial[2].const_data_ptr<double>(),
                                    radial[3].const_data_ptr<double>(), a.types, a.graph.rows,
                                    grad_harmonics.const_data_ptr<T>(), grad_basis.const_data_ptr<T>(),
                                    grad.mutable_data_ptr<double>(), at::get_num_threads());
  });
  return grad;
}

Pair forward_meta(const at::Tensor& edge_vec, at::TensorList, const at::Tensor&, at::TensorList, int64_t,
                  std::string_view text, at::ScalarType dtype) {
  const auto problem = conv_problem(kOp, text, true);
  auto options = edge_vec.options().dtype(dtype);
  return {at::empty_symint({edge_vec.sym_size(0), harmonics_count(problem->lmax_in2)}, options),
          at::empty_symint({edge_vec.sym_size(0), problem->radial->basis_size()}, options)};
}

at::Tensor backward_meta(const at::Tensor&, const at::Tensor&, const at::Tensor& edge_vec, at::TensorList,
                         const at::Tensor&, at::TensorList, int64_t, std::string_view) {
  return at::empty_symint(edge_vec.sym_sizes(), edge_vec.options());
}

at::Tensor call_backward(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                         at::TensorList graph, const at::Tensor& types, at::TensorList radial, int64_t layer,
                         std::string_view text) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::edge_embedding_backward", "")
                             .typed<decltype(backward_cpu)>();
  return op.call(grad_harmonics, grad_basis, edge_vec, graph, types, radial, layer, text);
}

class EdgeEmbedding : public torch::autograd::Function<EdgeEmbedding> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& edge_vec, std::vector<at::Tensor> graph,
                               const at::Tensor& types, std::vector<at::Tensor> radial, int64_t layer, std::string text,
                               at::ScalarType dtype) {
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [harmonics, basis] = call_edge_embedding(edge_vec, graph, types, radial, layer, text, dtype);
    ctx->save_for_backward({edge_vec, types});
    ctx->saved_data["graph"] = graph;
    ctx->saved_data["radial"] = radial;
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["problem"] = std::move(text);
    return {harmonics, basis};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor grad =
        call_backward(grads[0].contiguous(), grads[1].contiguous(), saved[0], ctx->saved_data["graph"].toTensorVector(),
                      saved[1], ctx->saved_data["radial"].toTensorVector(), ctx->saved_data["layer"].toInt(),
                      ctx->saved_data["problem"].toStringRef());
    return {grad, {}, {}, {}, {}, {}, {}};
  }
};

Pair forward_autograd(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList radial,
                      int64_t layer, std::string_view text, at::ScalarType dtype) {
  const auto out = EdgeEmbedding::apply(edge_vec, graph.vec(), types, radial.vec(), layer, std::string(text), dtype);
  return {out[0], out[1]};
}

/// The kernel where the gradient is final; where it will be differentiated again, the same from differentiable ops.
at::Tensor backward_autograd(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                             at::TensorList graph, const at::Tensor& types, at::TensorList radial, int64_t layer,
                             std::string_view text) {
  const bool differentiable = at::GradMode::is_enabled() && (grad_harmonics.requires_grad() ||
                                                             grad_basis.requires_grad() || edge_vec.requires_grad());
  if (differentiable) {
    return edge_embedding_gradient(grad_harmonics, grad_basis, edge_vec, graph, types, radial, layer, text);
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return call_backward(grad_harmonics, grad_basis, edge_vec, graph, types, radial, layer, text);
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("edge_embedding", forward_cpu);
  library.impl("edge_embedding_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("edge_embedding", forward_meta);
  library.impl("edge_embedding_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) {
  library.impl("edge_embedding", forward_autograd);
  library.impl("edge_embedding_backward", backward_autograd);
}

}  // namespace clebsch::ops
