// The derivative of edge_embedding's backward pass on the CPU: that pass with dual numbers, whose second part is the
// change along the incoming direction. The Hessian is symmetric, so that change is the derivative wanted.
#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "core/math/harmonics.h"
#include "core/math/harmonics_recursion.h"
#include "cpu/tensor_product_conv.h"

namespace clebsch::cpu {
namespace {

/// A number and its change.
struct Dual {
  double v, d;
  constexpr Dual(double value = 0, double change = 0) : v(value), d(change) {}
  friend constexpr Dual operator+(Dual a, Dual b) { return {a.v + b.v, a.d + b.d}; }
  friend constexpr Dual operator-(Dual a, Dual b) { return {a.v - b.v, a.d - b.d}; }
  friend constexpr Dual operator-(Dual a) { return {-a.v, -a.d}; }
  friend constexpr Dual operator*(Dual a, Dual b) { return {a.v * b.v, a.d * b.v + a.v * b.d}; }
  friend constexpr Dual operator/(Dual a, Dual b) { return {a.v / b.v, (a.d - a.v / b.v * b.d) / b.v}; }
  constexpr Dual& operator+=(Dual b) { return *this = *this + b; }
};
Dual root(Dual a) {
  const double s = std::sqrt(a.v);
  return {s, 0.5 * a.d / s};
}
Dual power(Dual a, double p) {
  const double below = std::pow(a.v, p - 1);
  return {below * a.v, p * below * a.d};
}
Dual sine(Dual a) { return {std::sin(a.v), std::cos(a.v) * a.d}; }
Dual cosine(Dual a) { return {std::cos(a.v), -std::sin(a.v) * a.d}; }

/// Harmonics of a direction and the gradient of grad . Y with respect to the vector; L counts down to the degree.
template <int L = kMaxDegree>
void harmonics_of(int lmax, const Dual* n, Dual inverse_r, const Dual* grad, Dual* values, Dual* out) {
  if constexpr (L > 0) {
    if (lmax < L) return harmonics_of<L - 1>(lmax, n, inverse_r, grad, values, out);
  }
  harmonics::forward<Dual, L>(n[0], n[1], n[2], values);
  harmonics::backward<Dual, L>(n[0], n[1], n[2], inverse_r, grad, out);
}

}  // namespace

template <typename T>
void edge_embedding_double_backward(const Problem& problem, const GraphView& graph, const double* cutoffs,
                                    const double* basis, int types, int32_t rows, const T* grad_harmonics,
                                    const T* grad_radial_basis, const double* from_edge_vec, T* harmonics,
                                    T* radial_basis, double* grad_edge_vec, int threads) {
  require(problem.radial.has_value() && rows >= 0 && rows <= graph.n_rows,
          "edge_embedding: expected a radial description and 0 <= rows <= {}, got {}", graph.n_rows, rows);
  const RadialDescription& radial = *problem.radial;
  const int64_t size = radial.basis_size(), components = harmonics_count(problem.lmax_in2);
  const int64_t done = graph.row_ptr[rows], capacity = graph.n_edges;
  std::fill(harmonics + done * components, harmonics + capacity * components, T(0));
  std::fill(radial_basis + done * size, radial_basis + capacity * size, T(0));
  std::fill(grad_edge_vec + 3 * done, grad_edge_vec + 3 * capacity, 0.0);
  const double p = radial.cutoff_p, a = (p + 1) * (p + 2) / 2, b = p * (p + 2), c = p * (p + 1) / 2;
#pragma omp parallel for schedule(static) num_threads(std::max(threads, 1))
  for (int32_t receiver = 0; receiver < rows; ++receiver) {
    for (int64_t edge = graph.row_ptr[receiver]; edge < graph.row_ptr[receiver + 1]; ++edge) {
      Dual v[3], n[3];
      for (int k = 0; k < 3; ++k) v[k] = {graph.edge_vec[3 * edge + k], from_edge_vec[3 * edge + k]};
      const Dual r = root(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
      for (int k = 0; k < 3; ++k) n[k] = v[k] / r;
      const double cutoff =
          cutoffs[static_cast<int64_t>(graph.types[receiver]) * types + graph.types[graph.senders[edge]]];
      Dual slope = 0;
      std::fill_n(radial_basis + edge * size, size, T(0));
      if (!(r.v >= cutoff)) {
        const Dual x = r / cutoff, below = power(x, p - 1);
        const Dual f = 1 - below * x * (a - x * (b - x * c));
        const Dual f_slope = -below * (a * p - x * (b * (p + 1) - x * c * (p + 2)));
        for (int64_t m = 0; m < size; ++m) {
          const Dual u = basis[m] * x, s = sine(u) / x;
          const Dual derivative = ((basis[m] * cosine(u) - s) / x * f + s * f_slope) * radial.prefactor / cutoff;
          slope += derivative * static_cast<double>(grad_radial_basis[edge * size + m]);
          radial_basis[edge * size + m] = static_cast<T>(derivative.v * r.d);
        }
      }
      Dual grad[harmonics_count(kMaxDegree)], values[harmonics_count(kMaxDegree)], out[3];
      for (int64_t m = 0; m < components; ++m) grad[m] = static_cast<double>(grad_harmonics[edge * components + m]);
      for (int k = 0; k < 3; ++k) out[k] = slope * n[k];
      harmonics_of(problem.lmax_in2, n, 1 / r, grad, values, out);
      for (int64_t m = 0; m < components; ++m) harmonics[edge * components + m] = static_cast<T>(values[m].d);
      for (int k = 0; k < 3; ++k) grad_edge_vec[3 * edge + k] = out[k].d;
    }
  }
}

template void edge_embedding_double_backward(const Problem&, const GraphView&, const double*, const double*, int,
                                             int32_t, const float*, const float*, const double*, float*, float*,
                                             double*, int);
template void edge_embedding_double_backward(const Problem&, const GraphView&, const double*, const double*, int,
                                             int32_t, const double*, const double*, const double*, double*, double*,
                                             double*, int);

}  // namespace clebsch::cpu
