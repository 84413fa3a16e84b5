// clebsch::pair_repulsion: the pair term beside a model (ZBL), energies per receiver in fp64.
#include "cpu/pair_repulsion.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/errors.h"
#include "torch/tensors.h"

namespace clebsch::ops::pair_repulsion_op {
namespace {

constexpr const char* kOp = "pair_repulsion";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Arguments {
  ZblProblem problem;
  GraphView graph;
  int types = 0;
  const double* cutoffs = nullptr;
  const double* charges = nullptr;
};

Arguments check(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList parameters,
                std::string_view text) {
  Arguments a;
  a.problem = ZblProblem::parse(std::string(text));
  a.graph = check_graph(kOp, graph, types.numel(), -1).view;
  check_tensor(kOp, "edge_vec", edge_vec, at::kDouble, {a.graph.n_edges, 3});
  require(parameters.size() == 2, "clebsch::{}: expected 2 parameters (cutoffs, charges), got {}", kOp,
          parameters.size());
  check_tensor(kOp, "charges", parameters[1], at::kDouble, {-1});
  const int64_t count = parameters[1].numel();
  check_tensor(kOp, "cutoffs", parameters[0], at::kDouble, {count, count});
  check_types(kOp, types, types.numel(), count);
  a.graph.types = types.const_data_ptr<int32_t>();
  a.graph.edge_vec = edge_vec.const_data_ptr<double>();
  a.types = static_cast<int>(count);
  a.cutoffs = parameters[0].const_data_ptr<double>();
  a.charges = parameters[1].const_data_ptr<double>();
  return a;
}

at::Tensor forward_cpu(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                       at::TensorList parameters, std::string_view text) {
  const Arguments a = check(edge_vec, graph, types, parameters, text);
  at::Tensor energy = at::empty({types.numel()}, edge_vec.options().requires_grad(false));
  zero_tail(energy, a.graph.n_rows);
  cpu::pair_repulsion_forward(a.problem, a.graph, a.cutoffs, a.charges, a.types, energy.mutable_data_ptr<double>(),
                              at::get_num_threads());
  return energy;
}

at::Tensor backward_cpu(const at::Tensor& grad_out, const at::Tensor& edge_vec, at::TensorList graph,
                        const at::Tensor& types, at::TensorList parameters, std::string_view text) {
  const Arguments a = check(edge_vec, graph, types, parameters, text);
  check_tensor(kOp, "grad_out", grad_out, at::kDouble, {types.numel()});
  at::Tensor grad = at::empty(edge_vec.sizes(), edge_vec.options().requires_grad(false));
  cpu::pair_repulsion_backward(a.problem, a.graph, a.cutoffs, a.charges, a.types, grad_out.const_data_ptr<double>(),
                               grad.mutable_data_ptr<double>(), at::get_num_threads());
  return grad;
}

at::Tensor forward_meta(const at::Tensor& edge_vec, at::TensorList, const at::Tensor& types, at::TensorList,
                        std::string_view) {
  return at::empty_symint({types.sym_numel()}, edge_vec.options());
}

at::Tensor backward_meta(const at::Tensor&, const at::Tensor& edge_vec, at::TensorList, const at::Tensor&,
                         at::TensorList, std::string_view) {
  return at::empty_symint(edge_vec.sym_sizes(), edge_vec.options());
}

class PairRepulsion : public torch::autograd::Function<PairRepulsion> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& edge_vec, std::vector<at::Tensor> graph,
                            const at::Tensor& types, std::vector<at::Tensor> parameters, std::string text) {
    at::AutoDispatchBelowADInplaceOrView guard;
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::pair_repulsion", "").typed<decltype(forward_cpu)>();
    at::Tensor energy = op.call(edge_vec, graph, types, parameters, text);
    ctx->save_for_backward({edge_vec, types});
    ctx->saved_data["graph"] = graph;
    ctx->saved_data["parameters"] = parameters;
    ctx->saved_data["problem"] = std::move(text);
    return energy;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("clebsch::pair_repulsion_backward", "")
                               .typed<decltype(backward_cpu)>();
    at::Tensor grad;
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      grad = op.call(grads[0].contiguous(), saved[0], ctx->saved_data["graph"].toTensorVector(), saved[1],
                     ctx->saved_data["parameters"].toTensorVector(), ctx->saved_data["problem"].toStringRef());
    }
    grad = refuse_double_backward(kOp, {grad}, {saved[0], grads[0]})[0];
    return {grad, {}, {}, {}, {}};
  }
};

at::Tensor forward_autograd(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                            at::TensorList parameters, std::string_view text) {
  return PairRepulsion::apply(edge_vec, graph.vec(), types, parameters.vec(), std::string(text));
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("pair_repulsion", forward_cpu);
  library.impl("pair_repulsion_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("pair_repulsion", forward_meta);
  library.impl("pair_repulsion_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) { library.impl("pair_repulsion", forward_autograd); }

}  // namespace clebsch::ops::pair_repulsion_op
