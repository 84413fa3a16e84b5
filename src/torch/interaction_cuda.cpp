// clebsch::interaction and interaction_density on CUDA tensors: checks, allocations and launches; autograd is in
// interaction.cpp.
#include "cuda/interaction/interaction.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "core/errors.h"
#include "core/radial/radial_spline.h"
#include "core/radial/radial_table.h"
#include "cuda/interaction/projection.h"
#include "cuda/nodes/node_linear.h"
#include "torch/cuda_tensors.h"
#include "torch/edge_gradient_sum.h"
#include "torch/index_check.h"
#include "torch/interaction_density.h"

namespace clebsch::ops::interaction_on_cuda {
namespace {

constexpr const char* kOp = "interaction (cuda)";
using Gradients = std::tuple<at::Tensor, at::Tensor>;
using Mask = std::array<bool, 2>;

struct Call {
  std::shared_ptr<const Problem> problem;
  std::shared_ptr<const cuda::Interaction> kernels;
  bool any_order = false;  ///< CudaGraph
  cuda::InteractionOperands operands;
};

/// Checks shapes, dtypes and devices; indices and types, which live on the device, when checks_device_indices().
/// Callers hold a device guard.
Call check(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
           at::TensorList radial, int64_t layer, std::string_view text, bool density = false) {
  Call call;
  call.problem = cached_problem(std::string(text));
  const Problem& problem = *call.problem;
  require(problem.radial.has_value(), "{}: expected a problem with a radial part", kOp);
  require(
      problem.radial->smooth_end(),
      "{}: the radial functions jump at the cutoff (a network with LayerNorm behind the cutoff: apply_cutoff True), "
      "the GPU's kernels need them to end in zero. Run this model on the CPU",
      kOp);
  const cuda::Scalar scalar = scalar_of(kOp, x);
  const at::ScalarType dtype = x.scalar_type();
  const at::Device device = x.device();
  const CudaGraph g = check_cuda_graph(kOp, graph, x, layer);
  check_on(kOp, x, "x", device, dtype, {-1, problem.in1.dim()});
  check_on(kOp, edge_vec, "edge_vec", device, at::kDouble, {g.edges, 3});
  require(radial.size() == 5, "{}: radial: expected 5 tensors, got {}", kOp, radial.size());
  check_on(kOp, radial[2], "radial's cutoffs", device, at::kDouble, {-1, -1});
  const int64_t type_count = radial[2].size(0);
  check_on(kOp, radial[2], "radial's cutoffs", device, at::kDouble, {type_count, type_count});
  check_types_on(kOp, types, device, x.size(0), type_count);
  check_on(kOp, radial[1], "radial's table_index", device, at::kInt, {type_count, type_count});
  // Splines have one number where pieces have kTableOrder.
  const bool splines = radial[0].dim() == 4 && radial[0].size(2) == 1;
  call.kernels = cuda::Interaction::make(call.problem, scalar, splines, density);
  const int64_t least = splines ? spline_rows(1) : 2;
  check_on(kOp, radial[0], "radial's table", device, dtype, {-1, -1, splines ? 1 : kTableOrder, problem.weight_count});
  require(radial[0].size(0) >= 1 && radial[0].size(1) >= least,
          "{}: radial's table: expected at least one table of at least {} rows, got {} and {}", kOp, least,
          radial[0].size(0), radial[0].size(1));
  cuda::InteractionOperands& o = call.operands;
  o.x = x.const_data_ptr();
  o.edge_vec = edge_vec.const_data_ptr<double>();
  o.senders = g.senders;
  o.receivers = g.receivers;
  o.types = types.const_data_ptr<int32_t>();
  o.table = radial[0].const_data_ptr();
  o.table_index = radial[1].const_data_ptr<int32_t>();
  o.cutoffs = radial[2].const_data_ptr<double>();
  o.type_count = static_cast<int32_t>(type_count);
  o.tables = static_cast<int32_t>(radial[0].size(0));
  o.pieces = static_cast<int32_t>(radial[0].size(1) - (splines ? spline_rows(0) : 1));
  o.row_ptr = g.row_ptr;
  o.col_ptr = g.col_ptr;
  o.col_edge = g.col_edge;
  call.any_order = g.any_order;
  o.row_limit = g.row_limit;
  o.graph_rows = g.rows;
  o.nodes = static_cast<int32_t>(x.size(0));
  o.edges = g.edges;
  return call;
}

/// Adds the density's radial list to a checked call. Its cutoffs are trusted to be the interaction's.
void add_density(Call& call, at::TensorList density, std::string_view text, const at::Tensor& x) {
  density_problem(kOp, text);
  require(density.size() == 5, "{}: density: expected 5 tensors, got {}", kOp, density.size());
  const int64_t types = call.operands.type_count;
  check_on(kOp, density[0], "density's table", x.device(), x.scalar_type(), {-1, -1, kTableOrder, 1});
  check_on(kOp, density[1], "density's table_index", x.device(), at::kInt, {types, types});
  check_on(kOp, density[2], "density's cutoffs", x.device(), at::kDouble, {types, types});
  require(density[0].size(0) >= 1 && density[0].size(1) >= 2,
          "{}: density's table: expected at least one table of at least 2 rows, got {} and {}", kOp, density[0].size(0),
          density[0].size(1));
  // The kernels read two numbers at a time.
  require(density[0].storage_offset() % 2 == 0, "{}: density's table: expected it to begin at an even place", kOp);
  call.operands.density.table = density[0].const_data_ptr();
  call.operands.density.index = density[1].const_data_ptr<int32_t>();
  call.operands.density.tables = static_cast<int32_t>(density[0].size(0));
  call.operands.density.pieces = static_cast<int32_t>(density[0].size(1) - 1);
}

at::Tensor run_forward(const Call& call, const at::Tensor& x) {
  at::Tensor out = at::empty({x.size(0), call.problem->out.dim()}, x.options().requires_grad(false));
  const at::Tensor workspace = scratch(call.kernels->forward_workspace(call.operands, x.size(0)), x);
  call.kernels->forward(call.operands, x.size(0), out.mutable_data_ptr(), address(workspace),
                        current_stream(x.device()));
  return out;
}

/// The tables of a projection (ops.schema) have five dimensions.
bool is_projected(at::TensorList radial) { return radial.size() == 5 && radial[0].dim() == 5; }

struct ProjectedCall {
  DensityProjection projection;
  std::shared_ptr<const cuda::NodeLinear> map;
  cuda::LinearOperands operands;  ///< of the map, without x
  cuda::ProjectionArguments arguments;
};

/// As check(), of an interaction that is projected.
ProjectedCall check_projected(bool backward, const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph,
                              const at::Tensor& types, at::TensorList radial, int64_t layer, std::string_view text) {
  const auto problem = cached_problem(std::string(text));
  const cuda::Scalar scalar = scalar_of(kOp, x);
  const at::Device device = x.device();
  const CudaGraph g = check_cuda_graph(kOp, graph, x, layer);
  require(can_project(*problem) && scalar == cuda::Scalar::f32 && g.row_limit,
          "{}: expected a layer of scalars in float32 for tables of a projection, got {}", kOp, text);
  check_on(kOp, x, "x", device, at::kFloat, {-1, problem->in1.dim()});
  check_on(kOp, edge_vec, "edge_vec", device, at::kDouble, {g.edges, 3});
  check_on(kOp, radial[2], "radial's cutoffs", device, at::kDouble, {-1, -1});
  const int64_t type_count = radial[2].size(0);
  check_on(kOp, radial[2], "radial's cutoffs", device, at::kDouble, {type_count, type_count});
  check_types_on(kOp, types, device, x.size(0), type_count);
  check_on(kOp, radial[1], "radial's table_index", device, at::kInt, {type_count, type_count});
  const int64_t slots = radial[0].size(2), rows = radial[0].size(3);
  ProjectedCall call;
  call.projection = density_projection(*problem, static_cast<int>(rows - spline_rows(0)), static_cast<int>(slots));
  check_on(kOp, radial[0], "radial's table", device, at::kFloat,
           {3, static_cast<int64_t>(problem->paths.size()), slots, rows, problem->in1.dim()});
  const std::string& map = backward ? call.projection.differences : call.projection.linear;
  call.map = cuda::NodeLinear::make(cached_linear_problem(map), scalar);
  call.operands.weight = radial[0].const_data_ptr<float>() + (backward ? radial[0].stride(0) : 0);
  call.operands.row_limit = g.row_limit;
  call.operands.nodes = static_cast<int32_t>(x.size(0));
  call.arguments.edge_vec = edge_vec.const_data_ptr<double>();
  call.arguments.row_ptr = g.row_ptr;
  call.arguments.senders = g.senders;
  call.arguments.types = types.const_data_ptr<int32_t>();
  call.arguments.slots = radial[1].const_data_ptr<int32_t>();
  call.arguments.cutoffs = radial[2].const_data_ptr<double>();
  call.arguments.row_limit = g.row_limit;
  call.arguments.type_count = static_cast<int32_t>(type_count);
  call.arguments.graph_rows = g.rows;
  return call;
}

at::Tensor project_forward(ProjectedCall call, const at::Tensor& x, int64_t out_dim) {
  const at::TensorOptions options = x.options().requires_grad(false);
  at::Tensor sums = at::empty({x.size(0), call.projection.width()}, options);
  at::Tensor out = at::empty({x.size(0), out_dim}, options);
  const cuda::Stream stream = current_stream(x.device());
  call.arguments.sums = sums.mutable_data_ptr<float>();
  cuda::Projection::make(call.projection)->forward(call.arguments, stream);
  call.operands.x = sums.const_data_ptr();
  call.map->run(call.operands, false, out.mutable_data_ptr(), nullptr, stream);
  return out;
}

at::Tensor project_backward(ProjectedCall call, const at::Tensor& grad_out, const at::Tensor& edge_vec,
                            int64_t out_dim) {
  check_on(kOp, grad_out, "grad_out", edge_vec.device(), at::kFloat, {call.operands.nodes, out_dim});
  at::Tensor grad_sums =
      at::empty({grad_out.size(0), 2 * call.projection.width()}, grad_out.options().requires_grad(false));
  at::Tensor grad = at::empty(edge_vec.sizes(), edge_vec.options().requires_grad(false));
  const cuda::Stream stream = current_stream(edge_vec.device());
  call.operands.x = grad_out.const_data_ptr();
  call.map->run(call.operands, true, grad_sums.mutable_data_ptr(), nullptr, stream);
  call.arguments.grad_sums = grad_sums.const_data_ptr<float>();
  call.arguments.grad_edge_vec = grad.mutable_data_ptr<double>();
  cuda::Projection::make(call.projection)->backward(call.arguments, stream);
  return grad;
}

at::Tensor forward_cuda(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                        at::TensorList radial, int64_t layer, std::string_view text) {
  const c10::DeviceGuard device_guard(x.device());
  if (is_projected(radial)) {
    return project_forward(check_projected(false, x, edge_vec, graph, types, radial, layer, text), x,
                           cached_problem(std::string(text))->out.dim());
  }
  return run_forward(check(x, edge_vec, graph, types, radial, layer, text), x);
}

std::vector<at::Tensor> density_forward_cuda(const at::Tensor& x, const at::Tensor& edge_vec, at::TensorList graph,
                                             const at::Tensor& types, at::TensorList radial, at::TensorList density,
                                             int64_t layer, std::string_view text, std::string_view density_text) {
  const c10::DeviceGuard device_guard(x.device());
  Call call = check(x, edge_vec, graph, types, radial, layer, text, true);
  add_density(call, density, density_text, x);
  const at::Tensor sums = at::empty({x.size(0), 1}, x.options().requires_grad(false));
  call.operands.density.sum = sums.mutable_data_ptr();
  return {run_forward(call, x), sums};
}

Gradients run_backward(Call call, const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& edge_vec,
                       Mask mask) {
  check_on(kOp, grad_out, "grad_out", x.device(), x.scalar_type(), {x.size(0), call.problem->out.dim()});
  const bool in_order = call.operands.col_ptr != nullptr && !call.any_order;
  require_order(kOp, !mask[0] || in_order);
  auto like = [](const at::Tensor& t, bool wanted) {
    return wanted ? at::empty(t.sizes(), t.options().requires_grad(false)) : at::Tensor();
  };
  EdgeGradientSum* const sum = mask[1] ? EdgeGradientSum::of(edge_vec) : nullptr;
  Gradients grads{like(x, mask[0]), like(edge_vec, mask[1] && !sum)};
  bool adds = false;
  const at::Tensor vectors = sum ? sum->target(adds) : std::get<1>(grads);
  call.operands.adds_vectors = adds;
  const cuda::InteractionOutputs wanted{mask[0], mask[1], in_order};
  const at::Tensor workspace = scratch(call.kernels->backward_workspace(call.operands, wanted), x);
  call.kernels->backward(call.operands, wanted, grad_out.const_data_ptr(), address(std::get<0>(grads)),
                         mask[1] ? vectors.mutable_data_ptr<double>() : nullptr, address(workspace),
                         current_stream(x.device()));
  return grads;
}

Gradients backward_cuda(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& edge_vec,
                        at::TensorList graph, const at::Tensor& types, at::TensorList radial, int64_t layer,
                        std::string_view text, Mask mask) {
  const c10::DeviceGuard device_guard(x.device());
  if (is_projected(radial)) {
    require(!mask[0], "{}: features that a projection takes from types have no gradient", kOp);
    if (!mask[1]) return {};
    return {at::Tensor(), project_backward(check_projected(true, x, edge_vec, graph, types, radial, layer, text),
                                           grad_out, edge_vec, cached_problem(std::string(text))->out.dim())};
  }
  return run_backward(check(x, edge_vec, graph, types, radial, layer, text), grad_out, x, edge_vec, mask);
}

Gradients density_backward_cuda(const at::Tensor& grad_out, const at::Tensor& grad_density, const at::Tensor& x,
                                const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                                at::TensorList radial, at::TensorList density, int64_t layer, std::string_view text,
                                std::string_view density_text, Mask mask) {
  const c10::DeviceGuard device_guard(x.device());
  Call call = check(x, edge_vec, graph, types, radial, layer, text, true);
  add_density(call, density, density_text, x);
  check_on(kOp, grad_density, "grad_density", x.device(), x.scalar_type(), {x.size(0), 1});
  call.operands.density.grad = grad_density.const_data_ptr();
  return run_backward(call, grad_out, x, edge_vec, mask);
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("interaction_density", density_forward_cuda);
  library.impl("interaction_density_backward", density_backward_cuda);
  library.impl("interaction", forward_cuda);
  library.impl("interaction_backward", backward_cuda);
}

}  // namespace clebsch::ops::interaction_on_cuda
