#include "core/radial_network.h"

#include <algorithm>
#include <cmath>
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

Jet silu(const Jet& a) {
  const double s = 1.0 / (1.0 + std::exp(-a.v));
  const double first = s * (1.0 + a.v * (1.0 - s));
  const double second = s * (1.0 - s) * (2.0 + a.v * (1.0 - 2.0 * s));
  return {a.v * s, first * a.d, second * a.d * a.d + first * a.dd};
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

}  // namespace

RadialNetwork::RadialNetwork(RadialDescription description, std::vector<double> basis, std::vector<double> weights)
    : description_(std::move(description)), basis_(std::move(basis)), weights_(std::move(weights)) {
  require(description_.widths.size() >= 2, "radial network: expected at least 2 widths, got {}",
          description_.widths.size());
  require(static_cast<int64_t>(basis_.size()) == description_.basis_size(),
          "radial network: expected {} basis values, got {}", description_.basis_size(), basis_.size());
  require(static_cast<int64_t>(weights_.size()) == description_.weight_count(),
          "radial network: expected {} weights, got {}", description_.weight_count(), weights_.size());
}

void RadialNetwork::evaluate(double r, double rc, double* value, double* first, double* second) const {
  require(r > 0.0 && rc > 0.0, "radial network: expected r > 0 and rc > 0, got r = {}, rc = {}", r, rc);
  double* const results[kOrders] = {value, first, second};
  const int64_t columns = description_.columns();
  for (double* result : results) {
    if (result != nullptr) std::fill(result, result + columns, 0.0);
  }
  const double x = r / rc;
  if (x >= 1.0) return;
  const int orders = second != nullptr ? 3 : first != nullptr ? 2 : 1;  // derivatives below the highest are needed

  // Layers hold [order][channel]; derivatives are along x until the end.
  const size_t layers = description_.widths.size() - 1;
  std::vector<double> input(kOrders * basis_.size()), output;
  const bool splines = description_.basis == RadialBasis::spline;
  const Jet f = splines ? Jet{1.0, 0.0, 0.0} : cutoff(description_.cutoff_p, x);
  const double prefactor = splines ? 1.0 : description_.prefactor;
  for (size_t n = 0; n < basis_.size(); ++n) {
    const Jet jet = splines ? cosine_spline(basis_[n], description_.prefactor, x) : bessel(basis_[n], x) * f;
    input[n] = prefactor * jet.v;
    input[basis_.size() + n] = prefactor * jet.d;
    input[2 * basis_.size() + n] = prefactor * jet.dd;
  }
  const double* weights = weights_.data();
  for (size_t layer = 0; layer < layers; ++layer) {
    const int64_t rows = description_.widths[layer], width = description_.widths[layer + 1];
    const bool last = layer + 1 == layers;
    if (!last) output.assign(kOrders * width, 0.0);
    for (int order = 0; order < orders; ++order) {
      double* out = last ? results[order] : output.data() + order * width;
      if (out != nullptr) multiply_add(input.data() + order * rows, weights, rows, width, out);
    }
    weights += rows * width;
    if (last) break;
    for (int64_t u = 0; u < width; ++u) {
      const Jet jet = silu({output[u], output[width + u], output[2 * width + u]});
      output[u] = jet.v;
      output[width + u] = jet.d;
      output[2 * width + u] = jet.dd;
    }
    std::swap(input, output);
  }
  // From d/dx to d/dr.
  for (int order = 1; order < orders; ++order) {
    if (results[order] == nullptr) continue;
    const double scale = order == 1 ? 1.0 / rc : 1.0 / (rc * rc);
    for (int64_t o = 0; o < columns; ++o) results[order][o] *= scale;
  }
}

}  // namespace clebsch
