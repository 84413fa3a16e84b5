#include "multilinear/triangle/host_rows.h"

#include <cmath>

namespace clebsch::triangle {

namespace {

/// Sum of term(c) in double precision, in an order that vectors can follow.
template <typename Term>
double sum(int64_t count, const Term& term) {
  constexpr int kLanes = 16;
  double part[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) part[lane] += term(c + lane);
  }
  double total = 0.0;
  for (; c < count; ++c) total += term(c);
  for (const double one : part) total += one;
  return total;
}

}  // namespace

template <typename R>
void Norm<R>::normalise(R* x, int64_t rows, R* inverse) const {
  const auto size = static_cast<double>(width);
  for (int64_t r = 0; r < rows; ++r) {
    R* row = x + r * width;
    const double mean = sum(width, [&](int64_t c) { return static_cast<double>(row[c]); }) / size;
    const double variance = sum(width,
                                [&](int64_t c) {
                                  const double difference = static_cast<double>(row[c]) - mean;
                                  return difference * difference;
                                }) /
                            size;
    const double factor = 1.0 / std::sqrt(variance + eps);
    for (int64_t c = 0; c < width; ++c) row[c] = static_cast<R>((static_cast<double>(row[c]) - mean) * factor);
    inverse[r] = static_cast<R>(factor);
  }
}

template <typename R>
void Norm<R>::differentiate(R* grad, const R* normal, const R* inverse, int64_t rows) const {
  const auto size = static_cast<double>(width);
  for (int64_t r = 0; r < rows; ++r) {
    R* g = grad + r * width;
    const R* x = normal + r * width;
    for (int64_t c = 0; c < width; ++c) g[c] *= weight[static_cast<size_t>(c)];
    const R shift = static_cast<R>(sum(width, [&](int64_t c) { return static_cast<double>(g[c]); }) / size);
    const R slope = static_cast<R>(
        sum(width, [&](int64_t c) { return static_cast<double>(g[c]) * static_cast<double>(x[c]); }) / size);
    for (int64_t c = 0; c < width; ++c) g[c] = inverse[r] * (g[c] - shift - x[c] * slope);
  }
}

template <typename R>
Update<R>::Update(const Arguments& arguments, bool back)
    : a(arguments),
      n(a.shape.n),
      d(a.shape.d),
      hidden(a.shape.hidden),
      out(a.shape.out),
      gate_width(a.shape.gate_before ? hidden : out),
      pitch(pitch_of(a.precision, n)),
      rows(n * n),
      operand(operand_number(a.precision)),
      scale(static_cast<R>(std::ldexp(1.0, -left_exponent(a.precision, n)))),
      norm_in(a.weights_number, a.weights.norm_in_weight, a.weights.norm_in_bias, d, a.eps),
      norm_out(a.weights_number, a.weights.norm_out_weight, a.weights.norm_out_bias, hidden,
               std::ldexp(a.eps, -2 * left_exponent(a.precision, n))),
      p_in(a.weights_number, a.weights.p_in_weight, a.weights.p_in_bias, d, 2 * hidden, back),
      g_in(a.weights_number, a.weights.g_in_weight, a.weights.g_in_bias, d, 2 * hidden, back),
      p_out(a.weights_number, a.weights.p_out_weight, a.weights.p_out_bias, hidden, out, back),
      g_out(a.weights_number, a.weights.g_out_weight, a.weights.g_out_bias, d, gate_width, back) {}

template <typename R>
void Update<R>::inputs(const Block& block, R* normal, R* inverse, R* xn) const {
  read(a.number, a.x, (block.batch * rows + block.first) * d, block.count * d, normal);
  norm_in.normalise(normal, block.count, inverse);
  norm_in.scale(normal, block.count, xn);
}

template <typename R>
void Update<R>::mask(const Block& block, R* to) const {
  const int64_t first = block.batch * rows + block.first;
  if (a.mask_kind == kNumberMask) return read(sizeof(R) == 8 ? kFloat64 : kFloat32, a.mask, first, block.count, to);
  const auto* bytes = static_cast<const unsigned char*>(a.mask);
  for (int64_t r = 0; r < block.count; ++r) to[r] = a.mask_kind == kNoMask || bytes[first + r] != 0 ? R{1} : R{0};
}

template <typename R>
template <typename Work>
void Update<R>::over_planes(int number, const void* planes, int64_t row_pitch, const Block& block,
                            const Work& work) const {
  int64_t offset[kRows];
  for (int64_t r = 0; r < block.count; ++r) offset[r] = (block.first + r) / n * row_pitch + (block.first + r) % n;
  with_numbers(number, planes, [&](auto* numbers) {
    for (int64_t h = 0; h < hidden; ++h) {
      auto* plane = numbers + (block.batch * hidden + h) * n * row_pitch;
      for (int64_t r = 0; r < block.count; ++r) work(plane[offset[r]], r, h);
    }
  });
}

template <typename R>
void Update<R>::gather(int number, const void* planes, int64_t row_pitch, const Block& block, R* to,
                       int64_t stride) const {
  over_planes(number, planes, row_pitch, block,
              [&](const auto& x, int64_t r, int64_t h) { to[r * stride + h] = plain<R>(x); });
}

template <typename R>
void Update<R>::scatter(int number, void* planes, int64_t row_pitch, const Block& block, const R* from,
                        int64_t stride) const {
  over_planes(number, planes, row_pitch, block, [&](auto& x, int64_t r, int64_t h) {
    x = from_double<std::decay_t<decltype(x)>>(static_cast<double>(from[r * stride + h]));
  });
}

template <typename R>
void Update<R>::plane(const void* planes, int64_t at, R* to) const {
  for (int64_t i = 0; i < n; ++i) read(operand, planes, (at * n + i) * pitch, n, to + i * n);
}

template struct Norm<float>;
template struct Norm<double>;
template struct Update<float>;
template struct Update<double>;

}  // namespace clebsch::triangle
