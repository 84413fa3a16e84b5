// torch.ops.clebsch.graph_attention, its gradient, and the sums and products over edges that its second derivatives are
// composed of. clebsch.attention in Python makes and checks the rows of edges and registers autograd.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/errors.h"
#include "multilinear/attention/graph_attention.h"
#include "multilinear/attention/torch_numbers.h"
#include "multilinear/torch_device.h"
#ifdef CLEBSCH_HAS_CUDA
#include "multilinear/attention/device_graph.h"
#endif

namespace clebsch::attention {
namespace {

using Optional = c10::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
constexpr const char* kOp = "graph_attention";
constexpr int64_t kMost = std::numeric_limits<int>::max();

const void* data(const Optional& tensor) { return tensor ? tensor->const_data_ptr() : nullptr; }
Optional contiguous(const Optional& tensor) { return tensor ? Optional(tensor->contiguous()) : Optional(); }

/// The CPU computes with doubles and floats.
at::Tensor as_computed(const at::Tensor& tensor) {
  return tensor.device().is_cpu() ? tensor.to(real_of(tensor.scalar_type())).contiguous() : tensor.contiguous();
}

/// int32 numbers of edges or places, whose values clebsch.attention.EdgeRows has checked.
const int* numbers(const char* name, const at::Tensor& tensor, int64_t count, const at::Tensor& q) {
  require(tensor.scalar_type() == at::kInt && tensor.dim() == 1 && tensor.size(0) == count &&
              tensor.device() == q.device() && tensor.is_contiguous(),
          "{}: {}: expected contiguous int32 ({}) on {}, got {} {} on {}", kOp, name, count, q.device().str(),
          at::toString(tensor.scalar_type()), sizes_of(tensor), tensor.device().str());
  return tensor.const_data_ptr<int>();
}

struct Checked {
  GraphKind kind;
  GraphArguments arguments;  ///< sizes, rows of edges, eps and scale
  int64_t edges = 0;
};

Checked check(const at::Tensor& q, const at::Tensor& k, const Optional& v, const Optional& envelope,
              const at::Tensor& row_ptr, const at::Tensor& senders, int64_t normalise, double eps, double scale) {
  Checked made;
  made.kind.number = number_of(kOp, q.scalar_type());
  require(q.dim() == 3, "{}: q: expected (receivers, heads, d), got {}", kOp, sizes_of(q));
  require(k.dim() == 3, "{}: k: expected (senders, key heads, d), got {}", kOp, sizes_of(k));
  check_like(kOp, "k", k, q);
  require(k.size(2) == q.size(2), "{}: k: expected head size {} as q, got {}", kOp, q.size(2), k.size(2));
  require(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0,
          "{}: the key heads must divide the heads of q, got {} heads and {} key heads", kOp, q.size(1), k.size(1));
  if (v) {
    check_like(kOp, "v", *v, q);
    require(v->dim() == 3 && v->size(0) == k.size(0) && v->size(1) == k.size(1),
            "{}: v: expected ({}, {}, dv) as k, got {}", kOp, k.size(0), k.size(1), sizes_of(*v));
  }
  const int64_t dv = v ? v->size(2) : k.size(2);
  require(q.size(2) >= 1 && q.size(2) <= 512 && dv >= 1 && dv <= 512,
          "{}: expected head sizes of 1 to 512, got d = {} and dv = {}", kOp, q.size(2), dv);
  require(q.size(0) < kMost && k.size(0) < kMost && q.size(1) <= kMost / 4,
          "{}: expected fewer than 2^31 receivers, senders and heads, got {}, {} and {}", kOp, q.size(0), k.size(0),
          q.size(1));
  require(std::isfinite(eps) && eps >= 0, "{}: eps: expected a number that is not negative, got {}", kOp, eps);
  require(std::isfinite(scale), "{}: scale: expected a finite number, got {}", kOp, scale);
  made.edges = senders.numel();
  made.kind.d = static_cast<int>(q.size(2));
  made.kind.dv = static_cast<int>(dv);
  made.kind.normalise = static_cast<int>(normalise);
  GraphArguments& a = made.arguments;
  a.rows = {static_cast<int>(q.size(0)), numbers("row_ptr", row_ptr, q.size(0) + 1, q),
            numbers("senders", senders, made.edges, q)};
  a.heads = static_cast<int>(q.size(1));
  a.key_heads = static_cast<int>(k.size(1));
  a.eps = eps;
  a.scale = scale;
  if (envelope) {
    const at::ScalarType real = real_of(q.scalar_type());
    require(envelope->dim() == 1 && envelope->size(0) == made.edges && envelope->scalar_type() == real &&
                envelope->device() == q.device(),
            "{}: envelope: expected {} ({}), one for every edge, on {}, got {} {} on {}", kOp, at::toString(real),
            made.edges, q.device().str(), at::toString(envelope->scalar_type()), sizes_of(*envelope),
            envelope->device().str());
  }
  return made;
}

/// out and norm, not yet written.
Two results(const at::Tensor& q, const c10::SymInt& dv, int64_t normalise) {
  const auto plain = q.options().requires_grad(false);
  return {at::empty_symint({q.sym_size(0), q.sym_size(1), dv}, plain),
          normalise == kPlain
              ? at::empty({0}, plain.dtype(real_of(q.scalar_type())))
              : at::empty_symint({q.sym_size(0), q.sym_size(1)}, plain.dtype(real_of(q.scalar_type())))};
}

#ifndef CLEBSCH_HAS_CUDA
[[noreturn]] void no_device() { fail("{}: expected tensors on the CPU: this library was built without CUDA", kOp); }
void device_graph_attention(const GraphKind&, const GraphArguments&, void*) { no_device(); }
void device_graph_row_gradients(const GraphKind&, const GraphArguments&, void*) { no_device(); }
void device_edge_sums(int, int, const EdgeSumArguments&, void*) { no_device(); }
void device_edge_dots(int, int, const EdgeDotArguments&, void*) { no_device(); }
#endif

/// host(a...), or device(a..., stream), by where q is.
template <typename Host, typename Device, typename... A>
void run(const at::Tensor& q, Host host, Device device, const A&... a) {
  if (q.device().is_cpu()) return host(a...);
  const c10::DeviceGuard guard(q.device());
  device(a..., current_stream(q.device()));
}

Two forward(const at::Tensor& q_given, const at::Tensor& k_given, const Optional& v_given, const Optional& envelope,
            const at::Tensor& row_ptr, const at::Tensor& senders, const Optional&, const Optional&, const Optional&,
            int64_t normalise, double eps, double scale) {
  Checked made = check(q_given, k_given, v_given, envelope, row_ptr, senders, normalise, eps, scale);
  const at::Tensor q = as_computed(q_given), k = as_computed(k_given), v = v_given ? as_computed(*v_given) : k;
  const Optional factors = contiguous(envelope);
  const auto [out, norm] = results(q, v.sym_size(2), normalise);
  made.kind.number = number_of(kOp, q.scalar_type());
  GraphArguments& a = made.arguments;
  a.q = q.const_data_ptr();
  a.k = k.const_data_ptr();
  a.v = v.const_data_ptr();
  a.envelope = data(factors);
  a.out = out.mutable_data_ptr();
  a.norm = norm.mutable_data_ptr();
  run(q, host_graph_attention, device_graph_attention, made.kind, a);
  return {out.to(q_given.scalar_type()), norm};
}

Four backward(const at::Tensor& grad_given, const at::Tensor& q_given, const at::Tensor& k_given,
              const Optional& v_given, const Optional& envelope, const at::Tensor& row_ptr, const at::Tensor& senders,
              const at::Tensor& col_ptr, const at::Tensor& col_edge, const at::Tensor& col_receivers,
              const at::Tensor& out_given, const at::Tensor& norm, int64_t normalise, double eps, double scale,
              bool of_envelope) {
  Checked made = check(q_given, k_given, v_given, envelope, row_ptr, senders, normalise, eps, scale);
  check_like(kOp, "the gradient of out", grad_given, q_given);
  check_like(kOp, "out", out_given, q_given);
  require(grad_given.sizes() == out_given.sizes() && out_given.dim() == 3 && out_given.size(0) == q_given.size(0) &&
              out_given.size(1) == q_given.size(1) && out_given.size(2) == made.kind.dv && norm.is_contiguous() &&
              norm.scalar_type() == real_of(q_given.scalar_type()) &&
              (normalise == kPlain || norm.numel() == q_given.size(0) * q_given.size(1)),
          "{}: expected out and norm of the forward pass and a gradient as out, got {}, {} and {}", kOp,
          sizes_of(out_given), sizes_of(norm), sizes_of(grad_given));
  const at::Tensor q = as_computed(q_given), k = as_computed(k_given), v = v_given ? as_computed(*v_given) : k;
  const at::Tensor grad = as_computed(grad_given), out = as_computed(out_given);
  const Optional factors = contiguous(envelope);
  const int number = made.kind.number = number_of(kOp, q.scalar_type());
  const auto like = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options().requires_grad(false)); };
  const at::Tensor grad_q = like(q), grad_k = like(k);
  GraphArguments& a = made.arguments;
  const auto of_edges = q.options().requires_grad(false).dtype(real_of(q.scalar_type()));
  const at::Tensor weights = at::empty({made.edges, a.heads}, of_edges), slopes = at::empty_like(weights);
  const at::Tensor parts = at::empty({of_envelope ? made.edges : 0, a.heads}, of_edges);
  a.q = q.const_data_ptr();
  a.k = k.const_data_ptr();
  a.v = v.const_data_ptr();
  a.envelope = data(factors);
  a.grad = grad.const_data_ptr();
  a.out = const_cast<void*>(out.const_data_ptr());    // read
  a.norm = const_cast<void*>(norm.const_data_ptr());  // read
  a.grad_q = grad_q.mutable_data_ptr();
  a.weights = weights.mutable_data_ptr();
  a.slopes = slopes.mutable_data_ptr();
  if (of_envelope) a.grad_envelope = parts.mutable_data_ptr();
  run(q, host_graph_row_gradients, device_graph_row_gradients, made.kind, a);

  EdgeSumArguments b;
  b.rows = static_cast<int>(k.size(0));
  b.heads = a.key_heads;
  b.source_heads = a.heads;
  b.ptr = numbers("col_ptr", col_ptr, k.size(0) + 1, q);
  b.edges = numbers("col_edge", col_edge, made.edges, q);
  b.nodes = numbers("col_receivers", col_receivers, made.edges, q);
  b.a = a.slopes;
  b.x = a.q;
  b.out = grad_k.mutable_data_ptr();
  at::Tensor grad_v = at::empty({0}, q.options().requires_grad(false));
  if (!v_given) {  // one tensor has both gradients
    b.b = a.weights;
    b.y = a.grad;
  }
  run(q, host_edge_sums, device_edge_sums, number, made.kind.d, b);
  if (v_given) {
    grad_v = like(v);
    b.a = a.weights;
    b.x = a.grad;
    b.out = grad_v.mutable_data_ptr();
    run(q, host_edge_sums, device_edge_sums, number, made.kind.dv, b);
  }
  const at::ScalarType dtype = q_given.scalar_type();
  return {grad_q.to(dtype), grad_k.to(dtype), grad_v.to(dtype), parts.sum(1)};
}

/// Rows of a matrix of nodes: float64 or float32, (count, heads, columns).
void check_nodes(const char* name, const at::Tensor& x) {
  require(x.scalar_type() == at::kDouble || x.scalar_type() == at::kFloat,
          "{}: {}: expected float64 or float32, got {}", kOp, name, at::toString(x.scalar_type()));
  require(x.dim() == 3 && x.size(2) >= 1 && x.size(2) <= 512, "{}: {}: expected (nodes, heads, 1 to 512), got {}", kOp,
          name, sizes_of(x));
}

at::Tensor dots(const at::Tensor& a_given, const at::Tensor& b_given, const at::Tensor& row_ptr,
                const at::Tensor& senders, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  check_nodes("a", a_given);
  check_nodes("b", b_given);
  check_like(kOp, "b", b_given, a_given);
  require(a_given.size(2) == b_given.size(2) && b_given.size(1) > 0 && a_given.size(1) % b_given.size(1) == 0,
          "{}: dots of {} and {}", kOp, sizes_of(a_given), sizes_of(b_given));
  const at::Tensor a = a_given.contiguous(), b = b_given.contiguous();
  const at::Tensor made = at::empty({senders.numel(), a.size(1)}, a.options().requires_grad(false));
  EdgeDotArguments call;
  call.rows = {static_cast<int>(a.size(0)), numbers("row_ptr", row_ptr, a.size(0) + 1, a),
               numbers("senders", senders, senders.numel(), a)};
  call.heads = static_cast<int>(a.size(1));
  call.key_heads = static_cast<int>(b.size(1));
  call.a = a.const_data_ptr();
  call.b = b.const_data_ptr();
  call.dots = made.mutable_data_ptr();
  run(a, host_edge_dots, device_edge_dots, number_of(kOp, a.scalar_type()), static_cast<int>(a.size(2)), call);
  return made;
}

/// By sender where `transposed`: then `nodes` are receivers and `heads` of the result are few, that of keys.
at::Tensor sums(const at::Tensor& weights_given, const at::Tensor& x_given, const at::Tensor& row_ptr,
                const at::Tensor& senders, const at::Tensor& col_ptr, const at::Tensor& col_edge,
                const at::Tensor& col_receivers, int64_t heads, bool transposed) {
  check_nodes("x", x_given);
  check_like(kOp, "weights", weights_given, x_given);
  const at::Tensor weights = weights_given.contiguous(), x = x_given.contiguous();
  const int64_t edges = senders.numel(), most = std::max(heads, x.size(1));
  require(weights.dim() == 2 && weights.size(0) == edges && weights.size(1) == most && heads > 0 && x.size(1) > 0 &&
              most % heads == 0 && most % x.size(1) == 0,
          "{}: sums of {} heads of {} with {}", kOp, heads, sizes_of(x), sizes_of(weights));
  const at::Tensor& ptr = transposed ? col_ptr : row_ptr;
  const at::Tensor made = at::empty({ptr.numel() - 1, heads, x.size(2)}, x.options().requires_grad(false));
  EdgeSumArguments a;
  a.rows = static_cast<int>(ptr.numel() - 1);
  a.heads = static_cast<int>(heads);
  a.source_heads = static_cast<int>(x.size(1));
  a.ptr = numbers("ptr", ptr, ptr.numel(), x);
  a.edges = transposed ? numbers("col_edge", col_edge, edges, x) : nullptr;
  a.nodes = transposed ? numbers("col_receivers", col_receivers, edges, x) : numbers("senders", senders, edges, x);
  a.a = weights.const_data_ptr();
  a.x = x.const_data_ptr();
  a.out = made.mutable_data_ptr();
  run(x, host_edge_sums, device_edge_sums, number_of(kOp, x.scalar_type()), static_cast<int>(x.size(2)), a);
  return made;
}

Two forward_meta(const at::Tensor& q, const at::Tensor& k, const Optional& v, const Optional&, const at::Tensor&,
                 const at::Tensor&, const Optional&, const Optional&, const Optional&, int64_t normalise, double,
                 double) {
  require(q.dim() == 3 && k.dim() == 3, "{}: expected q and k of three dimensions", kOp);
  return results(q, v ? v->sym_size(2) : k.sym_size(2), normalise);
}

Four backward_meta(const at::Tensor&, const at::Tensor& q, const at::Tensor& k, const Optional& v, const Optional&,
                   const at::Tensor&, const at::Tensor& senders, const at::Tensor&, const at::Tensor&,
                   const at::Tensor&, const at::Tensor&, const at::Tensor& norm, int64_t, double, double,
                   bool of_envelope) {
  const auto like = [](const at::Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  return {like(q), like(k), v ? like(*v) : at::empty({0}, q.options()),
          of_envelope ? at::empty_symint({senders.sym_size(0)}, norm.options()) : at::empty({0}, norm.options())};
}

at::Tensor dots_meta(const at::Tensor& a, const at::Tensor&, const at::Tensor&, const at::Tensor& senders,
                     const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return at::empty_symint({senders.sym_size(0), a.sym_size(1)}, a.options());
}

at::Tensor sums_meta(const at::Tensor&, const at::Tensor& x, const at::Tensor& row_ptr, const at::Tensor&,
                     const at::Tensor& col_ptr, const at::Tensor&, const at::Tensor&, int64_t heads, bool transposed) {
  return at::empty_symint({(transposed ? col_ptr : row_ptr).sym_size(0) - 1, heads, x.sym_size(2)}, x.options());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(clebsch, library) {
  library.def(
      "graph_attention(Tensor q, Tensor k, Tensor? v, Tensor? envelope, Tensor row_ptr, Tensor senders, Tensor? "
      "col_ptr, Tensor? col_edge, Tensor? col_receivers, int normalise, float eps, float scale) -> (Tensor, Tensor)");
  library.def(
      "graph_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor? v, Tensor? envelope, Tensor row_ptr, Tensor "
      "senders, Tensor col_ptr, Tensor col_edge, Tensor col_receivers, Tensor out, Tensor norm, int normalise, float "
      "eps, float scale, bool of_envelope) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "graph_dots(Tensor a, Tensor b, Tensor row_ptr, Tensor senders, Tensor col_ptr, Tensor col_edge, Tensor "
      "col_receivers) -> Tensor");
  library.def(
      "graph_sums(Tensor weights, Tensor x, Tensor row_ptr, Tensor senders, Tensor col_ptr, Tensor col_edge, Tensor "
      "col_receivers, int heads, bool transposed) -> Tensor");
}
TORCH_LIBRARY_IMPL(clebsch, CPU, library) {
  library.impl("graph_attention", forward);
  library.impl("graph_attention_backward", backward);
  library.impl("graph_dots", dots);
  library.impl("graph_sums", sums);
}
TORCH_LIBRARY_IMPL(clebsch, CUDA, library) {
  library.impl("graph_attention", forward);
  library.impl("graph_attention_backward", backward);
  library.impl("graph_dots", dots);
  library.impl("graph_sums", sums);
}
TORCH_LIBRARY_IMPL(clebsch, Meta, library) {
  library.impl("graph_attention", forward_meta);
  library.impl("graph_attention_backward", backward_meta);
  library.impl("graph_dots", dots_meta);
  library.impl("graph_sums", sums_meta);
}

}  // namespace clebsch::attention
