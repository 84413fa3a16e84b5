// clebsch::interaction_density: interaction with one radial function more, summed over the same edges in the same pass
// (MACE divides its messages by such a density). With an empty table it is two interactions, of which the second sums
// over ones.
#include "torch/interaction_density.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "core/errors.h"
#include "torch/exact_radial.h"
#include "torch/tensors.h"

namespace clebsch::ops {

std::shared_ptr<const Problem> density_problem(const char* op, std::string_view text) {
  auto problem = conv_problem(op, text, true);
  const bool sum = problem->in1.dim() == 1 && problem->in2.dim() == 1 && problem->out.dim() == 1 &&
                   problem->paths.size() == 1 && problem->weight_count == 1 && problem->paths[0].coefficient == 1.0;
  require(sum, "{}: expected density_problem to sum one radial function (1x0e to 1x0e, coefficient 1), got '{}'", op,
          text);
  return problem;
}

}  // namespace clebsch::ops

namespace clebsch::ops::interaction_density_op {
namespace {

constexpr const char* kOp = "interaction_density";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Gradients = std::tuple<at::Tensor, at::Tensor>;
using Mask = std::array<bool, 2>;
using Results = std::vector<at::Tensor>;

struct Arguments {
  std::shared_ptr<const Problem> problem, density;
  CheckedGraph graph;
  at::ScalarType dtype;
};

Arguments check(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                at::TensorList radial, at::TensorList density, int64_t layer, std::string_view text,
                std::string_view density_text) {
  Arguments a;
  a.problem = conv_problem(kOp, text, true);
  a.density = density_problem(kOp, density_text);
  a.dtype = check_compute_dtype(kOp, "x", x);
  check_tensor(kOp, "x", x, a.dtype, {-1, a.problem->in1.dim()});
  a.graph = check_graph(kOp, graph, x.size(0), layer);
  check_tensor(kOp, "edge_vec", edge_vec, at::kDouble, {a.graph.view.n_edges, 3});
  const int64_t count = check_radial(kOp, radial, *a.problem);
  check_types(kOp, types, x.size(0), count);
  const double* cutoffs = radial[2].const_data_ptr<double>();
  const bool alike = check_radial(kOp, density, *a.density) == count &&
                     std::equal(cutoffs, cutoffs + count * count, density[2].const_data_ptr<double>());
  require(alike, "clebsch::{}: expected density's cutoffs to be those of radial", kOp);
  a.graph.view.types = types.const_data_ptr<int32_t>();
  a.graph.view.edge_vec = edge_vec.const_data_ptr<double>();
  return a;
}

/// Two interactions; each decides by its own table how it evaluates.
Results composite(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                  at::TensorList radial, at::TensorList density, int64_t layer, std::string_view text,
                  std::string_view density_text) {
  using Interaction = at::Tensor(const at::Tensor&, const at::Tensor&, at::TensorList, const at::Tensor&,
                                 at::TensorList, int64_t, std::string_view);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::interaction", "").typed<Interaction>();
  density_problem(kOp, density_text);
  const at::Tensor ones = at::ones({x.size(0), 1}, x.options().requires_grad(false));
  return {op.call(x, edge_vec, graph, types, radial, layer, text),
          op.call(ones, edge_vec, graph, types, density, layer, density_text)};
}

Results forward_cpu(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                    at::TensorList radial, at::TensorList density, int64_t layer, std::string_view text,
                    std::string_view density_text) {
  if (is_exact(radial) || is_exact(density)) {
    return composite(x, edge_vec, graph, types, radial, density, layer, text, density_text);
  }
  const Arguments a = check(x, edge_vec, graph, types, radial, density, layer, text, density_text);
  const auto options = x.options().requires_grad(false);
  at::Tensor out = at::empty({x.size(0), a.problem->out.dim()}, options), sums = at::empty({x.size(0), 1}, options);
  zero_tail(out, a.graph.rows);
  zero_tail(sums, a.graph.rows);
  dispatch_dtype(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const cpu::DensityView<T> view{radial_view<T>(kOp, density, *a.density), sums.mutable_data_ptr<T>(), nullptr};
    cpu::interaction_forward<T>(*a.problem, a.graph.view, radial_view<T>(kOp, radial, *a.problem), a.graph.rows,
                                x.const_data_ptr<T>(), out.mutable_data_ptr<T>(), at::get_num_threads(), &view);
  });
  return {out, sums};
}

Gradients backward_cpu(const at::Tensor& grad_out, const at::Tensor& grad_density, const at::Tensor& x,
                       const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList radial,
                       at::TensorList density, int64_t layer, std::string_view text, std::string_view density_text,
                       Mask mask) {
  Arguments a = check(x, edge_vec, graph, types, radial, density, layer, text, density_text);
  check_tensor(kOp, "grad_out", grad_out, a.dtype, {x.size(0), a.problem->out.dim()});
  check_tensor(kOp, "grad_density", grad_density, a.dtype, {x.size(0), 1});
  const Transpose transpose(a.graph.view, mask[0]);
  at::Tensor grad_x, grad_edge_vec;
  if (mask[0]) grad_x = at::empty(x.sizes(), x.options().requires_grad(false));
  if (mask[1]) grad_edge_vec = at::empty(edge_vec.sizes(), edge_vec.options().requires_grad(false));
  dispatch_dtype(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const cpu::DensityView<T> view{radial_view<T>(kOp, density, *a.density), nullptr, grad_density.const_data_ptr<T>()};
    cpu::interaction_backward<T>(*a.problem, a.graph.view, radial_view<T>(kOp, radial, *a.problem), a.graph.rows,
                                 x.const_data_ptr<T>(), grad_out.const_data_ptr<T>(),
                                 mask[1] ? grad_edge_vec.mutable_data_ptr<double>() : nullptr,
                                 mask[0] ? grad_x.mutable_data_ptr<T>() : nullptr, at::get_num_threads(), &view);
  });
  return {grad_x, grad_edge_vec};
}

Results forward_meta(const at::Tensor& x, const at::Tensor&, at::TensorList, const at::Tensor&, at::TensorList,
                     at::TensorList, int64_t, std::string_view text, std::string_view) {
  return {at::empty_symint({x.sym_size(0), conv_problem(kOp, text, true)->out.dim()}, x.options()),
          at::empty_symint({x.sym_size(0), 1}, x.options())};
}

Gradients backward_meta(const at::Tensor&, const at::Tensor&, const at::Tensor& x, const at::Tensor& edge_vec,
                        at::TensorList, const at::Tensor&, at::TensorList, at::TensorList, int64_t, std::string_view,
                        std::string_view, Mask mask) {
  at::Tensor grad_x, grad_edge_vec;
  if (mask[0]) grad_x = at::empty_symint(x.sym_sizes(), x.options());
  if (mask[1]) grad_edge_vec = at::empty_symint(edge_vec.sym_sizes(), edge_vec.options());
  return {grad_x, grad_edge_vec};
}

class InteractionDensity : public torch::autograd::Function<InteractionDensity> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& edge_vec,
                               std::vector<at::Tensor> graph, const at::Tensor& types, std::vector<at::Tensor> radial,
                               std::vector<at::Tensor> density, int64_t layer, std::string text,
                               std::string density_text) {
    at::AutoDispatchBelowADInplaceOrView guard;
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("clebsch::interaction_density", "")
                               .typed<decltype(forward_cpu)>();
    variable_list results = op.call(x, edge_vec, graph, types, radial, density, layer, text, density_text);
    ctx->save_for_backward({x, edge_vec, types});
    ctx->saved_data["graph"] = graph;
    ctx->saved_data["radial"] = radial;
    ctx->saved_data["density"] = density;
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["problem"] = std::move(text);
    ctx->saved_data["density_problem"] = std::move(density_text);
    return results;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("clebsch::interaction_density_backward", "")
                               .typed<decltype(backward_cpu)>();
    variable_list results;
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      const Mask mask{ctx->needs_input_grad(0), ctx->needs_input_grad(1)};
      const auto list = [&](const char* name) { return ctx->saved_data[name].toTensorVector(); };
      auto [x, edge_vec] =
          op.call(grads[0].contiguous(), grads[1].contiguous(), saved[0], saved[1], list("graph"), saved[2],
                  list("radial"), list("density"), ctx->saved_data["layer"].toInt(),
                  ctx->saved_data["problem"].toStringRef(), ctx->saved_data["density_problem"].toStringRef(), mask);
      results = {x, edge_vec};
    }
    results = refuse_double_backward(kOp, results, {saved[0], saved[1], grads[0], grads[1]});
    results.resize(9);
    return results;
  }
};

Results forward_autograd(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                         at::TensorList radial, at::TensorList density, int64_t layer, std::string_view text,
                         std::string_view density_text) {
  if (is_exact(radial) || is_exact(density)) {
    return composite(x, edge_vec, graph, types, radial, density, layer, text, density_text);
  }
  return InteractionDensity::apply(x, edge_vec, graph.vec(), types, radial.vec(), density.vec(), layer,
                                   std::string(text), std::string(density_text));
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("interaction_density", forward_cpu);
  library.impl("interaction_density_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("interaction_density", forward_meta);
  library.impl("interaction_density_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) { library.impl("interaction_density", forward_autograd); }

}  // namespace clebsch::ops::interaction_density_op
