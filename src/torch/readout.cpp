// clebsch::readout: atomic energies from features, which a loader puts in the place of the small products that a model
// file names (model/run/fused_readout.h). First derivatives by x alone.
#include "torch/readout.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "core/errors.h"
#include "cpu/readout.h"
#include "torch/tensors.h"

namespace clebsch::ops {

ReadoutTensors check_readout(const at::Tensor& x, const std::optional<at::Tensor>& direct,
                             const std::optional<at::Tensor>& hidden, const std::optional<at::Tensor>& last,
                             const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& types) {
  constexpr const char* kName = "clebsch::readout";
  require(x.dim() == 2 && x.is_contiguous() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble),
          "{}: expected contiguous features of 2 dimensions in float32 or float64, got {} dimensions of {}", kName,
          x.dim(), at::toString(x.scalar_type()));
  ReadoutTensors made;
  made.width = x.size(1);
  const auto check = [&](const char* name, const at::Tensor& tensor, at::ScalarType dtype, at::IntArrayRef shape) {
    require(tensor.is_contiguous() && tensor.scalar_type() == dtype && tensor.sizes() == shape &&
                tensor.device() == x.device(),
            "{}: {}: expected {} contiguous numbers of {} beside x, got {} dimensions and {} numbers of {}", kName,
            name, c10::multiply_integers(shape), at::toString(dtype), tensor.dim(), tensor.numel(),
            at::toString(tensor.scalar_type()));
  };
  require(direct || hidden, "{}: expected a direct part or a hidden layer, got neither", kName);
  if (direct) {
    made.direct = *direct;
    check("direct", made.direct, x.scalar_type(), {made.width});
  }
  require(hidden.has_value() == last.has_value(), "{}: expected a hidden layer and the last one, or neither", kName);
  if (hidden) {
    require(hidden->dim() == 2, "{}: hidden: expected 2 dimensions, got {}", kName, hidden->dim());
    made.hidden = *hidden;
    made.last = *last;
    made.hidden_count = made.hidden.size(1);
    check("hidden", made.hidden, x.scalar_type(), {made.width, made.hidden_count});
    check("last", made.last, x.scalar_type(), {made.hidden_count});
  }
  made.types = scale.numel();
  check("scale", scale, at::kDouble, {made.types});
  check("shift", shift, at::kDouble, {made.types});
  check("types", types, at::kInt, {x.size(0)});
  return made;
}

namespace readout_op {
namespace {

constexpr const char* kOp = "readout";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Optional = std::optional<at::Tensor>;
using EnergyGradient = std::tuple<at::Tensor, at::Tensor>;

EnergyGradient run(const at::Tensor& x, const Optional& direct, const Optional& hidden, const Optional& last,
                   const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& types, bool gradients) {
  const ReadoutTensors t = check_readout(x, direct, hidden, last, scale, shift, types);
  check_types(kOp, types, x.size(0), t.types);
  at::Tensor energy = at::empty({x.size(0)}, scale.options().requires_grad(false)), gradient;
  if (gradients) gradient = at::empty(x.sizes(), x.options().requires_grad(false));
  dispatch_dtype(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    cpu::Readout<T> layers;
    const auto pointer = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
    };
    layers.direct = pointer(t.direct);
    layers.hidden = pointer(t.hidden);
    layers.last = pointer(t.last);
    layers.scale = scale.const_data_ptr<double>();
    layers.shift = shift.const_data_ptr<double>();
    layers.width = t.width;
    layers.hidden_count = t.hidden_count;
    cpu::readout<T>(layers, x.const_data_ptr<T>(), types.const_data_ptr<int32_t>(), x.size(0),
                    energy.mutable_data_ptr<double>(), gradients ? gradient.mutable_data_ptr<T>() : nullptr,
                    at::get_num_threads());
  });
  return {energy, gradient};
}

at::Tensor forward_cpu(const at::Tensor& x, const Optional& direct, const Optional& hidden, const Optional& last,
                       const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& types) {
  return std::get<0>(run(x, direct, hidden, last, scale, shift, types, false));
}

EnergyGradient gradient_cpu(const at::Tensor& x, const Optional& direct, const Optional& hidden, const Optional& last,
                            const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& types) {
  return run(x, direct, hidden, last, scale, shift, types, true);
}

at::Tensor backward_cpu(const at::Tensor& grad_energy, const at::Tensor& gradient) {
  require(grad_energy.dim() == 1 && gradient.dim() == 2 && gradient.size(0) == grad_energy.size(0),
          "clebsch::readout_backward: expected a number for each of {} rows, got {}", gradient.size(0),
          grad_energy.numel());
  return at::mul(gradient, grad_energy.to(gradient.scalar_type()).unsqueeze(1));
}

at::Tensor forward_meta(const at::Tensor& x, const Optional&, const Optional&, const Optional&, const at::Tensor& scale,
                        const at::Tensor&, const at::Tensor&) {
  return at::empty_symint({x.sym_size(0)}, scale.options());
}

EnergyGradient gradient_meta(const at::Tensor& x, const Optional&, const Optional&, const Optional&,
                             const at::Tensor& scale, const at::Tensor&, const at::Tensor&) {
  return {at::empty_symint({x.sym_size(0)}, scale.options()), at::empty_symint(x.sym_sizes(), x.options())};
}

at::Tensor backward_meta(const at::Tensor&, const at::Tensor& gradient) {
  return at::empty_symint(gradient.sym_sizes(), gradient.options());
}

class Readout : public torch::autograd::Function<Readout> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Optional& direct, const Optional& hidden,
                            const Optional& last, const at::Tensor& scale, const at::Tensor& shift,
                            const at::Tensor& types) {
    at::AutoDispatchBelowADInplaceOrView guard;
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::readout_gradient", "").typed<decltype(gradient_cpu)>();
    auto [energy, gradient] = op.call(x, direct, hidden, last, scale, shift, types);
    ctx->save_for_backward({x});
    ctx->saved_data["gradient"] = gradient;
    return energy;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::readout_backward", "").typed<decltype(backward_cpu)>();
    at::Tensor grad;
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      grad = op.call(grads[0].contiguous(), ctx->saved_data["gradient"].toTensor());
    }
    grad = refuse_double_backward(kOp, {grad}, {ctx->get_saved_variables()[0], grads[0]})[0];
    return {grad, {}, {}, {}, {}, {}, {}};
  }
};

at::Tensor forward_autograd(const at::Tensor& x, const Optional& direct, const Optional& hidden, const Optional& last,
                            const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& types) {
  if (x.requires_grad() && at::GradMode::is_enabled())
    return Readout::apply(x, direct, hidden, last, scale, shift, types);
  at::AutoDispatchBelowADInplaceOrView guard;
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("clebsch::readout", "").typed<decltype(forward_cpu)>();
  return op.call(x, direct, hidden, last, scale, shift, types);
}

}  // namespace

TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("readout", forward_cpu);
  library.impl("readout_gradient", gradient_cpu);
  library.impl("readout_backward", backward_cpu);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("readout", forward_meta);
  library.impl("readout_gradient", gradient_meta);
  library.impl("readout_backward", backward_meta);
}
TORCH_LIBRARY_IMPL(clebsch, Autograd, library) { library.impl("readout", forward_autograd); }

}  // namespace readout_op
}  // namespace clebsch::ops
