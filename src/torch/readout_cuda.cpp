// clebsch::readout on CUDA tensors: checks, allocations and launches; autograd is in readout.cpp.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tuple>

#include "core/errors.h"
#include "cuda/nodes/readout.h"
#include "torch/cuda_tensors.h"
#include "torch/index_check.h"
#include "torch/readout.h"

namespace clebsch::ops::readout_on_cuda {
namespace {

constexpr const char* kOp = "readout (cuda)";
using Optional = std::optional<at::Tensor>;
using EnergyGradient = std::tuple<at::Tensor, at::Tensor>;

EnergyGradient run(const at::Tensor& x, const Optional& direct, const Optional& hidden, const Optional& last,
                   const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& types, bool gradients) {
  const ReadoutTensors t = check_readout(x, direct, hidden, last, scale, shift, types);
  const c10::DeviceGuard device_guard(x.device());
  check_types_on(kOp, types, x.device(), x.size(0), t.types);
  require(
      x.size(0) < (int64_t{1} << 31) && t.width < (1 << 20) && t.hidden_count <= cuda::kReadoutHidden,
      "{}: expected fewer than 2^31 rows of fewer than 2^20 features and at most {} hidden units, got {}, {} and {}",
      kOp, cuda::kReadoutHidden, x.size(0), t.width, t.hidden_count);
  at::Tensor energy = at::empty({x.size(0)}, scale.options().requires_grad(false)), gradient;
  if (gradients) gradient = at::empty(x.sizes(), x.options().requires_grad(false));
  const auto pointer = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; };
  cuda::ReadoutArguments a;
  a.x = x.const_data_ptr();
  a.direct = pointer(t.direct);
  a.hidden = pointer(t.hidden);
  a.last = pointer(t.last);
  a.scale = scale.const_data_ptr<double>();
  a.shift = shift.const_data_ptr<double>();
  a.types = types.const_data_ptr<int32_t>();
  a.energy = energy.mutable_data_ptr<double>();
  a.gradient = gradients ? gradient.mutable_data_ptr() : nullptr;
  a.rows = static_cast<int>(x.size(0));
  a.width = static_cast<int>(t.width);
  a.hidden_count = static_cast<int>(t.hidden_count);
  a.type_count = static_cast<int>(t.types);
  cuda::Readout::make()->forward(a, scalar_of(kOp, x), current_stream(x.device()));
  return {energy, gradient};
}

at::Tensor forward(const at::Tensor& x, const Optional& direct, const Optional& hidden, const Optional& last,
                   const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& types) {
  return std::get<0>(run(x, direct, hidden, last, scale, shift, types, false));
}

EnergyGradient with_gradient(const at::Tensor& x, const Optional& direct, const Optional& hidden, const Optional& last,
                             const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& types) {
  return run(x, direct, hidden, last, scale, shift, types, true);
}

at::Tensor backward(const at::Tensor& grad_energy, const at::Tensor& gradient) {
  const c10::DeviceGuard device_guard(gradient.device());
  const cuda::Scalar scalar = scalar_of(kOp, gradient);
  check_on(kOp, gradient, "gradient", gradient.device(), gradient.scalar_type(), {-1, -1});
  check_on(kOp, grad_energy, "grad_energy", gradient.device(), at::kDouble, {gradient.size(0)});
  at::Tensor grad_x = at::empty(gradient.sizes(), gradient.options().requires_grad(false));
  cuda::ReadoutGradientArguments a;
  a.grad_energy = grad_energy.const_data_ptr<double>();
  a.gradient = gradient.const_data_ptr();
  a.grad_x = grad_x.mutable_data_ptr();
  a.rows = static_cast<int>(gradient.size(0));
  a.width = static_cast<int>(gradient.size(1));
  cuda::Readout::make()->backward(a, scalar, current_stream(gradient.device()));
  return grad_x;
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("readout", forward);
  library.impl("readout_gradient", with_gradient);
  library.impl("readout_backward", backward);
}

}  // namespace clebsch::ops::readout_on_cuda
