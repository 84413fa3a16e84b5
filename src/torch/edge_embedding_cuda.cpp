// clebsch::edge_embedding on CUDA tensors: checks and launches; autograd is in edge_embedding.cpp.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tuple>

#include "core/errors.h"
#include "core/math/harmonics.h"
#include "cuda/edges/edge_embedding.h"
#include "torch/cuda_tensors.h"
#include "torch/index_check.h"
#include "torch/tensors.h"

namespace clebsch::ops::edge_embedding_on_cuda {
namespace {

constexpr const char* kOp = "edge_embedding (cuda)";

struct Call {
  std::shared_ptr<const Problem> problem;
  std::shared_ptr<const cuda::EdgeEmbedding> kernels;
  cuda::EmbeddingOperands operands;
};

/// Indices and types, which live on the device, are looked at when checks_device_indices(). Callers hold a device
/// guard.
Call check(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList radial,
           int64_t layer, std::string_view text, at::ScalarType dtype) {
  Call call;
  call.problem = conv_problem(kOp, text, true);
  require(dtype == at::kFloat || dtype == at::kDouble, "{}: expected dtype float32 or float64, got {}", kOp,
          at::toString(dtype));
  const at::Device device = types.device();
  const CudaGraph g = check_cuda_graph(kOp, graph, types, layer);
  check_on(kOp, edge_vec, "edge_vec", device, at::kDouble, {g.edges, 3});
  require(radial.size() == 5, "{}: radial: expected 5 tensors, got {}", kOp, radial.size());
  const int64_t count = radial[2].dim() == 2 ? radial[2].size(0) : 0;
  check_on(kOp, radial[2], "cutoffs", device, at::kDouble, {count, count});
  check_types_on(kOp, types, device, -1, count);
  check_on(kOp, radial[3], "basis", device, at::kDouble, {call.problem->radial->basis_size()});
  call.kernels = cuda::EdgeEmbedding::make(call.problem, dtype == at::kDouble ? cuda::Scalar::f64 : cuda::Scalar::f32);
  cuda::EmbeddingOperands& o = call.operands;
  o.edge_vec = edge_vec.const_data_ptr<double>();
  o.row_ptr = g.row_ptr;
  o.receivers = g.receivers;
  o.senders = g.senders;
  o.types = types.const_data_ptr<int32_t>();
  o.cutoffs = radial[2].const_data_ptr<double>();
  o.roots = radial[3].const_data_ptr<double>();
  o.row_limit = g.row_limit;
  o.rows = g.rows;
  o.type_count = static_cast<int32_t>(count);
  o.edges = g.edges;
  return call;
}

Call check_gradients(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                     at::TensorList graph, const at::Tensor& types, at::TensorList radial, int64_t layer,
                     std::string_view text) {
  const at::ScalarType dtype = grad_harmonics.scalar_type();
  Call call = check(edge_vec, graph, types, radial, layer, text, dtype);
  const int64_t edges = call.operands.edges;
  check_on(kOp, grad_harmonics, "grad_harmonics", types.device(), dtype,
           {edges, harmonics_count(call.problem->lmax_in2)});
  check_on(kOp, grad_basis, "grad_basis", types.device(), dtype, {edges, call.problem->radial->basis_size()});
  return call;
}

at::Tensor like(const at::Tensor& t) { return at::empty(t.sizes(), t.options().requires_grad(false)); }

std::tuple<at::Tensor, at::Tensor> forward_cuda(const at::Tensor& edge_vec, at::TensorList graph,
                                                const at::Tensor& types, at::TensorList radial, int64_t layer,
                                                std::string_view text, at::ScalarType dtype) {
  const c10::DeviceGuard device_guard(types.device());
  const Call call = check(edge_vec, graph, types, radial, layer, text, dtype);
  const auto options = edge_vec.options().dtype(dtype).requires_grad(false);
  at::Tensor harmonics = at::empty({call.operands.edges, harmonics_count(call.problem->lmax_in2)}, options);
  at::Tensor basis = at::empty({call.operands.edges, call.problem->radial->basis_size()}, options);
  call.kernels->forward(call.operands, harmonics.mutable_data_ptr(), basis.mutable_data_ptr(),
                        current_stream(types.device()));
  return {harmonics, basis};
}

at::Tensor backward_cuda(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
                         at::TensorList graph, const at::Tensor& types, at::TensorList radial, int64_t layer,
                         std::string_view text) {
  const c10::DeviceGuard device_guard(types.device());
  const Call call = check_gradients(grad_harmonics, grad_basis, edge_vec, graph, types, radial, layer, text);
  at::Tensor grad = like(edge_vec);
  call.kernels->backward(call.operands, grad_harmonics.const_data_ptr(), grad_basis.const_data_ptr(),
                         grad.mutable_data_ptr<double>(), current_stream(types.device()));
  return grad;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> double_backward_cuda(
    const at::Tensor& grad_harmonics, const at::Tensor& grad_basis, const at::Tensor& edge_vec,
    const at::Tensor& from_edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList radial,
    int64_t layer, std::string_view text) {
  const c10::DeviceGuard device_guard(types.device());
  const Call call = check_gradients(grad_harmonics, grad_basis, edge_vec, graph, types, radial, layer, text);
  check_on(kOp, from_edge_vec, "from_edge_vec", types.device(), at::kDouble, {call.operands.edges, 3});
  at::Tensor harmonics = like(grad_harmonics), basis = like(grad_basis), grad = like(edge_vec);
  call.kernels->double_backward(call.operands, grad_harmonics.const_data_ptr(), grad_basis.const_data_ptr(),
                                from_edge_vec.const_data_ptr<double>(), harmonics.mutable_data_ptr(),
                                basis.mutable_data_ptr(), grad.mutable_data_ptr<double>(),
                                current_stream(types.device()));
  return {harmonics, basis, grad};
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("edge_embedding", forward_cuda);
  library.impl("edge_embedding_backward", backward_cuda);
  library.impl("edge_embedding_double_backward", double_backward_cuda);
}

}  // namespace clebsch::ops::edge_embedding_on_cuda
