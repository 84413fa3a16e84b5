// clebsch::pair_repulsion on CUDA tensors: checks and launches; autograd is in pair_repulsion.cpp.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "core/errors.h"
#include "core/problem/node_problem.h"
#include "cuda/edges/pair_repulsion.h"
#include "torch/cuda_tensors.h"
#include "torch/index_check.h"

namespace clebsch::ops::pair_repulsion_on_cuda {
namespace {

constexpr const char* kOp = "pair_repulsion (cuda)";

/// Indices and types, which live on the device, are looked at when checks_device_indices(). Callers hold a device
/// guard.
cuda::RepulsionOperands check(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                              at::TensorList parameters, const ZblProblem& problem) {
  const at::Device device = types.device();
  const CudaGraph g = check_cuda_graph(kOp, graph, types, -1);
  check_on(kOp, edge_vec, "edge_vec", device, at::kDouble, {g.edges, 3});
  require(parameters.size() == 2, "{}: expected 2 parameters (cutoffs, charges), got {}", kOp, parameters.size());
  check_on(kOp, parameters[1], "charges", device, at::kDouble, {-1});
  const int64_t count = parameters[1].size(0);
  check_on(kOp, parameters[0], "cutoffs", device, at::kDouble, {count, count});
  check_types_on(kOp, types, device, -1, count);
  cuda::RepulsionOperands o;
  o.edge_vec = edge_vec.const_data_ptr<double>();
  o.row_ptr = g.row_ptr;
  o.senders = g.senders;
  o.types = types.const_data_ptr<int32_t>();
  o.cutoffs = parameters[0].const_data_ptr<double>();
  o.charges = parameters[1].const_data_ptr<double>();
  o.rows = g.rows;
  o.nodes = static_cast<int32_t>(types.size(0));
  o.type_count = static_cast<int32_t>(count);
  o.power = problem.p;
  o.scale = problem.scale;
  return o;
}

at::Tensor forward_cuda(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                        at::TensorList parameters, std::string_view text) {
  const c10::DeviceGuard device_guard(types.device());
  const ZblProblem problem = ZblProblem::parse(std::string(text));
  const cuda::RepulsionOperands o = check(edge_vec, graph, types, parameters, problem);
  at::Tensor energy = at::empty({types.size(0)}, edge_vec.options().requires_grad(false));
  cuda::PairRepulsion::make(problem)->forward(o, energy.mutable_data_ptr<double>(), current_stream(types.device()));
  return energy;
}

at::Tensor backward_cuda(const at::Tensor& grad_out, const at::Tensor& edge_vec, at::TensorList graph,
                         const at::Tensor& types, at::TensorList parameters, std::string_view text) {
  const c10::DeviceGuard device_guard(types.device());
  const ZblProblem problem = ZblProblem::parse(std::string(text));
  const cuda::RepulsionOperands o = check(edge_vec, graph, types, parameters, problem);
  check_on(kOp, grad_out, "grad_out", types.device(), at::kDouble, {types.size(0)});
  at::Tensor grad = at::empty(edge_vec.sizes(), edge_vec.options().requires_grad(false));
  cuda::PairRepulsion::make(problem)->backward(o, grad_out.const_data_ptr<double>(), grad.mutable_data_ptr<double>(),
                                               current_stream(types.device()));
  return grad;
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("pair_repulsion", forward_cuda);
  library.impl("pair_repulsion_backward", backward_cuda);
}

}  // namespace clebsch::ops::pair_repulsion_on_cuda
