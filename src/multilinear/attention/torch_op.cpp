// torch.ops.clebsch.spherical_attention and its gradient, which clebsch.attention in Python is made of; autograd is
// registered there.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tuple>

#include "core/errors.h"
#include "multilinear/attention/spherical.h"
#include "multilinear/attention/torch_checks.h"
#ifdef CLEBSCH_HAS_CUDA
#include "multilinear/attention/device_spherical.h"
#endif

namespace clebsch::attention {
namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Allocated results, contiguous.
struct Results {
  at::Tensor out, norm, sums;
};

at::Tensor empty_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& offsets) {
  const c10::SymInt sequences = offsets ? offsets->sym_size(0) - 1 : q.sym_size(0);
  return at::empty_symint({sequences, k.sym_size(1), q.sym_size(3), q.sym_size(3) + v.sym_size(3)},
                          q.options().requires_grad(false).dtype(at::kDouble));
}

/// `keep`: sums too, which the gradient takes. Causal ones change along a sequence: the gradient makes them again.
Results results(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& offsets, bool causal,
                bool keep) {
  const auto plain = q.options().requires_grad(false);
  Results made;
  made.out = at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), v.sym_size(3)}, plain);
  made.norm = at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2)}, plain.dtype(real_of(q.scalar_type())));
  made.sums = keep && !causal ? empty_sums(q, k, v, offsets) : at::empty({0}, plain.dtype(at::kDouble));
  return made;
}

Three forward(const at::Tensor& q_given, const at::Tensor& k_given, const at::Tensor& v_given,
              const Optional& multiplicity_given, const Optional& offsets, double eps, bool causal, bool keep) {
  const Shape shape = check(q_given, k_given, v_given, multiplicity_given, offsets, eps, causal);
  const at::Tensor q = contiguous(q_given), k = contiguous(k_given), v = contiguous(v_given);
  const Optional multiplicity = contiguous(multiplicity_given);
  const Results made = results(q, k, v, offsets, causal, keep);
  const int number = number_of(q.scalar_type());
  if (q.device().is_cpu()) {
    const at::Tensor sums = keep || causal ? made.sums : empty_sums(q, k, v, offsets);
    HostArguments a;
    a.shape = shape;
    a.number = number;
    a.q = data(q);
    a.k = data(k);
    a.v = data(v);
    a.multiplicity = data(multiplicity);
    a.eps = eps;
    a.out = made.out.mutable_data_ptr();
    a.norm = made.norm.mutable_data_ptr();
    a.sums = sums.mutable_data_ptr<double>();
    (causal ? host_causal_forward : host_forward)(a);
    return {made.out, made.norm, made.sums};
  }
#ifdef CLEBSCH_HAS_CUDA
  const c10::DeviceGuard guard(q.device());
  RowArguments a;
  a.shape = shape;
  a.q = data(q);
  a.k = data(k);
  a.v = data(v);
  a.multiplicity = data(multiplicity);
  a.eps = eps;
  a.out = made.out.mutable_data_ptr();
  a.norm = made.norm.mutable_data_ptr();
  const KernelShape kernels{number, shape.d, shape.dv};
  if (causal) {
    device_causal_forward(kernels, a, allocator(q.device()), current_stream(q.device()));
  } else {
    device_forward(kernels, a, keep ? made.sums.mutable_data_ptr<double>() : nullptr, allocator(q.device()),
                   current_stream(q.device()));
  }
  return {made.out, made.norm, made.sums};
#else
  fail("{}: expected tensors on the CPU: this library was built without CUDA, got {}", kOp, q.device().str());
#endif
}

/// Whether a forward pass need not keep sums for the gradient, which is as fast, or nearly so, without.
bool makes_sums_again(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& offsets) {
#ifdef CLEBSCH_HAS_CUDA
  if (q.device().is_cpu() || q.dim() != 4 || k.dim() != 4 || v.dim() != 4 || offsets) return false;
  const c10::DeviceGuard guard(q.device());
  const Shape shape = check(q, k, v, {}, offsets, 0.0, false);
  return device_makes_sums_again({number_of(q.scalar_type()), shape.d, shape.dv}, shape);
#else
  return false;
#endif
}

Four backward(const at::Tensor& grad_given, const Optional& grad_norm_given, const at::Tensor& q_given,
              const at::Tensor& k_given, const at::Tensor& v_given, const Optional& multiplicity_given,
              const Optional& offsets, const at::Tensor& out, const at::Tensor& norm, const at::Tensor& sums,
              double eps, bool causal) {
  const Shape shape = check(q_given, k_given, v_given, multiplicity_given, offsets, eps, causal);
  const at::Tensor q = contiguous(q_given), k = contiguous(k_given), v = contiguous(v_given);
  const at::Tensor grad = contiguous(grad_given);
  const Optional multiplicity = contiguous(multiplicity_given), grad_norm = contiguous(grad_norm_given);
  check_like("the gradient of out", grad, q);
  require(
      grad.sizes() == out.sizes() && out.is_contiguous() && norm.is_contiguous() && sums.is_contiguous() &&
          out.size(3) == v.size(3) && out.size(2) == q.size(2) && out.size(1) == q.size(1) &&
          out.size(0) == q.size(0) && norm.numel() * v.size(3) == out.numel() &&
          norm.scalar_type() == real_of(q.scalar_type()) && sums.scalar_type() == at::kDouble &&
          (sums.numel() == 0 ||
           sums.numel() == (causal ? 0 : int64_t{shape.sequences} * shape.key_heads * shape.d * (shape.d + shape.dv))),
      "{}: expected out, norm and sums of the forward pass, got {}, {}, {}", kOp, sizes_of(out), sizes_of(norm),
      sizes_of(sums));
  require(!grad_norm || (grad_norm->sizes() == norm.sizes() && grad_norm->scalar_type() == norm.scalar_type()),
          "{}: expected the gradient of norm as norm", kOp);
  if (sums.numel() == 0 && !causal && !makes_sums_again(q, k, v, offsets)) {  // the forward pass was to keep none
    const at::Tensor again = std::get<2>(forward(q, k, v, multiplicity, offsets, eps, false, true));
    if (again.numel() > 0) {
      return backward(grad, grad_norm, q, k, v, multiplicity, offsets, out, norm, again, eps, false);
    }
  }
  const auto plain = q.options().requires_grad(false);
  const at::Tensor grad_q = at::empty(q.sizes(), plain), grad_k = at::empty(k.sizes(), plain),
                   grad_v = at::empty(v.sizes(), plain);
  at::Tensor parts;
  if (multiplicity) parts = at::empty({k.size(0), k.size(1), k.size(2)}, plain.dtype(norm.scalar_type()));
  const int number = number_of(q.scalar_type());
  const auto fill = [&](auto& a) {
    a.shape = shape;
    a.q = data(q);
    a.k = data(k);
    a.v = data(v);
    a.multiplicity = data(multiplicity);
    a.grad = data(grad);
    a.grad_norm = data(grad_norm);
    a.out = const_cast<void*>(data(out));    // read
    a.norm = const_cast<void*>(data(norm));  // read
    a.grad_q = grad_q.mutable_data_ptr();
    a.grad_k = grad_k.mutable_data_ptr();
    a.grad_v = grad_v.mutable_data_ptr();
    if (multiplicity) a.grad_multiplicity = parts.mutable_data_ptr();
  };
  if (q.device().is_cpu()) {
    HostArguments a;
    fill(a);
    a.number = number;
    a.sums = const_cast<double*>(sums.const_data_ptr<double>());  // read
    (causal ? host_causal_backward : host_backward)(a);
  } else {
#ifdef CLEBSCH_HAS_CUDA
    const c10::DeviceGuard guard(q.device());
    RowArguments a;
    fill(a);
    a.sums = sums.numel() > 0 ? sums.const_data_ptr<double>() : nullptr;
    (causal ? device_causal_backward : device_backward)({number, shape.d, shape.dv}, a, allocator(q.device()),
                                                        current_stream(q.device()));
#else
    fail("{}: expected tensors on the CPU: this library was built without CUDA, got {}", kOp, q.device().str());
#endif
  }
  at::Tensor grad_multiplicity = multiplicity ? parts.sum(1).to(q.scalar_type()) : at::empty({0}, plain);
  return {grad_q, grad_k, grad_v, grad_multiplicity};
}

Three forward_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional&,
                   const Optional& offsets, double, bool causal, bool keep) {
  require(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, "{}: expected q, k and v of four dimensions", kOp);
  const Results made = results(q, k, v, offsets, causal, keep);
  return {made.out, made.norm, made.sums};
}

Four backward_meta(const at::Tensor&, const Optional&, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const Optional& multiplicity, const Optional&, const at::Tensor&, const at::Tensor&,
                   const at::Tensor&, double, bool) {
  const auto like = [](const at::Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  return {like(q), like(k), like(v), multiplicity ? like(*multiplicity) : at::empty({0}, q.options())};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(clebsch, library) {
  library.def(
      "spherical_attention(Tensor q, Tensor k, Tensor v, Tensor? multiplicity, Tensor? offsets, float eps, bool "
      "causal=False, bool keep=True) -> "
      "(Tensor, Tensor, Tensor)");
  library.def(
      "spherical_attention_backward(Tensor grad, Tensor? grad_norm, Tensor q, Tensor k, Tensor v, Tensor? "
      "multiplicity, "
      "Tensor? offsets, Tensor out, Tensor norm, Tensor sums, float eps, bool causal=False) -> (Tensor, Tensor, "
      "Tensor, Tensor)");
}
TORCH_LIBRARY_FRAGMENT(clebsch, library) {
  library.def("spherical_attention_makes_sums_again(Tensor q, Tensor k, Tensor v, Tensor? offsets) -> bool",
              makes_sums_again);
}
TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("spherical_attention", forward);
  library.impl("spherical_attention_backward", backward);
}
TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("spherical_attention", forward);
  library.impl("spherical_attention_backward", backward);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("spherical_attention", forward_meta);
  library.impl("spherical_attention_backward", backward_meta);
}

}  // namespace clebsch::attention
