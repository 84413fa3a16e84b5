// clebsch::tensor_product_conv on CUDA tensors: checks, allocations and launches; autograd is in
// tensor_product_conv.cpp.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <optional>

#include "core/errors.h"
#include "cuda/conv/tensor_product_conv.h"
#include "torch/conv_derivatives.h"
#include "torch/cuda_tensors.h"
#include "torch/shared_weights.h"

namespace clebsch::ops::tensor_product_conv_on_cuda {
namespace {

constexpr const char* kOp = "tensor_product_conv (cuda)";
using Gradients = ConvGradients;
using Incoming = std::optional<at::Tensor>;
using Mask = std::array<bool, 3>;

struct Call {
  std::shared_ptr<const Problem> problem;
  std::shared_ptr<const cuda::TensorProductConv> kernels;
  cuda::ConvOperands operands;
};

/// Checks shapes, dtypes and devices; indices, which live on the device, when checks_device_indices(). Callers hold a
/// device guard.
Call check(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights, at::TensorList graph,
           int64_t layer, std::string_view text) {
  Call call;
  call.problem = cached_problem(std::string(text));
  const Problem& problem = *call.problem;
  const cuda::Scalar scalar = scalar_of(kOp, x);
  const at::ScalarType dtype = x.scalar_type();
  const CudaGraph g = check_cuda_graph(kOp, graph, x, layer);
  check_on(kOp, x, "x", x.device(), dtype, {-1, problem.in1.dim()});
  check_on(kOp, harmonics, "harmonics", x.device(), dtype, {g.edges, problem.in2.dim()});
  check_on(kOp, weights, "weights", x.device(), dtype, {g.edges, problem.weight_count});
  call.kernels = cuda::TensorProductConv::make(call.problem, scalar);
  cuda::ConvOperands& o = call.operands;
  o.x = x.const_data_ptr();
  o.harmonics = harmonics.const_data_ptr();
  o.weights = weights.const_data_ptr();
  o.weight_stride = problem.weight_count;
  o.row_ptr = g.row_ptr;
  o.senders = g.senders;
  o.col_ptr = g.any_order ? nullptr : g.col_ptr;
  o.col_edge = g.col_edge;
  o.row_limit = g.row_limit;
  o.graph_rows = g.rows;
  o.nodes = static_cast<int32_t>(x.size(0));
  o.edges = g.edges;
  return call;
}

at::Tensor forward_cuda(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights,
                        at::TensorList graph, int64_t layer, std::string_view text) {
  // Under inference_mode no autograd function comes before this one.
  if (weights.dim() == 1) return conv_with_shared_weights(x, harmonics, weights, graph, layer, text);
  const c10::DeviceGuard device_guard(x.device());
  const Call call = check(x, harmonics, weights, graph, layer, text);
  at::Tensor out = at::empty({x.size(0), call.problem->out.dim()}, x.options().requires_grad(false));
  const at::Tensor workspace = scratch(call.kernels->forward_workspace(call.operands, x.size(0)), x);
  call.kernels->forward(call.operands, x.size(0), out.mutable_data_ptr(), address(workspace),
                        current_stream(x.device()));
  return out;
}

Gradients backward_cuda(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& harmonics,
                        const at::Tensor& weights, at::TensorList graph, int64_t layer, std::string_view text,
                        Mask mask) {
  const c10::DeviceGuard device_guard(x.device());
  const Call call = check(x, harmonics, weights, graph, layer, text);
  check_on(kOp, grad_out, "grad_out", x.device(), x.scalar_type(), {x.size(0), call.problem->out.dim()});
  auto like = [](const at::Tensor& t, bool wanted) {
    return wanted ? at::empty(t.sizes(), t.options().requires_grad(false)) : at::Tensor();
  };
  Gradients grads{like(x, mask[0]), like(harmonics, mask[1]), like(weights, mask[2])};
  const bool transposed = call.operands.col_ptr != nullptr;
  require_order(kOp, !mask[0] || transposed);
  const cuda::BackwardOutputs wanted{mask[0], mask[1], mask[2], transposed};
  const at::Tensor workspace = scratch(call.kernels->backward_workspace(call.operands, wanted), x);
  call.kernels->backward(call.operands, wanted, grad_out.const_data_ptr(), address(std::get<0>(grads)),
                         address(std::get<1>(grads)), address(std::get<2>(grads)), address(workspace),
                         current_stream(x.device()));
  return grads;
}

ConvSecondGradients double_backward_cuda(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& harmonics,
                                         const at::Tensor& weights, const Incoming& from_x,
                                         const Incoming& from_harmonics, const Incoming& from_weights,
                                         at::TensorList graph, int64_t layer, std::string_view text,
                                         std::array<bool, 4> mask) {
  const c10::DeviceGuard device_guard(x.device());
  const auto arrived = [](const Incoming& t) { return t && t->defined(); };
  if (!arrived(from_x) && !arrived(from_harmonics) && !arrived(from_weights)) return {};
  if (!mask[0] && !mask[1] && !mask[2] && !mask[3]) return {};
  const Call call = check(x, harmonics, weights, graph, layer, text);
  if (!call.kernels->has_double_backward()) {
    return compose_conv_double_backward(grad_out, x, harmonics, weights, from_x, from_harmonics, from_weights, graph,
                                        layer, text, mask);
  }
  const at::Device device = x.device();
  const at::ScalarType dtype = x.scalar_type();
  check_on(kOp, grad_out, "grad_out", device, dtype, {x.size(0), call.problem->out.dim()});
  if (arrived(from_x)) check_on(kOp, *from_x, "from_x", device, dtype, x.sizes());
  if (arrived(from_harmonics)) check_on(kOp, *from_harmonics, "from_harmonics", device, dtype, harmonics.sizes());
  if (arrived(from_weights)) check_on(kOp, *from_weights, "from_weights", device, dtype, weights.sizes());
  auto like = [](const at::Tensor& t, bool wanted) {
    return wanted ? at::empty(t.sizes(), t.options().requires_grad(false)) : at::Tensor();
  };
  const ConvSecondGradients grads{like(grad_out, mask[0]), like(x, mask[1]), like(harmonics, mask[2]),
                                  like(weights, mask[3])};
  const bool transposed = call.operands.col_ptr != nullptr;
  require_order(kOp, !mask[1] || transposed);
  const cuda::DoubleBackwardOutputs wanted{arrived(from_x),
                                           arrived(from_harmonics),
                                           arrived(from_weights),
                                           mask[0],
                                           {mask[1], mask[2], mask[3], transposed}};
  const at::Tensor workspace = scratch(call.kernels->double_backward_workspace(call.operands, x.size(0), wanted), x);
  const auto given = [&](const Incoming& t) { return arrived(t) ? t->const_data_ptr() : nullptr; };
  call.kernels->double_backward(call.operands, x.size(0), wanted,
                                {given(from_x), given(from_harmonics), given(from_weights), grad_out.const_data_ptr()},
                                {address(std::get<0>(grads)), address(std::get<1>(grads)), address(std::get<2>(grads)),
                                 address(std::get<3>(grads))},
                                address(workspace), current_stream(device));
  return grads;
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("tensor_product_conv_double_backward", double_backward_cuda);
  library.impl("tensor_product_conv", forward_cuda);
  library.impl("tensor_product_conv_backward", backward_cuda);
}

}  // namespace clebsch::ops::tensor_product_conv_on_cuda
