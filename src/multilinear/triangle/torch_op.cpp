// torch.ops.clebsch.triangle_multiplicative_update and its gradient, which clebsch.triangle in Python is made of;
// autograd is registered there.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "core/errors.h"
#include "multilinear/torch_device.h"
#include "multilinear/triangle/host_triangle.h"
#include "multilinear/triangle/torch_arguments.h"
#ifdef CLEBSCH_HAS_CUDA
#include "multilinear/triangle/device_triangle.h"
#endif

namespace clebsch::triangle {
namespace {

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, std::vector<at::Tensor>>;

c10::SymIntArrayRef leading(const at::Tensor& x) { return x.sym_sizes().slice(0, static_cast<size_t>(x.dim() - 1)); }

at::Tensor empty_out(const at::Tensor& x, const c10::SymInt& width) {
  std::vector<c10::SymInt> sizes = leading(x).vec();
  sizes.push_back(width);
  return at::empty_symint(sizes, x.options().requires_grad(false));
}

/// (batch, hidden, n, pitch) of the operands' type.
at::Tensor empty_planes(const at::Tensor& x, const c10::SymInt& hidden, int precision) {
  c10::SymInt batch = 1;
  for (const c10::SymInt& size : x.sym_sizes().slice(0, static_cast<size_t>(x.dim() - 3))) batch = batch * size;
  const c10::SymInt n = x.sym_size(-2);
  const auto vector = static_cast<int64_t>(pitch_of(precision, 1));
  return at::empty_symint({batch, hidden, n, (n + (vector - 1)) / vector * vector},
                          x.options().dtype(operand_type(precision)).requires_grad(false));
}

/// The same, of memory with slack_of() numbers more.
at::Tensor planes_with_slack(const at::Tensor& x, const Shape& shape, int precision) {
  const int64_t pitch = pitch_of(precision, shape.n), numbers = shape.batch * shape.hidden * shape.n * pitch;
  const at::Tensor memory = at::empty({numbers + slack_of(precision, shape.n)},
                                      x.options().dtype(operand_type(precision)).requires_grad(false));
  return memory.as_strided({shape.batch, shape.hidden, shape.n, pitch},
                           {shape.hidden * shape.n * pitch, shape.n * pitch, pitch, 1});
}

at::Tensor nothing(const at::Tensor& x) { return at::empty({0}, x.options().requires_grad(false)); }

bool is_empty(const Shape& shape) { return shape.batch == 0 || shape.n == 0; }

Four forward(const at::Tensor& x, const Optional& mask, Given weights, int64_t given, bool incoming, bool gate_before,
             double eps, c10::string_view precision, bool keep) {
  const c10::DeviceGuard guard(x.device());
  Tensors t = checked(x, mask, weights, given, incoming, gate_before, eps, precision);
  Arguments& a = t.arguments;
  const at::Tensor out = empty_out(x, a.shape.out);
  at::Tensor left = nothing(x), right = left, o = left;
  a.out = out.mutable_data_ptr();
  a.keep = keep;
  if (keep || x.device().is_cpu()) {
    left = empty_planes(x, a.shape.hidden, a.precision);
    right = planes_with_slack(x, a.shape, a.precision);
    o = empty_planes(x, a.shape.hidden, a.precision);
    a.left = left.mutable_data_ptr();
    a.right = right.mutable_data_ptr();
    a.o = o.mutable_data_ptr();
  }
  if (!is_empty(a.shape)) {
    if (x.device().is_cpu()) {
      host_forward(a);
    } else {
#ifdef CLEBSCH_HAS_CUDA
      if (!keep) {  // operands may lie where the result will be
        const size_t size = c10::elementSize(operand_type(a.precision)),
                     bytes = static_cast<size_t>(a.shape.batch * a.shape.hidden * a.shape.n *
                                                 pitch_of(a.precision, a.shape.n)) *
                             size,
                     slack = static_cast<size_t>(slack_of(a.precision, a.shape.n)) * size;
        if (bytes <= out.nbytes()) a.left = a.out;
        if (2 * bytes + slack <= out.nbytes() && bytes % 16 == 0) a.right = static_cast<char*>(a.out) + bytes;
      }
      device_forward(a, allocator(x.device()), current_stream(x.device()));
#else
      fail("{}: expected tensors on the CPU: this library was built without CUDA, got {}", kOp, x.device().str());
#endif
    }
  }
  if (!keep) return {out, nothing(x), nothing(x), nothing(x)};
  return {out, left, right, o};
}

Three backward(const at::Tensor& grad_given, const at::Tensor& x, const Optional& mask, Given weights, int64_t given,
               const at::Tensor& left, const at::Tensor& right, const at::Tensor& o, bool incoming, bool gate_before,
               double eps, c10::string_view precision, int64_t wanted) {
  const c10::DeviceGuard guard(x.device());
  Tensors t = checked(x, mask, weights, given, incoming, gate_before, eps, precision);
  Arguments& a = t.arguments;
  require(grad_given.scalar_type() == x.scalar_type() && grad_given.dim() == x.dim() &&
              grad_given.sizes().slice(0, static_cast<size_t>(x.dim() - 1)) ==
                  x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)) &&
              grad_given.size(-1) == a.shape.out,
          "{}: expected a gradient of the result's shape and type, got {} of {}", kOp, sizes_of(grad_given),
          at::toString(grad_given.scalar_type()));
  const int64_t n = a.shape.n;
  for (const at::Tensor* kept : {&left, &right, &o}) {
    require(kept->scalar_type() == operand_type(a.precision) && kept->is_contiguous() &&
                kept->numel() == a.shape.batch * a.shape.hidden * n * pitch_of(a.precision, n),
            "{}: its gradient needs left, right and o of a forward pass with keep=True, got {}", kOp, sizes_of(*kept));
  }
  const at::Tensor grad = plain(grad_given);
  a.grad = grad.const_data_ptr();
  a.left = const_cast<void*>(left.const_data_ptr());    // read
  a.right = const_cast<void*>(right.const_data_ptr());  // read
  a.o = const_cast<void*>(o.const_data_ptr());          // read
  const auto options = x.options().requires_grad(false);
  const bool empty = is_empty(a.shape);
  at::Tensor grad_x = nothing(x), grad_mask = nothing(x);
  if (has(wanted, 0)) {
    grad_x = at::empty(x.sizes(), options);
    a.gradients.x = grad_x.mutable_data_ptr();
  }
  if (has(wanted, 1) && mask && mask->scalar_type() != at::kBool) {
    grad_mask = at::empty(mask->sizes(), options.dtype(mask->scalar_type()));
    a.gradients.mask = grad_mask.mutable_data_ptr();
  }
  std::vector<at::Tensor> grads;
  // On a GPU they are rounded where they are summed: a conversion each is a launch each.
  const bool rounded = !x.device().is_cpu();
  a.gradients_number = a.weights_number;
  const auto real = options.dtype(rounded ? t.weights[kPIn]->scalar_type() : real_of(x.scalar_type()));
  for (int at = 0; at < kWeights; ++at) {
    if (!t.weights[at]) continue;
    const bool wants = has(wanted, at + 2);
    grads.push_back(!wants  ? nothing(x)
                    : empty ? at::zeros(t.weights[at]->sizes(), real)
                            : at::empty(t.weights[at]->sizes(), real));
    if (wants) a.gradients.*kWeight[at].gradient = grads.back().mutable_data_ptr();
  }
  if (!empty) {
    if (x.device().is_cpu()) {
      host_backward(a);
    } else {
#ifdef CLEBSCH_HAS_CUDA
      device_backward(a, allocator(x.device()), current_stream(x.device()));
#else
      fail("{}: expected tensors on the CPU: this library was built without CUDA, got {}", kOp, x.device().str());
#endif
    }
  }
  if (!rounded) {
    for (at::Tensor& made : grads) made = made.to(t.weights[kPIn]->scalar_type());
  }
  return {grad_x, grad_mask, grads};
}

Four forward_meta(const at::Tensor& x, const Optional&, Given weights, int64_t given, bool, bool, double,
                  c10::string_view precision, bool keep) {
  require(x.dim() >= 3, "{}: x must be (..., N, N, D), got {} dimensions", kOp, x.dim());
  const auto all = placed(weights, given);
  const Optional &p_in = all[kPIn], &p_out = all[kPOut];
  require(p_in.has_value() && p_out.has_value() && p_in->dim() == 2 && p_out->dim() == 2,
          "{}: p_in_weight and p_out_weight must be matrices", kOp);
  const at::Tensor out = empty_out(x, p_out->sym_size(0));
  if (!keep) return {out, nothing(x), nothing(x), nothing(x)};
  const int how = precision_of(precision, x.scalar_type());
  const c10::SymInt hidden = p_in->sym_size(0) / 2;
  return {out, empty_planes(x, hidden, how), empty_planes(x, hidden, how), empty_planes(x, hidden, how)};
}

Three backward_meta(const at::Tensor&, const at::Tensor& x, const Optional& mask, Given weights, int64_t given,
                    const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, bool, double, c10::string_view,
                    int64_t wanted) {
  const auto like = [&](const at::Tensor& tensor, bool is_wanted) {
    return is_wanted ? at::empty_symint(tensor.sym_sizes(), tensor.options().requires_grad(false)) : nothing(x);
  };
  const auto all = placed(weights, given);
  std::vector<at::Tensor> grads;
  for (int at = 0; at < kWeights; ++at) {
    if (all[at]) grads.push_back(like(*all[at], has(wanted, at + 2)).to(all[at]->scalar_type()));
  }
  const bool of_mask = mask && mask->scalar_type() != at::kBool && has(wanted, 1);
  return {like(x, has(wanted, 0)), of_mask ? like(*mask, true) : nothing(x), grads};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(clebsch, library) {
  library.def(
      "triangle_multiplicative_update(Tensor x, Tensor? mask, Tensor[] weights, int given, bool incoming, bool "
      "gate_before, "
      "float eps, str precision, bool keep) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "triangle_multiplicative_update_backward(Tensor grad, Tensor x, Tensor? mask, Tensor[] weights, int given, "
      "Tensor left, "
      "Tensor right, Tensor o, bool incoming, bool gate_before, float eps, str precision, int wanted) -> "
      "(Tensor, Tensor, Tensor[])");
}
TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("triangle_multiplicative_update", forward);
  library.impl("triangle_multiplicative_update_backward", backward);
}
TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("triangle_multiplicative_update", forward);
  library.impl("triangle_multiplicative_update_backward", backward);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("triangle_multiplicative_update", forward_meta);
  library.impl("triangle_multiplicative_update_backward", backward_meta);
}

}  // namespace clebsch::triangle
