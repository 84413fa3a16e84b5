#include "core/math/coupling.h"

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "core/errors.h"
#include "core/math/irreps.h"

namespace clebsch {
namespace {

using Real = long double;  // 64-bit mantissa: the results below are right to the last bits of a double
using Complex = std::complex<Real>;

int64_t binomial(int n, int k) {
  if (k < 0 || k > n) return 0;
  int64_t value = 1;
  for (int i = 1; i <= k; ++i) value = value * (n - k + i) / i;  // exact at every step
  return value;
}

Real factorial(int n) {
  Real value = 1;
  for (int i = 2; i <= n; ++i) value *= i;
  return value;
}

// <j1 m1 j2 m2 | j3 m1+m2> up to a factor that depends on j1, j2, j3 alone (the tensor is normalised afterwards).
// Racah's formula (Varshalovich et al., Quantum Theory of Angular Momentum, eq. 8.2.1(3)) with its alternating sum
// written in binomials: the sum is then an exact integer and nothing cancels in floating point.
Real clebsch_gordan(int j1, int m1, int j2, int m2, int j3) {
  const int m3 = m1 + m2;
  int64_t sum = 0;
  for (int k = 0; k <= j1 + j2 - j3; ++k) {
    const int64_t term =
        binomial(j1 + j2 - j3, k) * binomial(j1 - j2 + j3, j1 - m1 - k) * binomial(j2 - j1 + j3, j2 + m2 - k);
    sum += k % 2 == 0 ? term : -term;
  }
  Real weight = 1;
  for (int n : {j1 + m1, j1 - m1, j2 + m2, j2 - m2, j3 + m3, j3 - m3}) weight *= std::sqrt(factorial(n));
  return weight * static_cast<Real>(sum);
}

// Row m of the change of basis from real to complex components: columns and values of its (at most two) entries.
// e3nn.o3._wigner.change_basis_real_to_complex, with its factor (-i)^l that makes the real tensor real.
struct BasisRow {
  int count;
  std::array<int, 2> column;
  std::array<Complex, 2> value;
};

BasisRow real_to_complex(int l, int m) {
  static const Complex powers[4] = {{1, 0}, {0, -1}, {-1, 0}, {0, 1}};
  const Complex phase = powers[l % 4];
  if (m == 0) return {1, {l, l}, {phase, Complex(0)}};
  const Real half = std::sqrt(Real(0.5));
  const int a = std::abs(m);
  const Real sign = m > 0 && a % 2 == 1 ? -1 : 1;
  return {2, {l + a, l - a}, {phase * (sign * half), phase * Complex(0, m < 0 ? -half : sign * half)}};
}

std::vector<CouplingEntry> compute(int l1, int l2, int l3) {
  const int d1 = 2 * l1 + 1, d2 = 2 * l2 + 1, d3 = 2 * l3 + 1;
  std::vector<Complex> tensor(static_cast<size_t>(d1) * d2 * d3);
  for (int m1 = -l1; m1 <= l1; ++m1) {
    for (int m2 = -l2; m2 <= l2; ++m2) {
      if (std::abs(m1 + m2) > l3) continue;
      const Real c = clebsch_gordan(l1, m1, l2, m2, l3);
      const BasisRow q1 = real_to_complex(l1, m1), q2 = real_to_complex(l2, m2), q3 = real_to_complex(l3, m1 + m2);
      for (int i = 0; i < q1.count; ++i) {
        for (int j = 0; j < q2.count; ++j) {
          for (int k = 0; k < q3.count; ++k) {
            tensor[(static_cast<size_t>(q1.column[i]) * d2 + q2.column[j]) * d3 + q3.column[k]] +=
                q1.value[i] * q2.value[j] * std::conj(q3.value[k]) * c;
          }
        }
      }
    }
  }
  Real norm = 0;
  for (const Complex& value : tensor) norm += value.real() * value.real();
  norm = std::sqrt(norm);
  std::vector<CouplingEntry> entries;
  for (int m1 = 0; m1 < d1; ++m1) {
    for (int m2 = 0; m2 < d2; ++m2) {
      for (int m3 = 0; m3 < d3; ++m3) {
        const Real value = tensor[(static_cast<size_t>(m1) * d2 + m2) * d3 + m3].real() / norm;
        // Entries that the symmetry makes zero are dropped. True entries are far larger than this limit (above 1e-4 for
        // l <= 7).
        if (std::abs(value) >= Real(1e-12)) entries.push_back({m1, m2, m3, static_cast<double>(value)});
      }
    }
  }
  return entries;
}

}  // namespace

const std::vector<CouplingEntry>& wigner_3j(int l1, int l2, int l3) {
  constexpr int kDegrees = kMaxDegree + 1;
  const auto valid = [](int l) { return l >= 0 && l <= kMaxDegree; };
  require(valid(l1) && valid(l2) && valid(l3) && l3 >= std::abs(l1 - l2) && l3 <= l1 + l2,
          "wigner_3j: expected degrees of 0 to {} with |l1 - l2| <= l3 <= l1 + l2, got {}, {}, {}", kMaxDegree, l1, l2,
          l3);
  struct Slot {
    std::once_flag once;
    std::vector<CouplingEntry> entries;
  };
  // The cache is never destroyed, because kernels may still hold references into it while the process ends.
  static auto* slots = new std::array<Slot, kDegrees * kDegrees * kDegrees>;
  Slot& slot = (*slots)[(l1 * kDegrees + l2) * kDegrees + l3];
  std::call_once(slot.once, [&] { slot.entries = compute(l1, l2, l3); });
  return slot.entries;
}

}  // namespace clebsch
