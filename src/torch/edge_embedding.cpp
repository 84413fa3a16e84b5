// clebsch::edge_embedding: harmonics and radial basis of every edge, for the exact path and training.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/math/harmonics.h"
#include "cpu/tensor_product_conv.h"
#include "torch/edge_embedding_gradient.h"
#include "torch/tensors.h"

namespace clebsch::ops::edge_embedding_op {
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

using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Triple double_backward_cpu(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                           const at::Tensor& from_edge_vec, at::TensorList graph, const at::Tensor& types,
                           at::TensorList radial, int64_t layer, std::string_view text) {
  const Arguments a = check(edge_vec, graph, types, radial, layer, text);
  const auto dtype = check_compute_dtype(kOp, "grad_harmonics", grad_harmonics);
  const int64_t edges = edge_vec.size(0);
  check_tensor(kOp, "grad_harmonics", grad_harmonics, dtype, {edges, harmonics_count(a.problem->lmax_in2)});
  check_tensor(kOp, "grad_basis", grad_basis, dtype, {edges, a.problem->radial->basis_size()});
  check_tensor(kOp, "from_edge_vec", from_edge_vec, at::kDouble, {edges, 3});
  const auto like = [](const at::Tensor& t) { return at::empty(t.sizes(), t.options().requires_grad(false)); };
  Triple results{like(grad_harmonics), like(grad_basis), like(edge_vec)};
  dispatch_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    cpu::edge_embedding_double_backward<T>(
        *a.problem, a.graph.view, radial[2].const_data_ptr<double>(), radial[3].const_data_ptr<double>(), a.types,
        a.graph.rows, grad_harmonics.const_data_ptr<T>(), grad_basis.const_data_ptr<T>(),
        from_edge_vec.const_data_ptr<double>(), std::get<0>(results).mutable_data_ptr<T>(),
        std::get<1>(results).mutable_data_ptr<T>(), std::get<2>(results).mutable_data_ptr<double>(),
        at::get_num_threads());
  });
  return results;
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

Triple double_backward_meta(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                            const at::Tensor&, at::TensorList, const at::Tensor&, at::TensorList, int64_t,
                            std::string_view) {
  const auto like = [](const at::Tensor& t) { return at::empty_symint(t.sym_sizes(), t.options()); };
  return {like(grad_harmonics), like(grad_basis), like(edge_vec)};
}

at::Tensor call_backward(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                         at::TensorList graph, const at::Tensor& types, at::TensorList radial, int64_t layer,
                         std::string_view text) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::edge_embedding_backward", "")
                             .typed<decltype(backward_cpu)>();
  return op.call(grad_harmonics, grad_basis, edge_vec, graph, types, radial, layer, text);
}

Triple call_double_backward(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                            const at::Tensor& from_edge_vec, at::TensorList graph, const at::Tensor& types,
                            at::TensorList radial, int64_t layer, std::string_view text) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("clebsch::edge_embedding_double_backward", "")
                             .typed<decltype(double_backward_cpu)>();
  return op.call(grad_harmonics, grad_basis, edge_vec, from_edge_vec, graph, types, radial, layer, text);
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

/// The first derivative as an op that can be differentiated in turn.
class EdgeEmbeddingBackward : public torch::autograd::Function<EdgeEmbeddingBackward> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& grad_harmonics, const at::Tensor& grad_basis,
                            const at::Tensor& edge_vec, std::vector<at::Tensor> graph, const at::Tensor& types,
                            std::vector<at::Tensor> radial, int64_t layer, std::string text) {
    at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor grad = call_backward(grad_harmonics, grad_basis, edge_vec, graph, types, radial, layer, text);
    ctx->save_for_backward({grad_harmonics, grad_basis, edge_vec, types});
    ctx->saved_data["graph"] = std::move(graph);
    ctx->saved_data["radial"] = std::move(radial);
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["problem"] = std::move(text);
    return grad;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto graph = ctx->saved_data["graph"].toTensorVector(), radial = ctx->saved_data["radial"].toTensorVector();
    const int64_t layer = ctx->saved_data["layer"].toInt();
    const std::string& text = ctx->saved_data["problem"].toStringRef();
    const at::Tensor from = grads[0].contiguous();
    variable_list results(8);
    if (!at::GradMode::is_enabled()) {
      const auto [harmonics, basis, edge_vec] =
          call_double_backward(saved[0], saved[1], saved[2], from, graph, saved[3], radial, layer, text);
      results[0] = harmonics;
      results[1] = basis;
      results[2] = edge_vec;
      return results;
    }
    // A third derivative may follow: the same from differentiable ops.
    variable_list inputs;
    std::vector<size_t> places;
    for (size_t k = 0; k < 3; ++k) {
      if (!saved[k].requires_grad()) continue;
      inputs.push_back(saved[k]);
      places.push_back(k);
    }
    const at::Tensor gradient =
        edge_embedding_gradient(saved[0], saved[1], saved[2], graph, saved[3], radial, layer, text);
    const variable_list made = torch::autograd::grad({gradient}, inputs, {from}, true, true, true);
    for (size_t k = 0; k < made.size(); ++k) results[places[k]] = made[k];
    return results;
  }
};

at::Tensor backward_autograd(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                             at::TensorList graph, const at::Tensor& types, at::TensorList radial, int64_t layer,
                             std::string_view text) {
  return EdgeEmbeddingBackward::apply(grad_harmonics, grad_basis, edge_vec, graph.vec(), types, radial.vec(), layer,
                                      std::string(text));
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("edge_embedding", forward_cpu);
  library.impl("edge_embedding_backward", backward_cpu);
  library.impl("edge_embedding_double_backward", double_backward_cpu);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("edge_embedding", forward_meta);
  library.impl("edge_embedding_backward", backward_meta);
  library.impl("edge_embedding_double_backward", double_backward_meta);
}
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) {
  library.impl("edge_embedding", forward_autograd);
  library.impl("edge_embedding_backward", backward_autograd);
}

}  // namespace clebsch::ops::edge_embedding_op
