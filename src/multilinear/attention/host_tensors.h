#pragma once
// What the passes of spherical attention on the CPU share: the rows of a call's tensors.
#include <algorithm>
#include <utility>

#include "multilinear/attention/spherical.h"
#include "multilinear/host_numbers.h"

namespace clebsch::attention {

/// Rows that a thread takes at a time, and parts of a head's rows at most: fixed, so that threads do not matter.
inline constexpr int64_t kRows = 32, kLeastRows = 256, kParts = 16;

struct Rows {
  int64_t first = 0, count = 0;
};

inline Rows rows_of(const Shape& shape, int64_t sequence, int64_t head, int64_t heads, int64_t length) {
  if (!shape.offsets) return {(sequence * heads + head) * length, length};
  return {head * length + shape.offsets[sequence], int64_t{shape.offsets[sequence + 1]} - shape.offsets[sequence]};
}

inline int64_t parts_of(int64_t rows) { return std::clamp<int64_t>(rows / kLeastRows, 1, kParts); }

/// Tensors of a call as arrays of T.
template <typename T>
struct HostTensors {
  const HostArguments& a;
  int64_t d = a.shape.d, dv = a.shape.dv, all = d + dv, group = a.shape.heads / a.shape.key_heads;

  const T* of(const void* tensor) const { return static_cast<const T*>(tensor); }
  Rows queries(int64_t sequence, int64_t head) const {
    return rows_of(a.shape, sequence, head, a.shape.heads, a.shape.queries);
  }
  Rows keys(int64_t sequence, int64_t head) const {
    return rows_of(a.shape, sequence, head, a.shape.key_heads, a.shape.keys);
  }
  const T* weights(int64_t sequence) const {
    if (!a.multiplicity) return nullptr;
    return of(a.multiplicity) + (a.shape.offsets ? int64_t{a.shape.offsets[sequence]} : sequence * a.shape.keys);
  }

  double norm(int64_t row) const {
    return a.number == kFloat64 ? static_cast<const double*>(a.norm)[row]
                                : static_cast<double>(static_cast<const float*>(a.norm)[row]);
  }
  void set_real(void* tensor, int64_t row, double value) const {
    if (a.number == kFloat64) {
      static_cast<double*>(tensor)[row] = value;
    } else {
      static_cast<float*>(tensor)[row] = static_cast<float>(value);
    }
  }

  /// c1 = 1 / norm, c2 = (grad_norm - grad . out / norm) / norm; zeros where the norm is zero.
  std::pair<double, double> coefficients(int64_t row) const {
    const double rho = norm(row);
    if (rho == 0.0) return {0.0, 0.0};
    double sum = 0.0;
    for (int64_t j = 0; j < dv; ++j) sum += to_double(of(a.grad)[row * dv + j]) * to_double(of(a.out)[row * dv + j]);
    double of_norm = 0.0;
    if (a.grad_norm) {
      of_norm = a.number == kFloat64 ? static_cast<const double*>(a.grad_norm)[row]
                                     : static_cast<double>(static_cast<const float*>(a.grad_norm)[row]);
    }
    return {1.0 / rho, (of_norm - sum / rho) / rho};
  }
};

/// Calls work with an object of Of<T>, T the type of the call's numbers.
template <template <typename> class Of, typename Work>
void with_numbers(const HostArguments& a, const Work& work) {
  if (a.number == kFloat64) return work(Of<double>{{a}});
  if (a.number == kFloat32) return work(Of<float>{{a}});
  if (a.number == kFloat16) return work(Of<Half>{{a}});
  work(Of<Brain>{{a}});
}

}  // namespace clebsch::attention
