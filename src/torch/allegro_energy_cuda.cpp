// clebsch::allegro_energy on CUDA tensors: checks, allocations and launches; autograd is in allegro_energy.cpp.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tuple>

#include "core/errors.h"
#include "core/radial/radial_table.h"
#include "cuda/allegro/allegro.h"
#include "torch/cuda_tensors.h"
#include "torch/index_check.h"

namespace clebsch::ops::allegro_energy_on_cuda {
namespace {

constexpr const char* kOp = "allegro_energy (cuda)";
using EnergyGradient = std::tuple<at::Tensor, at::Tensor>;

/// Checks shapes, dtypes and devices; indices and types, which live on the device, when checks_device_indices().
EnergyGradient run(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList radial,
                   at::TensorList weights, int64_t layer, std::string_view text, bool gradients,
                   bool features = false) {
  const c10::DeviceGuard device_guard(edge_vec.device());
  const at::Device device = edge_vec.device();
  const auto problem = cached_allegro_problem(std::string(text));
  const CudaGraph g = check_cuda_graph(kOp, graph, types, layer);
  check_on(kOp, edge_vec, "edge_vec", device, at::kDouble, {g.edges, 3});
  require(weights.size() == 3, "{}: expected 3 weights (networks, paths, norm), got {}", kOp, weights.size());
  const cuda::Scalar scalar = scalar_of(kOp, weights[0]);
  const at::ScalarType dtype = weights[0].scalar_type();
  check_on(kOp, weights[0], "weights (networks)", device, dtype, {problem->dense_weights});
  check_on(kOp, weights[1], "weights (paths)", device, dtype, {problem->path_weights});
  require(radial.size() == 5, "{}: radial: expected 5 tensors, got {}", kOp, radial.size());
  check_on(kOp, radial[2], "radial's cutoffs", device, at::kDouble, {-1, -1});
  const int64_t count = radial[2].size(0);
  check_on(kOp, radial[2], "radial's cutoffs", device, at::kDouble, {count, count});
  check_types_on(kOp, types, device, -1, count);
  check_on(kOp, weights[2], "weights (norm)", device, at::kDouble, {count});
  require(radial[0].numel() > 0,
          "{}: the two-body part of Allegro runs from tables alone on a GPU: expected radial table, got radial exact. "
          "Use radial table or the CPU",
          kOp);
  check_on(kOp, radial[1], "radial's table_index", device, at::kInt, {count, count});
  check_on(kOp, radial[0], "radial's table", device, dtype, {-1, -1, kTableOrder, problem->radial.columns()});
  require(radial[0].size(1) >= 2 && radial[0].size(0) * radial[0].size(1) < (1 << 24),
          "{}: radial's table: expected at least 2 rows a table and fewer than 2^24 in all, got {} tables of {}", kOp,
          radial[0].size(0), radial[0].size(1));
  cuda::AllegroOperands o;
  o.edge_vec = edge_vec.const_data_ptr<double>();
  o.senders = g.senders;
  o.receivers = g.receivers;
  o.types = types.const_data_ptr<int32_t>();
  o.table = radial[0].const_data_ptr();
  o.table_index = radial[1].const_data_ptr<int32_t>();
  o.cutoffs = radial[2].const_data_ptr<double>();
  o.type_count = static_cast<int32_t>(count);
  o.tables = static_cast<int32_t>(radial[0].size(0));
  o.pieces = static_cast<int32_t>(radial[0].size(1) - 1);
  o.dense = weights[0].const_data_ptr();
  o.paths = weights[1].const_data_ptr();
  o.norm = weights[2].const_data_ptr<double>();
  o.row_ptr = g.row_ptr;
  o.row_limit = g.row_limit;
  o.rows = g.rows;
  o.nodes = static_cast<int32_t>(types.size(0));
  o.edges = g.edges;
  const auto options = edge_vec.options().requires_grad(false);
  at::Tensor energy = at::empty({types.size(0)}, options), gradient, all;
  const int64_t width = 1 + problem->features();
  if (features) all = at::zeros({types.size(0), width}, options);
  if (gradients) gradient = at::empty(edge_vec.sizes(), options);
  const auto kernels = cuda::AllegroEnergy::make(problem, scalar);
  const at::Tensor workspace = scratch(kernels->workspace(o, kernels->chunks()), edge_vec);
  kernels->run(o, kernels->chunks(), energy.mutable_data_ptr<double>(),
               gradients ? gradient.mutable_data_ptr<double>() : nullptr,
               features ? all.mutable_data_ptr<double>() + 1 : nullptr, width, address(workspace),
               current_stream(device));
  if (features) all.select(1, 0).copy_(energy);
  return {features ? all : energy, gradient};
}

at::Tensor forward_cuda(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                        at::TensorList radial, at::TensorList weights, int64_t layer, std::string_view text) {
  return std::get<0>(run(edge_vec, graph, types, radial, weights, layer, text, false));
}

EnergyGradient gradient_cuda(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                             at::TensorList radial, at::TensorList weights, int64_t layer, std::string_view text) {
  return run(edge_vec, graph, types, radial, weights, layer, text, true);
}

at::Tensor features_cuda(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                         at::TensorList radial, at::TensorList weights, int64_t layer, std::string_view text) {
  return std::get<0>(run(edge_vec, graph, types, radial, weights, layer, text, false, true));
}

EnergyGradient features_gradient_cuda(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                                      at::TensorList radial, at::TensorList weights, int64_t layer,
                                      std::string_view text) {
  return run(edge_vec, graph, types, radial, weights, layer, text, true, true);
}

at::Tensor backward_cuda(const at::Tensor& grad_out, const at::Tensor& gradient, at::TensorList graph, int64_t layer) {
  constexpr const char* kBackward = "allegro_energy_backward (cuda)";
  const c10::DeviceGuard device_guard(gradient.device());
  check_on(kBackward, grad_out, "grad_out", gradient.device(), at::kDouble, {-1});
  const CudaGraph g = check_cuda_graph(kBackward, graph, grad_out, layer);
  check_on(kBackward, gradient, "gradient", gradient.device(), at::kDouble, {g.edges, 3});
  at::Tensor result = at::empty(gradient.sizes(), gradient.options().requires_grad(false));
  cuda::scale_energy_rows(grad_out.const_data_ptr<double>(), gradient.const_data_ptr<double>(), g.row_ptr, g.row_limit,
                          g.rows, result.mutable_data_ptr<double>(), current_stream(gradient.device()));
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("allegro_energy", forward_cuda);
  library.impl("allegro_energy_gradient", gradient_cuda);
  library.impl("allegro_features", features_cuda);
  library.impl("allegro_features_gradient", features_gradient_cuda);
  library.impl("allegro_energy_backward", backward_cuda);
}

}  // namespace clebsch::ops::allegro_energy_on_cuda
