#pragma once
// Parts of the triangle multiplicative update on rows of the CPU, for both passes. R is what is computed in.
#include <cstdint>
#include <vector>

#include "multilinear/host_numbers.h"
#include "multilinear/triangle/arguments.h"
#include "multilinear/triangle/host_products.h"

namespace clebsch::triangle {

/// Calls work with the pointer as one to numbers of the type.
template <typename Work>
void with_numbers(int number, const void* pointer, const Work& work) {
  void* plain = const_cast<void*>(pointer);
  if (number == kFloat64) return work(static_cast<double*>(plain));
  if (number == kFloat32) return work(static_cast<float*>(plain));
  if (number == kFloat16) return work(static_cast<Half*>(plain));
  work(static_cast<Brain*>(plain));
}

template <typename R, typename T>
R plain(T x) {
  if constexpr (sizeof(R) == 8) return to_double(x);
  return to_float(x);
}

template <typename R>
void read(int number, const void* from, int64_t first, int64_t count, R* to) {
  with_numbers(number, from, [&](auto* numbers) {
    for (int64_t i = 0; i < count; ++i) to[i] = plain<R>(numbers[first + i]);
  });
}

template <typename R>
void write(int number, const R* from, int64_t first, int64_t count, void* to) {
  with_numbers(number, to, [&](auto* numbers) {
    using T = std::decay_t<decltype(*numbers)>;
    for (int64_t i = 0; i < count; ++i) numbers[first + i] = from_double<T>(static_cast<double>(from[i]));
  });
}

/// Rows that are worked on at a time: whole tiles of a product (host_products_isa.h).
constexpr int64_t kRows = 96;

/// Rows of one matrix of the batch.
struct Block {
  int64_t batch, first, count;
};

inline int64_t blocks_of(const Shape& shape) { return shape.batch * ((shape.n * shape.n + kRows - 1) / kRows); }
inline Block block_of(const Shape& shape, int64_t at) {
  const int64_t rows = shape.n * shape.n, parts = (rows + kRows - 1) / kRows, first = at % parts * kRows;
  return {at / parts, first, rows - first < kRows ? rows - first : kRows};
}

template <typename R>
struct Linear {
  int64_t in = 0, out = 0;
  std::vector<R> bias, packed, packed_back;

  Linear(int number, const void* weight, const void* bias_given, int64_t in_width, int64_t out_width, bool back)
      : in(in_width), out(out_width), bias(static_cast<size_t>(out)) {
    std::vector<R> plain_weight(static_cast<size_t>(in * out));
    read(number, weight, 0, in * out, plain_weight.data());
    if (bias_given != nullptr) read(number, bias_given, 0, out, bias.data());
    packed.resize(static_cast<size_t>(loops<R>().packed_size(in, out)));
    loops<R>().pack({plain_weight.data(), 1, in}, in, out, packed.data());
    if (!back) return;
    packed_back.resize(static_cast<size_t>(loops<R>().packed_size(out, in)));
    loops<R>().pack({plain_weight.data(), in, 1}, out, in, packed_back.data());
  }
  /// y (rows, out) = x weight^T + bias.
  void apply(const R* x, int64_t rows, R* y) const {
    for (int64_t r = 0; r < rows; ++r) std::copy(bias.begin(), bias.end(), y + r * out);
    loops<R>().multiply({x, in, 1}, rows, in, packed.data(), out, y, out, true);
  }
  /// dx (rows, in) = dy weight, or added to it.
  void apply_back(const R* dy, int64_t rows, R* dx, bool add) const {
    loops<R>().multiply({dy, out, 1}, rows, out, packed_back.data(), in, dx, in, add);
  }
};

template <typename R>
struct Norm {
  int64_t width = 0;
  double eps = 0;
  std::vector<R> weight, bias;

  Norm(int number, const void* weight_given, const void* bias_given, int64_t of_width, double of_eps)
      : width(of_width), eps(of_eps), weight(static_cast<size_t>(width), R{1}), bias(static_cast<size_t>(width)) {
    if (weight_given != nullptr) read(number, weight_given, 0, width, weight.data());
    if (bias_given != nullptr) read(number, bias_given, 0, width, bias.data());
  }
  /// x (rows, width) becomes (x - mean) inverse, inverse (rows) 1 / sqrt(variance + eps). The variance is taken after
  /// the mean and in double precision: rows may have large means and heavy tails.
  void normalise(R* x, int64_t rows, R* inverse) const;
  /// y = x weight + bias
  void scale(const R* x, int64_t rows, R* y) const {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        y[r * width + c] = x[r * width + c] * weight[static_cast<size_t>(c)] + bias[static_cast<size_t>(c)];
      }
    }
  }
  /// Gradient (rows, width) of what was scaled becomes that of what was normalised, with its result and inverse.
  void differentiate(R* grad, const R* normal, const R* inverse, int64_t rows) const;
};

/// What both passes know of a call.
template <typename R>
struct Update {
  const Arguments& a;
  int64_t n, d, hidden, out, gate_width, pitch, rows;  ///< rows of one matrix of the batch
  int operand;
  R scale;
  Norm<R> norm_in, norm_out;
  Linear<R> p_in, g_in, p_out, g_out;

  Update(const Arguments& arguments, bool back);

  /// The block's part of x, normalised, and scaled into xn.
  void inputs(const Block& block, R* normal, R* inverse, R* xn) const;
  /// p = xn p_in^T + b, s = sigmoid(xn g_in^T + b), both (rows, 2 hidden).
  void project(const R* xn, int64_t count, R* p, R* s) const {
    p_in.apply(xn, count, p);
    g_in.apply(xn, count, s);
    loops<R>().sigmoid(s, count * 2 * hidden);
  }
  /// Ones where there is no mask.
  void mask(const Block& block, R* to) const;
  /// Planes (hidden, n, pitch) of the block's matrix at its rows to (count, stride), or from there.
  void gather(int number, const void* planes, int64_t row_pitch, const Block& block, R* to, int64_t stride) const;
  void scatter(int number, void* planes, int64_t row_pitch, const Block& block, const R* from, int64_t stride) const;
  /// plane (n, n) number `at` of left, right or o.
  void plane(const void* planes, int64_t at, R* to) const;

 private:
  template <typename Work>
  void over_planes(int number, const void* planes, int64_t row_pitch, const Block& block, const Work& work) const;
};

extern template struct Norm<float>;
extern template struct Norm<double>;
extern template struct Update<float>;
extern template struct Update<double>;

}  // namespace clebsch::triangle
