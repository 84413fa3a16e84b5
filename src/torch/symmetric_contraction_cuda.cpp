// clebsch::symmetric_contraction on CUDA tensors: checks, allocations and launches; autograd is in
// symmetric_contraction_autograd.cpp.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include <array>

#include "core/errors.h"
#include "cuda/symmetric_contraction.h"
#include "torch/symmetric_contraction.h"
#include "torch/symmetric_gradient.h"

namespace clebsch::ops {
namespace {

constexpr const char* kOp = "symmetric_contraction (cuda)";

/// Throws unless the tensor is dense, contiguous, on the device of x and of this dtype and shape (-1: any length).
void check_on(const at::Tensor& tensor, const char* name, at::Device device, at::ScalarType dtype,
              at::IntArrayRef shape) {
  require(tensor.defined() && tensor.layout() == at::kStrided && tensor.is_contiguous(),
          "{}: {}: expected a dense contiguous tensor", kOp, name);
  require(tensor.device() == device, "{}: {}: expected device {}, got {}", kOp, name, device.str(),
          tensor.device().str());
  require(tensor.scalar_type() == dtype, "{}: {}: expected dtype {}, got {}", kOp, name, at::toString(dtype),
          at::toString(tensor.scalar_type()));
  bool fits = tensor.dim() == static_cast<int64_t>(shape.size());
  for (size_t d = 0; fits && d < shape.size(); ++d)
    fits = shape[d] < 0 || tensor.size(static_cast<int64_t>(d)) == shape[d];
  require(fits, "{}: {}: expected shape {} (-1: any), got {}", kOp, name, c10::str(shape), c10::str(tensor.sizes()));
}

struct Call {
  std::shared_ptr<const SymmetricProblem> problem;
  std::shared_ptr<const cuda::SymmetricContraction> kernels;
  cuda::SymmetricOperands operands;
  at::Tensor row_limit;  ///< (1) or undefined
  cuda::Stream stream = nullptr;

  /// Checks shapes, dtypes and devices. Types live on the device; the kernels write zeros for those out of range.
  /// Callers hold a device guard.
  Call(const at::Tensor& x, const at::Tensor& coefficients, const at::Tensor& types, at::TensorList graph,
       int64_t layer, std::string_view text)
      : problem(cached_symmetric_problem(std::string(text))) {
    const at::ScalarType dtype = x.scalar_type();
    const at::Device device = x.device();
    require(dtype == at::kFloat || dtype == at::kDouble, "{}: x: expected float32 or float64, got {}", kOp,
            at::toString(dtype));
    check_on(x, "x", device, dtype, {-1, problem->in.dim()});
    check_coefficients(coefficients, "coefficients", x, -1);
    check_on(types, "types", device, at::kInt, {x.size(0)});
    require(graph.size() == 7, "{}: graph: expected 7 tensors, got {}", kOp, graph.size());
    check_on(graph[5], "layer_rows", device, at::kInt, {-1});
    require(layer >= -1 && layer < graph[5].size(0), "{}: layer: expected -1 to {}, got {}", kOp, graph[5].size(0) - 1,
            layer);
    require(x.size(0) < (int64_t{1} << 31) - 65536, "{}: expected fewer than 2^31 - 65536 rows", kOp);
    if (layer >= 0) row_limit = graph[5].narrow(0, layer, 1);
    kernels = cuda::SymmetricContraction::make(problem, dtype == at::kDouble ? cuda::Scalar::f64 : cuda::Scalar::f32);
    operands.x = x.const_data_ptr();
    operands.coefficients = coefficients.const_data_ptr();
    operands.types = types.const_data_ptr<int32_t>();
    operands.row_limit = row_limit.defined() ? row_limit.const_data_ptr<int32_t>() : nullptr;
    operands.nodes = static_cast<int32_t>(x.size(0));
    operands.type_count = static_cast<int32_t>(coefficients.size(0));
    const c10::impl::VirtualGuardImpl guard(device.type());
    stream = guard.getStreamNativeHandle(guard.getStream(device));
  }

  void check_coefficients(const at::Tensor& tensor, const char* name, const at::Tensor& x, int64_t types) const {
    check_on(tensor, name, x.device(), x.scalar_type(),
             {types, static_cast<int64_t>(problem->monomials.size()), problem->channels});
    require(tensor.size(0) <= cuda::kMaxGroupTypes, "{}: {}: expected at most {} types, got {}", kOp, name,
            cuda::kMaxGroupTypes, tensor.size(0));
  }

  at::Tensor scratch(cuda::SymmetricPass pass, const at::Tensor& x) const {
    return at::empty({kernels->workspace(pass, operands)}, x.options().dtype(at::kByte).requires_grad(false));
  }
};

at::Tensor rows_of(const at::Tensor& x, int64_t columns) {
  return at::empty({x.size(0), columns}, x.options().requires_grad(false));
}

at::Tensor forward_cuda(const at::Tensor& x, const at::Tensor& coefficients, const at::Tensor& types,
                        at::TensorList graph, int64_t layer, std::string_view text) {
  const c10::DeviceGuard device_guard(x.device());
  const Call call(x, coefficients, types, graph, layer, text);
  const at::Tensor out = rows_of(x, call.problem->out.dim());
  const at::Tensor scratch = call.scratch(cuda::SymmetricPass::forward, x);
  call.kernels->forward(call.operands, out.mutable_data_ptr(), scratch.mutable_data_ptr(), call.stream);
  return out;
}

std::tuple<at::Tensor, at::Tensor> backward_cuda(const at::Tensor& grad_out, const at::Tensor& x,
                                                 const at::Tensor& coefficients, const at::Tensor& types,
                                                 at::TensorList graph, int64_t layer, std::string_view text,
                                                 std::array<bool, 2> mask) {
  const c10::DeviceGuard device_guard(x.device());
  const Call call(x, coefficients, types, graph, layer, text);
  check_on(grad_out, "grad_out", x.device(), x.scalar_type(), {x.size(0), call.problem->out.dim()});
  at::Tensor grad_x, grad_coefficients;
  if (mask[0]) {
    grad_x = rows_of(x, x.size(1));
    const at::Tensor scratch = call.scratch(cuda::SymmetricPass::backward, x);
    call.kernels->backward(call.operands, grad_out.const_data_ptr(), grad_x.mutable_data_ptr(),
                           scratch.mutable_data_ptr(), call.stream);
  }
  if (mask[1]) {
    grad_coefficients =
        symmetric_coefficient_gradient(*call.problem, grad_out, x, {}, types, call.row_limit, coefficients.size(0));
  }
  return {grad_x, grad_coefficients};
}

SymmetricGradients double_backward_cuda(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& tangent_x,
                                        const at::Tensor& coefficients, const at::Tensor& tangent_coefficients,
                                        const at::Tensor& types, at::TensorList graph, int64_t layer,
                                        std::string_view text, std::array<bool, 3> mask) {
  const c10::DeviceGuard device_guard(x.device());
  const Call call(x, coefficients, types, graph, layer, text);
  check_on(grad_out, "grad_out", x.device(), x.scalar_type(), {x.size(0), call.problem->out.dim()});
  check_on(tangent_x, "tangent_x", x.device(), x.scalar_type(), x.sizes());
  call.check_coefficients(tangent_coefficients, "tangent_coefficients", x, coefficients.size(0));
  at::Tensor out, grad_x, grad_coefficients;
  if (mask[0] || mask[1]) {
    if (mask[0]) out = rows_of(x, call.problem->out.dim());
    grad_x = rows_of(x, x.size(1));
    const at::Tensor scratch = call.scratch(cuda::SymmetricPass::tangent, x);
    call.kernels->tangent(call.operands, grad_out.const_data_ptr(), tangent_x.const_data_ptr(),
                          tangent_coefficients.const_data_ptr(), mask[0] ? out.mutable_data_ptr() : nullptr,
                          grad_x.mutable_data_ptr(), scratch.mutable_data_ptr(), call.stream);
  }
  if (mask[2]) {
    grad_coefficients = symmetric_coefficient_gradient(*call.problem, grad_out, x, tangent_x, types, call.row_limit,
                                                       coefficients.size(0));
  }
  return {out, mask[1] ? grad_x : at::Tensor(), grad_coefficients};
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("symmetric_contraction", forward_cuda);
  library.impl("symmetric_contraction_backward", backward_cuda);
  library.impl("symmetric_contraction_double_backward", double_backward_cuda);
}

}  // namespace clebsch::ops
