// torch.ops.clebsch.stream_attention and its gradient; autograd is registered in Python.
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tuple>

#include "core/errors.h"
#include "multilinear/attention/stream.h"
#include "multilinear/attention/torch_checks.h"
#ifdef CLEBSCH_HAS_CUDA
#include "multilinear/attention/device_stream.h"
#endif

namespace clebsch::attention {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;
using Five = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Sizes of the tensor as one of four dimensions, ones before its own.
std::array<int64_t, 4> four_sizes(const at::Tensor& tensor) {
  std::array<int64_t, 4> sizes{1, 1, 1, 1};
  for (int64_t at = 0; at < tensor.dim(); ++at) sizes[static_cast<size_t>(4 - tensor.dim() + at)] = tensor.size(at);
  return sizes;
}

/// Checks that the tensor has a number for every pair, or one for many of them, and finds it.
Pairs pairs_of(const char* name, const Optional& tensor, const at::Tensor& q, const at::Tensor& k) {
  Pairs pairs;
  if (!tensor) return pairs;
  const int64_t all[4] = {q.size(0), q.size(1), q.size(2), k.size(2)};
  require(tensor->device() == q.device(), "{}: {}: expected a tensor on {} as q, got one on {}", kOp, name,
          q.device().str(), tensor->device().str());
  bool fits = tensor->dim() <= 4;
  long long strides[4] = {};
  for (int64_t at = 0; fits && at < tensor->dim(); ++at) {
    const int64_t place = 4 - tensor->dim() + at, size = tensor->size(at);
    fits = size == 1 || size == all[place];
    strides[place] = size == 1 ? 0 : tensor->stride(at);
  }
  require(fits, "{}: {}: expected ({}, {}, {}, {}) or what broadcasts to it, got {}", kOp, name, all[0], all[1], all[2],
          all[3], sizes_of(*tensor));
  pairs.data = tensor->const_data_ptr();
  pairs.of_sequence = strides[0];
  pairs.of_head = strides[1];
  pairs.of_query = strides[2];
  pairs.of_key = strides[3];
  return pairs;
}

int mask_type(const Optional& mask, const at::Tensor& q, int normalise) {
  if (!mask) return kNoMask;
  if (mask->scalar_type() == at::kBool) return kBoolMask;
  require(normalise == kL2, "{}: mask: expected Bool with softmax, got {}", kOp, at::toString(mask->scalar_type()));
  require(mask->scalar_type() == q.scalar_type(), "{}: mask: expected Bool or {} as q, got {}", kOp,
          at::toString(q.scalar_type()), at::toString(mask->scalar_type()));
  return kNumberMask;
}

/// A call's tensors, kept alive and checked.
struct Call {
  at::Tensor q, k, v;
  Optional multiplicity, mask, bias;
  StreamArguments a;
  int number = 0, normalise = 0, mask_kind = 0;

  Call(const at::Tensor& q_given, const at::Tensor& k_given, const at::Tensor& v_given,
       const Optional& multiplicity_given, const Optional& offsets, const Optional& mask_given,
       const Optional& bias_given, double eps, double scale, int64_t norm)
      : mask(mask_given), bias(bias_given), normalise(static_cast<int>(norm)) {
    require(norm == kL2 || norm == kSoftmax, "{}: expected a norm of 0 (L2) or 1 (softmax), got {}", kOp, norm);
    require(std::isfinite(scale), "{}: scale: expected a finite number, got {}", kOp, scale);
    a.shape = check(q_given, k_given, v_given, multiplicity_given, offsets, eps);
    q = contiguous(q_given);
    k = contiguous(k_given);
    v = contiguous(v_given);
    multiplicity = contiguous(multiplicity_given);
    number = number_of(q.scalar_type());
    mask_kind = mask_type(mask, q, normalise);
    if (bias) check_like("bias", *bias, q);
    a.mask = pairs_of("mask", mask, q, k);
    a.bias = pairs_of("bias", bias, q, k);
    a.q = data(q);
    a.k = data(k);
    a.v = data(v);
    a.multiplicity = data(multiplicity);
    a.eps = eps;
    a.scale = scale;
  }

  HostStream host() const { return {a, number, normalise, mask_kind}; }
#ifdef CLEBSCH_HAS_CUDA
  StreamKind kind() const {
    return {number, a.shape.d, a.shape.dv, normalise, mask_kind, bias.has_value(), multiplicity.has_value()};
  }
#endif

  /// The largest |mask| and |bias| on the device, for the range of 16-bit numbers; nothing where they do not matter.
  at::Tensor largest() const {
    const bool numbers = mask_kind == kNumberMask && mask->numel() > 0, biased = bias && bias->numel() > 0;
    if (number < kFloat16 || !(numbers || biased)) return {};
    const auto of = [&](at::Tensor tensor) {
      for (int64_t at = 0; at < tensor.dim(); ++at) {
        if (tensor.stride(at) == 0) tensor = tensor.narrow(at, 0, 1);  // an expanded dimension is read once
      }
      const auto [low, high] = at::aminmax(tensor);
      return at::maximum(low.neg(), high).to(at::kFloat);
    };
    const auto plain = q.options().requires_grad(false).dtype(at::kFloat);
    return at::stack({numbers ? of(*mask) : at::ones({}, plain), biased ? of(*bias) : at::zeros({}, plain)});
  }
};

at::Tensor like(const at::Tensor& q, at::IntArrayRef sizes) {
  return at::empty(sizes, q.options().requires_grad(false));
}

Two forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& multiplicity,
            const Optional& offsets, const Optional& mask, const Optional& bias, double eps, double scale,
            int64_t normalise) {
  Call call(q, k, v, multiplicity, offsets, mask, bias, eps, scale, normalise);
  const at::Tensor out = like(q, {q.size(0), q.size(1), q.size(2), v.size(3)});
  const at::Tensor norm = at::empty({q.size(0), q.size(1), q.size(2)}, out.options().dtype(real_of(q.scalar_type())));
  call.a.out = out.mutable_data_ptr();
  call.a.norm = norm.mutable_data_ptr();
  if (q.device().is_cpu()) {
    host_stream_forward(call.host());
  } else {
#ifdef CLEBSCH_HAS_CUDA
    const c10::DeviceGuard guard(q.device());
    const at::Tensor largest = call.largest();
    if (largest.defined()) call.a.largest = largest.const_data_ptr<float>();
    device_stream_forward(call.kind(), call.a, allocator(q.device()), current_stream(q.device()));
#else
    fail("{}: expected tensors on the CPU: this library was built without CUDA, got {}", kOp, q.device().str());
#endif
  }
  return {out, norm};
}

Five backward(const at::Tensor& grad_given, const Optional& grad_norm_given, const at::Tensor& q, const at::Tensor& k,
              const at::Tensor& v, const Optional& multiplicity, const Optional& offsets, const Optional& mask,
              const Optional& bias, const at::Tensor& out, const at::Tensor& norm, double eps, double scale,
              int64_t normalise, bool wants_bias) {
  Call call(q, k, v, multiplicity, offsets, mask, bias, eps, scale, normalise);
  const at::Tensor grad = contiguous(grad_given);
  const Optional grad_norm = contiguous(grad_norm_given);
  check_like("the gradient of out", grad, q);
  require(grad.sizes() == out.sizes() && out.is_contiguous() && norm.is_contiguous() && out.size(3) == v.size(3) &&
              out.size(2) == q.size(2) && out.size(1) == q.size(1) && out.size(0) == q.size(0) &&
              norm.numel() * v.size(3) == out.numel() && norm.scalar_type() == real_of(q.scalar_type()),
          "{}: expected out and norm of the forward pass, got {} and {}", kOp, sizes_of(out), sizes_of(norm));
  require(!grad_norm || (grad_norm->sizes() == norm.sizes() && grad_norm->scalar_type() == norm.scalar_type()),
          "{}: expected the gradient of norm as norm", kOp);
  const at::Tensor grad_q = like(q, q.sizes()), grad_k = like(q, k.sizes()), grad_v = like(q, v.sizes());
  at::Tensor parts, grad_bias;
  StreamArguments& a = call.a;
  if (multiplicity) {
    parts = at::empty({k.size(0), k.size(1), k.size(2)}, norm.options());
    a.grad_multiplicity = parts.mutable_data_ptr();
  }
  if (bias && wants_bias) {
    // No kernel writes it where there are no queries.
    grad_bias = q.numel() == 0 ? at::zeros(bias->sizes(), q.options()) : like(q, bias->sizes());
    const auto sizes = four_sizes(*bias);
    std::copy(sizes.begin(), sizes.end(), a.grad_bias.sizes);
    a.grad_bias.data = grad_bias.mutable_data_ptr();
  }
  a.grad = data(grad);
  a.grad_norm = data(grad_norm);
  a.out = const_cast<void*>(data(out));    // read
  a.norm = const_cast<void*>(data(norm));  // read
  a.grad_q = grad_q.mutable_data_ptr();
  a.grad_k = grad_k.mutable_data_ptr();
  a.grad_v = grad_v.mutable_data_ptr();
  if (q.device().is_cpu()) {
    host_stream_backward(call.host());
  } else {
#ifdef CLEBSCH_HAS_CUDA
    const c10::DeviceGuard guard(q.device());
    const at::Tensor largest = call.largest();
    if (largest.defined()) a.largest = largest.const_data_ptr<float>();
    device_stream_backward(call.kind(), a, allocator(q.device()), current_stream(q.device()));
#else
    fail("{}: expected tensors on the CPU: this library was built without CUDA, got {}", kOp, q.device().str());
#endif
  }
  const at::Tensor none = like(q, {0});
  return {grad_q, grad_k, grad_v, multiplicity ? parts.sum(1).to(q.scalar_type()) : none,
          grad_bias.defined() ? grad_bias : none};
}

Two forward_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional&, const Optional&,
                 const Optional&, const Optional&, double, double, int64_t) {
  require(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, "{}: expected q, k and v of four dimensions", kOp);
  return {at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), v.sym_size(3)}, q.options()),
          at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2)}, q.options().dtype(real_of(q.scalar_type())))};
}

Five backward_meta(const at::Tensor&, const Optional&, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const Optional& multiplicity, const Optional&, const Optional&, const Optional& bias,
                   const at::Tensor&, const at::Tensor&, double, double, int64_t, bool wants_bias) {
  const auto same = [](const at::Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  const at::Tensor none = at::empty({0}, q.options());
  return {same(q), same(k), same(v), multiplicity ? same(*multiplicity) : none,
          bias && wants_bias ? same(*bias) : none};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(clebsch, library) {
  library.def(
      "stream_attention(Tensor q, Tensor k, Tensor v, Tensor? multiplicity, Tensor? offsets, Tensor? mask, Tensor? "
      "bias, float eps, float scale, int normalise) -> (Tensor, Tensor)");
  library.def(
      "stream_attention_backward(Tensor grad, Tensor? grad_norm, Tensor q, Tensor k, Tensor v, Tensor? multiplicity, "
      "Tensor? offsets, Tensor? mask, Tensor? bias, Tensor out, Tensor norm, float eps, float scale, int normalise, "
      "bool wants_bias) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("stream_attention", forward);
  library.impl("stream_attention_backward", backward);
}
TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("stream_attention", forward);
  library.impl("stream_attention_backward", backward);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("stream_attention", forward_meta);
  library.impl("stream_attention_backward", backward_meta);
}

}  // namespace clebsch::attention
