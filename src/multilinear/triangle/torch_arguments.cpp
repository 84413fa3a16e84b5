#include "multilinear/triangle/torch_arguments.h"

#include <cmath>
#include <limits>
#include <utility>

#include "core/errors.h"
#include "multilinear/torch_device.h"
#include "multilinear/torch_numbers.h"

namespace clebsch::triangle {
namespace {

static_assert(kFloat64 == 0 && kFloat32 == 1 && kFloat16 == 2 && kBfloat16 == 3,
              "as multilinear/torch_numbers.h counts");

int number_of(const char* name, at::ScalarType dtype) { return clebsch::number_of(kOp, name, dtype); }

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

}  // namespace

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

at::Tensor plain(const at::Tensor& tensor) {
  const at::Tensor made = tensor.contiguous();
  return reinterpret_cast<std::uintptr_t>(made.const_data_ptr()) % 16 == 0 ? made : made.clone();
}

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
                bool gate_before, double eps, std::string_view precision) {
  check_x(x);
  Tensors made;
  Arguments& a = made.arguments;
  made.weights = placed(weights, given);
  a.shape = check_weights(x, made.weights, gate_before);
  a.shape.incoming = incoming;
  if (mask) check_mask(x, *mask);
  require(std::isfinite(eps) && eps >= 0, "{}: eps: expected a number that is not negative, got {}", kOp, eps);
  a.precision = precision_of(precision, x.scalar_type());
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

}  // namespace clebsch::triangle
