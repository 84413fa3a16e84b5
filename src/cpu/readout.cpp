#include "cpu/readout.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace clebsch::cpu {
namespace {

/// The sum over the hidden units of last times silu; `hidden`, their arguments, becomes its derivatives by these.
template <typename T>
T activate(const Readout<T>& layers, T* hidden) {
  T sum = 0;
  for (int64_t j = 0; j < layers.hidden_count; ++j) {
    const T a = hidden[j], s = 1 / (1 + std::exp(-a));
    sum += layers.last[j] * (a * s);
    hidden[j] = layers.last[j] * (s * (1 + a * (1 - s)));
  }
  return sum;
}

template <typename T>
void row(const Readout<T>& layers, const T* x, double scale, double shift, T* hidden, double* energy, T* gradient) {
  std::fill_n(hidden, layers.hidden_count, T(0));
  T sum = 0;
  for (int64_t c = 0; c < layers.width; ++c) {
    if (layers.direct) sum += x[c] * layers.direct[c];
    const T* const weights = layers.hidden + c * layers.hidden_count;
    for (int64_t j = 0; j < layers.hidden_count; ++j) hidden[j] += x[c] * weights[j];
  }
  sum += activate(layers, hidden);
  *energy = shift + scale * static_cast<double>(sum);
  if (!gradient) return;
  for (int64_t c = 0; c < layers.width; ++c) {
    T slope = layers.direct ? layers.direct[c] : T(0);
    const T* const weights = layers.hidden + c * layers.hidden_count;
    for (int64_t j = 0; j < layers.hidden_count; ++j) slope += weights[j] * hidden[j];
    gradient[c] = static_cast<T>(scale) * slope;
  }
}

}  // namespace

template <typename T>
void readout(const Readout<T>& layers, const T* x, const int32_t* types, int64_t rows, double* energy, T* gradient,
             int threads) {
#pragma omp parallel num_threads(threads)
  {
    std::vector<T> hidden(static_cast<std::size_t>(layers.hidden_count));
#pragma omp for schedule(static)
    for (int64_t i = 0; i < rows; ++i)
      row(layers, x + i * layers.width, layers.scale[types[i]], layers.shift[types[i]], hidden.data(), energy + i,
          gradient ? gradient + i * layers.width : nullptr);
  }
}

template void readout(const Readout<float>&, const float*, const int32_t*, int64_t, double*, float*, int);
template void readout(const Readout<double>&, const double*, const int32_t*, int64_t, double*, double*, int);

}  // namespace clebsch::cpu
