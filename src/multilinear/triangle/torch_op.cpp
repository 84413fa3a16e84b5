// torch.ops.clebsch.triangle_multiplicative_update and its gradient, which clebsch.triangle in Python is made of;
// autograd is registered there.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "core/errors.h"
#include "multilinear/torch_device.h"
#include "multilinear/triangle/host_triangle.h"
#ifdef CLEBSCH_HAS_CUDA
#include "multilinear/triangle/device_triangle.h"
#endif

namespace clebsch::triangle {
namespace {

using Optional = c10::optional<at::Tensor>;
using Given = at::TensorList;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, std::vector<at::Tensor>>;
constexpr const char* kOp = "triangle_multiplicative_update";

/// Weights in their order. The op's list has those whose bits are set in `given`: autograd knows no list with gaps.
struct Weight {
  const char* name;
  const void* Weights::*place;
  void* Gradients::*gradient;
};
constexpr int kWeights = 12;
constexpr Weight kWeight[kWeights] = {
    {"norm_in_weight", &Weights::norm_in_weight, &Gradients::norm_in_weight},
    {"norm_in_bias", &Weights::norm_in_bias, &Gradients::norm_in_bias},
    {"p_in_weight", &Weights::p_in_weight, &Gradients::p_in_weight},
    {"p_in_bias", &Weights::p_in_bias, &Gradients::p_in_bias},
    {"g_in_weight", &Weights::g_in_weight, &Gradients::g_in_weight},
    {"g_in_bias", &Weights::g_in_bias, &Gradients::g_in_bias},
    {"norm_out_weight", &Weights::norm_out_weight, &Gradients::norm_out_weight},
    {"norm_out_bias", &Weights::norm_out_bias, &Gradients::norm_out_bias},
    {"p_out_weight", &Weights::p_out_weight, &Gradients::p_out_weight},
    {"p_out_bias", &Weights::p_out_bias, &Gradients::p_out_bias},
    {"g_out_weight", &Weights::g_out_weight, &Gradients::g_out_weight},
    {"g_out_bias", &Weights::g_out_bias, &Gradients::g_out_bias},
};
constexpr int kPIn = 2, kGIn = 4, kPOut = 8, kGOut = 10;  // weights that are always there

/// Whether a bit is set, of `given` (weights) or of `wanted` (gradients of x, of mask and of weights).
bool has(int64_t bits, int at) { return (bits >> at & 1) != 0; }

int number_of(const char* name, at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return kFloat64;
    case at::kFloat:
      return kFloat32;
    case at::kHalf:
      return kFloat16;
    case at::kBFloat16:
      return kBfloat16;
    default:
      fail("{}: {}: expected float64, float32, float16 or bfloat16, got {}", kOp, name, at::toString(dtype));
  }
}

int precision_of(std::string_view name, at::ScalarType dtype) {
  constexpr std::pair<const char*, int> kNames[] = {
      {"ieee", kIeee}, {"tf32", kTf32}, {"tf32x3", kTf32x3}, {"fp16", kHalf}, {"bf16", kBrain}};
  for (const auto& [known, precision] : kNames) {
    if (name != known) continue;
    if (dtype != at::kDouble) return precision;
    require(precision == kIeee, "{}: precision: float64 tensors are computed in IEEE double precision, got '{}'", kOp,
            name);
    return kDouble;
  }
  fail("{}: precision: expected ieee, tf32, tf32x3, fp16 or bf16, got '{}'", kOp, name);
}

at::ScalarType operand_type(int precision) {
  constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16};
  return kTypes[operand_number(precision)];
}

/// Of sums, of masks of numbers and of their gradients.
at::ScalarType real_of(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

/// The tensors of a call: contiguous, and aligned for vectors.
struct Tensors {
  at::Tensor x;
  Optional mask;
  std::array<Optional, kWeights> weights;
  Arguments arguments;
};

at::Tensor plain(const at::Tensor& tensor) {
  const at::Tensor made = tensor.contiguous();
  return reinterpret_cast<std::uintptr_t>(made.const_data_ptr()) % 16 == 0 ? made : made.clone();
}

void check_shape(const char* name, const at::Tensor& tensor, std::initializer_list<int64_t> expected,
                 const char* meaning) {
  require(tensor.sizes() == at::IntArrayRef(expected), "{}: {} must be {} = ({}), got {}", kOp, name, meaning,
          joined(expected, ", "), sizes_of(tensor));
}

void check_x(const at::Tensor& x) {
  number_of("x", x.scalar_type());
  require(x.dim() >= 3, "{}: x must be (..., N, N, D), got {}", kOp, sizes_of(x));
  require(x.size(-2) == x.size(-3), "{}: x must be (..., N, N, D), got {}: its two pair dimensions differ", kOp,
          sizes_of(x));
  require(x.size(-1) >= 1, "{}: x must be (..., N, N, D) with D of 1 or more, got {}", kOp, sizes_of(x));
}

Shape check_weights(const at::Tensor& x, std::array<Optional, kWeights>& weights, bool gate_before) {
  for (const int at : {kPIn, kGIn, kPOut, kGOut}) {
    require(weights[at].has_value(), "{}: {} is missing", kOp, kWeight[at].name);
    require(weights[at]->dim() == 2,
            "{}: {} must be a matrix (rows of the result, columns of what it is applied to), got {}", kOp,
            kWeight[at].name, sizes_of(*weights[at]));
  }
  const at::Tensor& first = *weights[kPIn];
  number_of("weights", first.scalar_type());
  for (int at = 0; at < kWeights; ++at) {
    if (!weights[at]) continue;
    const at::Tensor& weight = *weights[at];
    require(weight.scalar_type() == first.scalar_type(),
            "{}: {}: expected {} as p_in_weight, got {}: convert one of them", kOp, kWeight[at].name,
            at::toString(first.scalar_type()), at::toString(weight.scalar_type()));
    require(weight.device() == x.device(), "{}: {}: expected a tensor on {} as x, got one on {}", kOp, kWeight[at].name,
            x.device().str(), weight.device().str());
  }
  require((x.scalar_type() == at::kDouble) == (first.scalar_type() == at::kDouble),
          "{}: expected x and weights to be float64 both or neither, got {} and {}: convert one of them", kOp,
          at::toString(x.scalar_type()), at::toString(first.scalar_type()));
  const int64_t d = x.size(-1), hidden = first.size(0) / 2, out = weights[kPOut]->size(0);
  const int64_t gate = gate_before ? hidden : out;
  require(first.size(0) % 2 == 0 && hidden >= 1 && first.size(1) == d,
          "{}: p_in_weight must be (2 H, D) with D = {} as x, rows of the left operand first, got {}", kOp, d,
          sizes_of(first));
  require(out >= 1 && d < std::numeric_limits<int>::max() && first.size(0) < std::numeric_limits<int>::max() &&
              out < std::numeric_limits<int>::max(),
          "{}: expected widths of 1 to 2^31 - 1, got D = {}, H = {} and D_out = {}", kOp, d, hidden, out);
  check_shape("g_in_weight", *weights[kGIn], {2 * hidden, d}, "(2 H, D)");
  check_shape("p_out_weight", *weights[kPOut], {out, hidden}, "(D_out, H)");
  const at::Tensor& g_out = *weights[kGOut];
  if (gate_before) {
    require(g_out.size(0) == gate,
            "{}: gate=before needs an output gate of width H = {}, got {} (gate=after is the AlphaFold order)", kOp,
            hidden, g_out.size(0));
  } else {
    require(g_out.size(0) == gate,
            "{}: gate=after needs an output gate of width D_out = {}, got {} (gate=before gates H = {} channels before "
            "the projection)",
            kOp, out, g_out.size(0), hidden);
  }
  check_shape("g_out_weight", g_out, {gate, d}, gate_before ? "(H, D)" : "(D_out, D)");
  const struct {
    int at;
    int64_t width;
    const char* meaning;
  } vectors[] = {
      {0, d, "(D)"},      {1, d, "(D)"},      {3, 2 * hidden, "(2 H)"}, {5, 2 * hidden, "(2 H)"},
      {6, hidden, "(H)"}, {7, hidden, "(H)"}, {9, out, "(D_out)"},      {11, gate, gate_before ? "(H)" : "(D_out)"}};
  for (const auto& [at, width, meaning] : vectors) {
    if (weights[at]) check_shape(kWeight[at].name, *weights[at], {width}, meaning);
  }
  Shape shape;
  shape.n = x.size(-2);
  shape.batch = shape.n == 0 ? 0 : x.numel() / (shape.n * shape.n * d);
  shape.d = static_cast<int>(d);
  shape.hidden = static_cast<int>(hidden);
  shape.out = static_cast<int>(out);
  shape.gate_before = gate_before;
  return shape;
}

void check_mask(const at::Tensor& x, const at::Tensor& mask) {
  require(mask.sizes() == x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)),
          "{}: mask must be (..., N, N) = ({}) as x, got {}", kOp,
          joined(x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)), ", "), sizes_of(mask));
  const at::ScalarType real = real_of(x.scalar_type());
  require(mask.scalar_type() == at::kBool || mask.scalar_type() == real, "{}: mask: expected Bool or {}, got {}", kOp,
          at::toString(real), at::toString(mask.scalar_type()));
  require(mask.device() == x.device(), "{}: mask: expected a tensor on {} as x, got one on {}", kOp, x.device().str(),
          mask.device().str());
}

#ifdef CLEBSCH_HAS_CUDA
void check_device_widths(const Shape& shape) {
  const std::pair<const char*, int> widths[] = {{"D", shape.d}, {"H", shape.hidden}, {"D_out", shape.out}};
  for (const auto& [name, width] : widths) {
    require(width % 16 == 0,
            "{}: on a GPU {} must be a multiple of 16, got {}: pad it to {} with zeros in x and in weights, and scale "
            "the norm, or compute on the CPU",
            kOp, name, width, (width + 15) / 16 * 16);
  }
}
#endif

std::array<Optional, kWeights> placed(Given weights, int64_t given) {
  std::array<Optional, kWeights> made;
  size_t next = 0;
  for (int at = 0; at < kWeights; ++at) {
    if (!has(given, at)) continue;
    require(next < weights.size(), "{}: given: expected as many bits as there are weights, {}, got {}", kOp,
            weights.size(), given);
    made[at] = weights[next++];
  }
  require(next == weights.size(), "{}: given: expected as many bits as there are weights, {}, got {}", kOp,
          weights.size(), given);
  return made;
}

Tensors checked(const at::Tensor& x, const Optional& mask, Given weights, int64_t given, bool incoming,
                bool gate_before, double eps, c10::string_view precision) {
  check_x(x);
  Tensors made;
  Arguments& a = made.arguments;
  made.weights = placed(weights, given);
  a.shape = check_weights(x, made.weights, gate_before);
  a.shape.incoming = incoming;
  if (mask) check_mask(x, *mask);
  require(std::isfinite(eps) && eps >= 0, "{}: eps: expected a number that is not negative, got {}", kOp, eps);
  a.precision = precision_of(std::string_view(precision.data(), precision.size()), x.scalar_type());
  a.number = number_of("x", x.scalar_type());
  a.weights_number = number_of("weights", made.weights[kPIn]->scalar_type());
  a.eps = eps;
#ifdef CLEBSCH_HAS_CUDA
  if (x.device().is_cuda()) check_device_widths(a.shape);
#endif
  made.x = plain(x);
  a.x = made.x.const_data_ptr();
  if (mask) {
    made.mask = plain(*mask);
    a.mask = made.mask->const_data_ptr();
    a.mask_kind = mask->scalar_type() == at::kBool ? kByteMask : kNumberMask;
  }
  for (int at = 0; at < kWeights; ++at) {
    if (!made.weights[at]) continue;
    made.weights[at] = plain(*made.weights[at]);
    a.weights.*kWeight[at].place = made.weights[at]->const_data_ptr();
  }
  return made;
}

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
    right = empty_planes(x, a.shape.hidden, a.precision);
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
        const auto bytes =
            static_cast<size_t>(a.shape.batch * a.shape.hidden * a.shape.n * pitch_of(a.precision, a.shape.n)) *
            c10::elementSize(operand_type(a.precision));
        if (bytes <= out.nbytes()) a.left = a.out;
        if (2 * bytes <= out.nbytes() && bytes % 16 == 0) a.right = static_cast<char*>(a.out) + bytes;
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
  const auto real = options.dtype(real_of(x.scalar_type()));
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
  for (at::Tensor& made : grads) made = made.to(t.weights[kPIn]->scalar_type());
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
  const int how = precision_of(std::string_view(precision.data(), precision.size()), x.scalar_type());
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
