// clebsch::symmetric_contraction on CUDA tensors: checks, allocations and launches; autograd is in
// symmetric_contraction_autograd.cpp.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>

#include "core/errors.h"
#include "cuda/nodes/group_rows.h"
#include "cuda/nodes/symmetric_contraction.h"
#include "torch/cuda_tensors.h"
#include "torch/index_check.h"
#include "torch/symmetric_contraction.h"
#include "torch/symmetric_gradient.h"

namespace clebsch::ops::symmetric_contraction_on_cuda {
namespace {

constexpr const char* kOp = "symmetric_contraction (cuda)";

struct Call {
  std::shared_ptr<const SymmetricProblem> problem;
  std::shared_ptr<const cuda::SymmetricContraction> kernels;
  cuda::SymmetricOperands operands;
  at::Tensor limit;  ///< layer_rows[layer] (1) or undefined
  cuda::Stream stream = nullptr;

  /// Checks shapes, dtypes and devices. Types live on the device; the kernels write zeros for those out of range.
  /// Callers hold a device guard.
  Call(const at::Tensor& x, const at::Tensor& coefficients, const at::Tensor& types, at::TensorList graph,
       int64_t layer, std::string_view text)
      : problem(cached_symmetric_problem(std::string(text))) {
    const cuda::Scalar scalar = scalar_of(kOp, x);
    check_on(kOp, x, "x", x.device(), x.scalar_type(), {-1, problem->in.dim()});
    check_coefficients(coefficients, "coefficients", x, -1);
    check_types_on(kOp, types, x.device(), x.size(0), coefficients.size(0));
    limit = row_limit(kOp, graph, x, layer);
    require(x.size(0) < (int64_t{1} << 31) - 65536, "{}: expected fewer than 2^31 - 65536 rows", kOp);
    kernels = cuda::SymmetricContraction::make(problem, scalar);
    operands.x = x.const_data_ptr();
    operands.coefficients = coefficients.const_data_ptr();
    operands.types = types.const_data_ptr<int32_t>();
    operands.row_limit = limit.defined() ? limit.const_data_ptr<int32_t>() : nullptr;
    operands.nodes = static_cast<int32_t>(x.size(0));
    operands.type_count = static_cast<int32_t>(coefficients.size(0));
    stream = current_stream(x.device());
  }

  void check_coefficients(const at::Tensor& tensor, const char* name, const at::Tensor& x, int64_t types) const {
    check_on(kOp, tensor, name, x.device(), x.scalar_type(),
             {types, static_cast<int64_t>(problem->monomials.size()), problem->channels});
    require(tensor.size(0) <= cuda::kMaxGroupTypes, "{}: {}: expected at most {} types, got {}", kOp, name,
            cuda::kMaxGroupTypes, tensor.size(0));
  }

  at::Tensor workspace(cuda::SymmetricPass pass, const at::Tensor& x) const {
    return scratch(kernels->workspace(pass, operands), x);
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
  const at::Tensor workspace = call.workspace(cuda::SymmetricPass::forward, x);
  call.kernels->forward(call.operands, out.mutable_data_ptr(), address(workspace), call.stream);
  return out;
}

std::tuple<at::Tensor, at::Tensor> backward_cuda(const at::Tensor& grad_out, const at::Tensor& x,
                                                 const at::Tensor& coefficients, const at::Tensor& types,
                                                 at::TensorList graph, int64_t layer, std::string_view text,
                                                 std::array<bool, 2> mask) {
  const c10::DeviceGuard device_guard(x.device());
  const Call call(x, coefficients, types, graph, layer, text);
  check_on(kOp, grad_out, "grad_out", x.device(), x.scalar_type(), {x.size(0), call.problem->out.dim()});
  at::Tensor grad_x, grad_coefficients;
  if (mask[0]) {
    grad_x = rows_of(x, x.size(1));
    const at::Tensor workspace = call.workspace(cuda::SymmetricPass::backward, x);
    call.kernels->backward(call.operands, grad_out.const_data_ptr(), grad_x.mutable_data_ptr(), address(workspace),
                           call.stream);
  }
  if (mask[1]) {
    grad_coefficients =
        symmetric_coefficient_gradient(*call.problem, grad_out, x, {}, types, call.limit, coefficients.size(0));
  }
  return {grad_x, grad_coefficients};
}

SymmetricGradients double_backward_cuda(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& tangent_x,
                                        const at::Tensor& coefficients, const at::Tensor& tangent_coefficients,
                                        const at::Tensor& types, at::TensorList graph, int64_t layer,
                                        std::string_view text, std::array<bool, 3> mask) {
  const c10::DeviceGuard device_guard(x.device());
  const Call call(x, coefficients, types, graph, layer, text);
  check_on(kOp, grad_out, "grad_out", x.device(), x.scalar_type(), {x.size(0), call.problem->out.dim()});
  check_on(kOp, tangent_x, "tangent_x", x.device(), x.scalar_type(), x.sizes());
  call.check_coefficients(tangent_coefficients, "tangent_coefficients", x, coefficients.size(0));
  at::Tensor out, grad_x, grad_coefficients;
  if (mask[0] || mask[1]) {
    if (mask[0]) out = rows_of(x, call.problem->out.dim());
    grad_x = rows_of(x, x.size(1));
    const at::Tensor workspace = call.workspace(cuda::SymmetricPass::tangent, x);
    call.kernels->tangent(call.operands, grad_out.const_data_ptr(), tangent_x.const_data_ptr(),
                          tangent_coefficients.const_data_ptr(), mask[0] ? out.mutable_data_ptr() : nullptr,
                          grad_x.mutable_data_ptr(), address(workspace), call.stream);
  }
  if (mask[2]) {
    grad_coefficients =
        symmetric_coefficient_gradient(*call.problem, grad_out, x, tangent_x, types, call.limit, coefficients.size(0));
  }
  return {out, mask[1] ? grad_x : at::Tensor(), grad_coefficients};
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("symmetric_contraction", forward_cuda);
  library.impl("symmetric_contraction_backward", backward_cuda);
  library.impl("symmetric_contraction_double_backward", double_backward_cuda);
}

}  // namespace clebsch::ops::symmetric_contraction_on_cuda
