#include "core/radial/radial_network.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/errors.h"

namespace clebsch {
namespace {

constexpr int kOrders = 3;  // value, first and second derivative

// A number with its first two derivatives along one variable.
struct Jet {
  double v, d, dd;
};

Jet operator*(const Jet& a, const Jet& b) {
  return {a.v * b.v, a.d * b.v + a.v * b.d, a.dd * b.v + 2.0 * a.d * b.d + a.v * b.dd};
}

// sin(b x) / x along x. The closed forms of the derivatives cancel for small b x, where the series is used.
Jet bessel(double b, double x) {
  const double u = b * x;
  if (std::abs(u) < 1.0) {
    // sin(u)/u = sum_k (-1)^k u^(2k) / (2k+1)!; 12 terms leave less than 1e-24.
    double term = 1.0, v = 0.0, d = 0.0, dd = 0.0;  // term = (-1)^k u^(2k) / (2k+1)!
    double below = 0.0, twice_below = 0.0;          // its first and second derivative along u
    const double square = u * u;
    for (int k = 0; k < 12; ++k) {
      v += term;
      d += below;
      dd += twice_below;
      const double ratio = -1.0 / ((2 * k + 2) * (2 * k + 3));
      const double next = term * square * ratio;
      const double next_below = (below * square + term * 2.0 * u) * ratio;
      twice_below = (twice_below * square + below * 4.0 * u + term * 2.0) * ratio;
      below = next_below;
      term = next;
    }
    return {b * v, b * b * d, b * b * b * dd};
  }
  const double s = std::sin(u), c = std::cos(u);
  const double v = s / x, d = (b * c - v) / x;
  return {v, d, (-b * b * s - 2.0 * d) / x};
}

// The polynomial cutoff of degree p along x < 1. Its derivatives are written with their zero at x = 1 as a factor:
// f' = -p(p+1)(p+2)/2 x^(p-1) (1-x)^2.
Jet cutoff(double p, double x) {
  const double power = std::pow(x, p - 2.0), rest = 1.0 - x;
  const double v =
      1.0 - power * x * x * (0.5 * (p + 1.0) * (p + 2.0) - p * (p + 2.0) * x + 0.5 * p * (p + 1.0) * x * x);
  const double k = -0.5 * p * (p + 1.0) * (p + 2.0);
  return {v, k * power * x * rest * rest, k * power * rest * ((p - 1.0) * rest - 2.0 * x)};
}

// (1 - cos(2 pi (x - from) / width))^2 / 4 inside (from, from + width), zero outside; three times differentiable.
Jet cosine_spline(double from, double width, double x) {
  if (x <= from || x >= from + width) return {0.0, 0.0, 0.0};
  constexpr double kPi = 3.14159265358979323846;
  const double k = 2.0 * kPi / width, u = k * (x - from);
  const double s = std::sin(u), c = std::cos(u), rest = 1.0 - c;
  return {0.25 * rest * rest, 0.5 * k * rest * s, 0.5 * k * k * (s * s + rest * c)};
}

Jet operator+(const Jet& a, const Jet& b) { return {a.v + b.v, a.d + b.d, a.dd + b.dd}; }

// The composition g(a), from g's value, slope and curvature at a.v.
Jet chain(const Jet& g, const Jet& a) { return {g.v, g.d * a.d, g.dd * a.d * a.d + g.d * a.dd}; }

Jet power(const Jet& a, double n) {
  const double v = std::pow(a.v, n);
  return chain({v, n * v / a.v, n * (n - 1.0) * v / (a.v * a.v)}, a);
}

Jet reciprocal(const Jet& a) {
  const double v = 1.0 / a.v;
  return chain({v, -v * v, 2.0 * v * v * v}, a);
}

Jet tanh(const Jet& a) {
  const double v = std::tanh(a.v), slope = 1.0 - v * v;
  return chain({v, slope, -2.0 * v * slope}, a);
}

// exp(k (x - centre)^2) along x.
Jet gaussian(double k, double centre, double x) {
  const double u = x - centre, v = std::exp(k * u * u);
  return {v, 2.0 * k * u * v, 2.0 * k * v * (1.0 + 2.0 * k * u * u)};
}

// What the basis sees instead of r, from `values` (q, p, a, r0 or alpha, r0; core/problem/problem.h DistanceTransform).
Jet transformed(DistanceTransform transform, const double* values, const Jet& r) {
  if (transform == DistanceTransform::none) return r;
  const Jet one{1.0, 0.0, 0.0};
  if (transform == DistanceTransform::agnesi) {
    const double q = values[0], p = values[1], a = values[2], r0 = values[3];
    const Jet u = r * Jet{1.0 / r0, 0.0, 0.0};
    return reciprocal(one + power(u, q) * Jet{a, 0.0, 0.0} * reciprocal(one + power(u, q - p)));
  }
  const double low = 0.75 * values[1], high = 4.0 / 3.0 * values[1], steepness = values[0] / (high - low);
  const Jet step = tanh((r + Jet{-0.5 * (low + high), 0.0, 0.0}) * Jet{steepness, 0.0, 0.0});
  return Jet{low, 0.0, 0.0} + (r + Jet{-low, 0.0, 0.0}) * (one + step) * Jet{0.5, 0.0, 0.0};
}

int transform_values(DistanceTransform transform) {
  return transform == DistanceTransform::none ? 0 : transform == DistanceTransform::agnesi ? 4 : 2;
}

Jet silu(const Jet& a) {
  const double s = 1.0 / (1.0 + std::exp(-a.v));
  return chain({a.v * s, s * (1.0 + a.v * (1.0 - s)), s * (1.0 - s) * (2.0 + a.v * (1.0 - 2.0 * s))}, a);
}

// Channel u of values [order][channel].
Jet channel(const std::vector<double>& values, int64_t width, int64_t u) {
  return {values[u], values[width + u], values[2 * width + u]};
}

void set_channel(std::vector<double>& values, int64_t width, int64_t u, const Jet& jet) {
  values[u] = jet.v;
  values[width + u] = jet.d;
  values[2 * width + u] = jet.dd;
}

// torch.nn.LayerNorm over the channels, in place; factors and shifts follow each other.
void layer_norm(std::vector<double>& values, int64_t width, const double* factors) {
  constexpr double kEpsilon = 1e-5;  // LayerNorm's own; the exporter checks it
  const Jet share{1.0 / static_cast<double>(width), 0.0, 0.0};
  Jet sum{0.0, 0.0, 0.0}, squares{kEpsilon, 0.0, 0.0};
  for (int64_t u = 0; u < width; ++u) sum = sum + channel(values, width, u);
  const Jet minus_mean = sum * share * Jet{-1.0, 0.0, 0.0};
  for (int64_t u = 0; u < width; ++u) {
    const Jet centred = channel(values, width, u) + minus_mean;
    set_channel(values, width, u, centred);
    squares = squares + centred * centred * share;
  }
  const Jet inverse = power(squares, -0.5);
  for (int64_t u = 0; u < width; ++u) {
    const Jet scaled = channel(values, width, u) * inverse * Jet{factors[u], 0.0, 0.0};
    set_channel(values, width, u, scaled + Jet{factors[width + u], 0.0, 0.0});
  }
}

// out[o] += sum_i in[i] weights[i][o]. Four rows at a time, so that `out` is loaded and stored a quarter as often.
void multiply_add(const double* in, const double* weights, int64_t rows, int64_t columns, double* out) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const double *w0 = weights + i * columns, *w1 = w0 + columns, *w2 = w1 + columns, *w3 = w2 + columns;
    const double a0 = in[i], a1 = in[i + 1], a2 = in[i + 2], a3 = in[i + 3];
    for (int64_t o = 0; o < columns; ++o) out[o] += a0 * w0[o] + a1 * w1[o] + a2 * w2[o] + a3 * w3[o];
  }
  for (; i < rows; ++i) {
    const double *w = weights + i * columns, a = in[i];
    for (int64_t o = 0; o < columns; ++o) out[o] += a * w[o];
  }
}

// tanh(y^2) and a last factor f, of what the last layer gives.
void finish_columns(const RadialDescription& description, const Jet& f, int orders, double* const results[kOrders]) {
  for (int64_t o = 0; o < description.columns(); ++o) {
    Jet jet{results[0][o], orders > 1 ? results[1][o] : 0.0, orders > 2 ? results[2][o] : 0.0};
    if (description.density) jet = tanh(jet * jet);
    if (description.cutoff_last) jet = jet * f;
    const double values[kOrders] = {jet.v, jet.d, jet.dd};
    for (int order = 0; order < orders; ++order) results[order][o] = values[order];
  }
}

}  // namespace

RadialNetwork::RadialNetwork(RadialDescription description, std::vector<double> basis, std::vector<double> weights)
    : description_(std::move(description)), basis_(std::move(basis)), weights_(std::move(weights)) {
  require(description_.widths.size() >= 2, "radial network: expected at least 2 widths, got {}",
          description_.widths.size());
  const int64_t numbers = description_.basis_size() + transform_values(description_.transform);
  require(static_cast<int64_t>(basis_.size()) == numbers, "radial network: expected {} basis values, got {}", numbers,
          basis_.size());
  require(static_cast<int64_t>(weights_.size()) == description_.weight_count(),
          "radial network: expected {} weights, got {}", description_.weight_count(), weights_.size());
}

void RadialNetwork::evaluate(double r, double rc, double* value, double* first, double* second) const {
  require(r > 0.0 && rc > 0.0, "radial network: expected r > 0 and rc > 0, got r = {}, rc = {}", r, rc);
  const int64_t columns = description_.columns();
  // Some of the last steps need the derivatives below the highest one, even when nobody asked for those.
  std::vector<double> spare;
  if (description_.density || description_.cutoff_last) {
    spare.resize(kOrders * columns);
    double** const asked[kOrders] = {&value, &first, &second};
    bool needed = false;
    for (int order = kOrders - 1; order >= 0; --order) {
      needed |= *asked[order] != nullptr;
      if (needed && *asked[order] == nullptr) *asked[order] = spare.data() + order * columns;
    }
  }
  double* const results[kOrders] = {value, first, second};
  for (double* result : results) {
    if (result != nullptr) std::fill(result, result + columns, 0.0);
  }
  const double x = r / rc;
  if (x >= 1.0) return;
  const int orders = second != nullptr ? 3 : first != nullptr ? 2 : 1;  // derivatives below the highest are needed

  // Layers hold [order][channel]; derivatives are along x until the end.
  const size_t layers = description_.widths.size() - 1;
  const int64_t functions = description_.basis_size();
  std::vector<double> input(kOrders * functions), output;
  const bool splines = description_.basis == RadialBasis::spline, norms = description_.activation != Activation::silu;
  const Jet one{1.0, 0.0, 0.0}, f = splines ? one : cutoff(description_.cutoff_p, x);
  const bool bent = description_.transform != DistanceTransform::none;
  Jet place{x, 1.0, 0.0};
  if (bent) {
    place = transformed(description_.transform, basis_.data() + functions, {r, rc, 0.0}) * Jet{1.0 / rc, 0.0, 0.0};
  }
  for (int64_t n = 0; n < functions; ++n) {
    const double b = basis_[n], k = description_.prefactor;
    Jet jet = splines                                       ? cosine_spline(b, k, x)
              : description_.basis == RadialBasis::gaussian ? gaussian(k, b, place.v)
                                                            : bessel(b, place.v) * Jet{k, 0.0, 0.0};
    if (bent) jet = chain(jet, place);
    if (!splines && !description_.cutoff_last) jet = jet * f;
    set_channel(input, functions, n, jet);
  }
  const double* weights = weights_.data();
  const double* pair_bias = weights;
  if (norms) weights += description_.widths[1];
  for (size_t layer = 0; layer < layers; ++layer) {
    const int64_t rows = description_.widths[layer], width = description_.widths[layer + 1];
    if (layer > 0) {
      if (norms) {
        layer_norm(input, rows, weights);
        weights += 2 * rows;
      }
      for (int64_t u = 0; u < rows; ++u) set_channel(input, rows, u, silu(channel(input, rows, u)));
    }
    const bool last = layer + 1 == layers;
    if (!last) output.assign(kOrders * width, 0.0);
    for (int order = 0; order < orders; ++order) {
      double* out = last ? results[order] : output.data() + order * width;
      if (out != nullptr) multiply_add(input.data() + order * rows, weights, rows, width, out);
    }
    weights += rows * width;
    if (norms) {
      const double* bias = layer == 0 ? pair_bias : weights;
      double* out = last ? value : output.data();
      for (int64_t u = 0; out != nullptr && u < width; ++u) out[u] += bias[u];
      if (layer > 0) weights += width;
    }
    std::swap(input, output);
  }
  if (description_.density || description_.cutoff_last) finish_columns(description_, f, orders, results);
  // From d/dx to d/dr.
  for (int order = 1; order < orders; ++order) {
    if (results[order] == nullptr) continue;
    const double scale = order == 1 ? 1.0 / rc : 1.0 / (rc * rc);
    for (int64_t o = 0; o < columns; ++o) results[order][o] *= scale;
  }
}

RadialNetworks pair_networks(const RadialDescription& description, int64_t own, const std::vector<double>& basis,
                             const std::vector<double>& weights, const std::vector<bool>& in_use) {
  const int64_t types = static_cast<int64_t>(in_use.size()), functions = description.basis_size();
  const int64_t numbers = description.basis_values(types), shared = description.weight_count() - own;
  const bool bent = description.transform != DistanceTransform::none;
  require(static_cast<int64_t>(basis.size()) == numbers && own >= 0 && shared >= 0 &&
              static_cast<int64_t>(weights.size()) == (own > 0 ? types * types : 0) * own + shared,
          "radial networks: expected {} basis values for {} types, got {}, or {} weights do not fit", numbers, types,
          basis.size(), weights.size());
  if (own == 0 && !bent) return {std::make_shared<RadialNetwork>(description, basis, weights)};
  RadialNetworks networks(static_cast<size_t>(types * types));
  std::map<double, std::shared_ptr<const RadialNetwork>> of_length;  // without weights of their own
  for (int64_t pair = 0; pair < types * types; ++pair) {
    const int64_t i = pair / types, j = pair % types;
    if (!in_use[i] || !in_use[j]) continue;
    std::vector<double> numbers_here = basis;
    double length = 0.0;
    if (bent) {
      const double* radii = basis.data() + basis.size() - types;
      length = (radii[i] + radii[j]) * (description.transform == DistanceTransform::agnesi ? 0.5 : 1.0);
      require(length > 0.0, "radial networks: expected positive radii of types {} and {}", i, j);
      numbers_here.resize(static_cast<size_t>(functions + transform_values(description.transform)));
      numbers_here.back() = length;
    }
    if (own == 0 && of_length.count(length)) {
      networks[pair] = of_length[length];
      continue;
    }
    std::vector<double> all(weights.begin() + pair * own, weights.begin() + (pair + 1) * own);
    all.insert(all.end(), weights.end() - shared, weights.end());
    networks[pair] = std::make_shared<RadialNetwork>(description, std::move(numbers_here), std::move(all));
    if (own == 0) of_length[length] = networks[pair];
  }
  return networks;
}

}  // namespace clebsch
