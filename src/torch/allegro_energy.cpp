// clebsch::allegro_energy: a whole Allegro network in one op, which runs forward and backward chunk by chunk of
// receivers. When a gradient will be wanted it is made in the same pass: every energy depends on its own edges alone.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/errors.h"
#include "cpu/allegro.h"
#include "torch/tensors.h"

namespace clebsch::ops::allegro_energy_op {
namespace {

constexpr const char* kOp = "allegro_energy";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using EnergyGradient = std::tuple<at::Tensor, at::Tensor>;

/// What a call gives: energies, and the features that are put behind them.
enum class Give { energy, features };

/// (M) energies, or (M, 1 + d) with the features (M, d) behind them.
at::Tensor with_features(const at::Tensor& energy, const at::Tensor& features) {
  if (!features.defined()) return energy;
  at::Tensor all = at::empty({energy.size(0), 1 + features.size(1)}, energy.options());
  all.select(1, 0).copy_(energy);
  all.narrow(1, 1, features.size(1)).copy_(features);
  return all;
}

/// The radial part as the checks of radial tensors know it.
Problem radial_problem(const AllegroProblem& problem) {
  Problem part;
  part.radial = problem.radial;
  part.weight_count = problem.radial.columns();
  return part;
}

/// The networks of the pairs of types that are among `types`. Each is put together from its own first matrix and
/// the layers that all pairs share.
template <typename T>
void make_exact(const AllegroProblem& problem, at::TensorList radial, const int32_t* types, int64_t nodes,
                cpu::AllegroRadial<T>& result) {
  const int64_t count = radial[2].size(0), own = problem.pair_weights();
  check_tensor(kOp, "radial's network", radial[4], at::CppTypeToScalarType<T>::value, {problem.network_weights(count)});
  const T* network = radial[4].const_data_ptr<T>();
  const double* basis = radial[3].const_data_ptr<double>();
  std::vector<bool> present(count, false);
  for (int64_t i = 0; i < nodes; ++i) present[types[i]] = true;
  result.exact.resize(count * count);
  for (int64_t pair = 0; pair < count * count; ++pair) {
    if (!present[pair / count] || !present[pair % count]) continue;
    std::vector<double> weights(network + pair * own, network + (pair + 1) * own);
    weights.insert(weights.end(), network + count * count * own, network + problem.network_weights(count));
    result.exact[pair] = std::make_unique<const RadialNetwork>(
        problem.radial, std::vector<double>(basis, basis + problem.radial.basis_size()), std::move(weights));
  }
}

template <typename T>
void evaluate(const AllegroProblem& problem, const CheckedGraph& graph, at::TensorList radial, at::TensorList weights,
              double* energy, double* gradient, double* features) {
  cpu::AllegroRadial<T> two_body;
  if (radial[0].numel() == 0) {
    two_body.table.cutoffs = radial[2].const_data_ptr<double>();
    two_body.table.types = static_cast<int>(radial[2].size(0));
    make_exact(problem, radial, graph.view.types, graph.view.n_nodes, two_body);
  } else {
    two_body.table = radial_view<T>(kOp, radial, radial_problem(problem));
  }
  const cpu::AllegroWeights<T> values{weights[0].const_data_ptr<T>(), weights[1].const_data_ptr<T>(),
                                      weights[2].const_data_ptr<double>()};
  cpu::allegro_energy<T>(problem, graph.view, two_body, values, graph.rows, energy, gradient, features,
                         at::get_num_threads());
}

EnergyGradient run(const at::Tensor& edge_vec, at::TensorList graph_list, const at::Tensor& types,
                   at::TensorList radial, at::TensorList weights, int64_t layer, std::string_view text, bool gradients,
                   Give give = Give::energy) {
  const auto problem = cached_allegro_problem(std::string(text));
  CheckedGraph graph = check_graph(kOp, graph_list, types.numel(), layer);
  check_tensor(kOp, "edge_vec", edge_vec, at::kDouble, {graph.view.n_edges, 3});
  const int64_t count = check_radial(kOp, radial, radial_problem(*problem));
  check_types(kOp, types, types.numel(), count);
  graph.view.types = types.const_data_ptr<int32_t>();
  graph.view.edge_vec = edge_vec.const_data_ptr<double>();
  require(weights.size() == 3, "clebsch::{}: expected 3 weights (networks, paths, norm), got {}", kOp, weights.size());
  const auto dtype = check_compute_dtype(kOp, "weights", weights[0]);
  check_tensor(kOp, "weights (networks)", weights[0], dtype, {problem->dense_weights});
  check_tensor(kOp, "weights (paths)", weights[1], dtype, {problem->path_weights});
  check_tensor(kOp, "weights (norm)", weights[2], at::kDouble, {count});
  const auto options = edge_vec.options().requires_grad(false);
  at::Tensor energy = at::empty({types.numel()}, options), gradient, features;
  zero_tail(energy, graph.rows);
  if (give == Give::features) features = at::empty({types.numel(), problem->features()}, options);
  if (features.defined()) zero_tail(features, graph.rows);
  if (gradients) gradient = at::empty(edge_vec.sizes(), options);
  dispatch_dtype(dtype, [&](auto zero) {
    evaluate<decltype(zero)>(*problem, graph, radial, weights, energy.mutable_data_ptr<double>(),
                             gradients ? gradient.mutable_data_ptr<double>() : nullptr,
                             features.defined() ? features.mutable_data_ptr<double>() : nullptr);
  });
  return {with_features(energy, features), gradient};
}

at::Tensor forward_cpu(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList radial,
                       at::TensorList weights, int64_t layer, std::string_view text) {
  return std::get<0>(run(edge_vec, graph, types, radial, weights, layer, text, false));
}

EnergyGradient gradient_cpu(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                            at::TensorList radial, at::TensorList weights, int64_t layer, std::string_view text) {
  return run(edge_vec, graph, types, radial, weights, layer, text, true);
}

at::Tensor features_cpu(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                        at::TensorList radial, at::TensorList weights, int64_t layer, std::string_view text) {
  return std::get<0>(run(edge_vec, graph, types, radial, weights, layer, text, false, Give::features));
}

EnergyGradient features_gradient_cpu(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                                     at::TensorList radial, at::TensorList weights, int64_t layer,
                                     std::string_view text) {
  return run(edge_vec, graph, types, radial, weights, layer, text, true, Give::features);
}

at::Tensor backward_cpu(const at::Tensor& grad_out, const at::Tensor& gradient, at::TensorList graph_list,
                        int64_t layer) {
  constexpr const char* kBackward = "allegro_energy_backward";
  const CheckedGraph graph = check_graph(kBackward, graph_list, grad_out.numel(), layer);
  check_tensor(kBackward, "grad_out", grad_out, at::kDouble, {grad_out.numel()});
  check_tensor(kBackward, "gradient", gradient, at::kDouble, {graph.view.n_edges, 3});
  at::Tensor result = at::empty(gradient.sizes(), gradient.options());
  zero_tail(result, graph.view.row_ptr[graph.rows]);
  const double *scale = grad_out.const_data_ptr<double>(), *from = gradient.const_data_ptr<double>();
  double* to = result.mutable_data_ptr<double>();
#pragma omp parallel for schedule(static) num_threads(at::get_num_threads())
  for (int32_t i = 0; i < graph.rows; ++i) {
    for (int64_t k = 3 * int64_t{graph.view.row_ptr[i]}; k < 3 * int64_t{graph.view.row_ptr[i + 1]}; ++k) {
      to[k] = scale[i] * from[k];
    }
  }
  return result;
}

at::Tensor forward_meta(const at::Tensor& edge_vec, at::TensorList, const at::Tensor& types, at::TensorList,
                        at::TensorList, int64_t, std::string_view) {
  return at::empty_symint({types.sym_numel()}, edge_vec.options());
}

EnergyGradient gradient_meta(const at::Tensor& edge_vec, at::TensorList, const at::Tensor& types, at::TensorList,
                             at::TensorList, int64_t, std::string_view) {
  return {at::empty_symint({types.sym_numel()}, edge_vec.options()),
          at::empty_symint(edge_vec.sym_sizes(), edge_vec.options())};
}

at::Tensor features_meta(const at::Tensor& edge_vec, at::TensorList, const at::Tensor& types, at::TensorList,
                         at::TensorList, int64_t, std::string_view text) {
  const int64_t width = 1 + cached_allegro_problem(std::string(text))->features();
  return at::empty_symint({types.sym_numel(), width}, edge_vec.options());
}

EnergyGradient features_gradient_meta(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                                      at::TensorList radial, at::TensorList weights, int64_t layer,
                                      std::string_view text) {
  return {features_meta(edge_vec, graph, types, radial, weights, layer, text),
          at::empty_symint(edge_vec.sym_sizes(), edge_vec.options())};
}

at::Tensor backward_meta(const at::Tensor&, const at::Tensor& gradient, at::TensorList, int64_t) {
  return at::empty_symint(gradient.sym_sizes(), gradient.options());
}

class AllegroEnergy : public torch::autograd::Function<AllegroEnergy> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& edge_vec, std::vector<at::Tensor> graph,
                            const at::Tensor& types, std::vector<at::Tensor> radial, std::vector<at::Tensor> weights,
                            int64_t layer, std::string text, bool features) {
    at::AutoDispatchBelowADInplaceOrView guard;
    static const auto plain = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("clebsch::allegro_energy_gradient", "")
                                  .typed<decltype(gradient_cpu)>();
    static const auto more = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("clebsch::allegro_features_gradient", "")
                                 .typed<decltype(gradient_cpu)>();
    auto [energy, gradient] = (features ? more : plain).call(edge_vec, graph, types, radial, weights, layer, text);
    ctx->save_for_backward({edge_vec});
    ctx->saved_data["gradient"] = gradient;
    ctx->saved_data["graph"] = graph;
    ctx->saved_data["layer"] = layer;
    return energy;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("clebsch::allegro_energy_backward", "")
                               .typed<decltype(backward_cpu)>();
    at::Tensor grad;
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      const at::Tensor of_energy = grads[0].dim() == 2 ? grads[0].select(1, 0) : grads[0];
      grad = op.call(of_energy.contiguous(), ctx->saved_data["gradient"].toTensor(),
                     ctx->saved_data["graph"].toTensorVector(), ctx->saved_data["layer"].toInt());
    }
    grad = refuse_double_backward(kOp, {grad}, {ctx->get_saved_variables()[0], grads[0]})[0];
    return {grad, {}, {}, {}, {}, {}, {}, {}};
  }
};

at::Tensor forward_autograd(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                            at::TensorList radial, at::TensorList weights, int64_t layer, std::string_view text) {
  if (!edge_vec.requires_grad() || !at::GradMode::is_enabled()) {
    at::AutoDispatchBelowADInplaceOrView guard;
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::allegro_energy", "").typed<decltype(forward_cpu)>();
    return op.call(edge_vec, graph, types, radial, weights, layer, text);
  }
  return AllegroEnergy::apply(edge_vec, graph.vec(), types, radial.vec(), weights.vec(), layer, std::string(text),
                              false);
}

at::Tensor features_autograd(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                             at::TensorList radial, at::TensorList weights, int64_t layer, std::string_view text) {
  if (!edge_vec.requires_grad() || !at::GradMode::is_enabled()) {
    at::AutoDispatchBelowADInplaceOrView guard;
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::allegro_features", "").typed<decltype(forward_cpu)>();
    return op.call(edge_vec, graph, types, radial, weights, layer, text);
  }
  return AllegroEnergy::apply(edge_vec, graph.vec(), types, radial.vec(), weights.vec(), layer, std::string(text),
                              true);
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("allegro_energy", forward_cpu);
  library.impl("allegro_energy_gradient", gradient_cpu);
  library.impl("allegro_features", features_cpu);
  library.impl("allegro_features_gradient", features_gradient_cpu);
  library.impl("allegro_energy_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("allegro_energy", forward_meta);
  library.impl("allegro_energy_gradient", gradient_meta);
  library.impl("allegro_features", features_meta);
  library.impl("allegro_features_gradient", features_gradient_meta);
  library.impl("allegro_energy_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) {
  library.impl("allegro_energy", forward_autograd);
  library.impl("allegro_features", features_autograd);
}

}  // namespace clebsch::ops::allegro_energy_op
