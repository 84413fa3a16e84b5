// clebsch::edge_embedding on the CPU: harmonics and radial basis of every edge.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/errors.h"
#include "core/math/harmonics.h"
#include "cpu/tensor_product_conv.h"

namespace clebsch::cpu {
namespace {

/// Polynomial cutoff f(x) of degree p and its derivative (core/problem/problem.h RadialDescription), for 0 <= x < 1.
struct Cutoff {
  double value, slope;
};
Cutoff polynomial_cutoff(double x, double p) {
  const double power = std::pow(x, p - 1), a = (p + 1) * (p + 2) / 2, b = p * (p + 2), c = p * (p + 1) / 2;
  return {1 - power * x * (a - x * (b - x * c)), -power * (a * p - x * (b * (p + 1) - x * c * (p + 2)))};
}

struct EdgeGeometry {
  bool inside;
  double r, cutoff, x, y, z;
};
EdgeGeometry edge_geometry(const GraphView& graph, const double* cutoffs, int types, int32_t receiver, int32_t edge) {
  const double* vec = graph.edge_vec + 3 * static_cast<int64_t>(edge);
  const double r = std::sqrt(vec[0] * vec[0] + vec[1] * vec[1] + vec[2] * vec[2]);
  const double cutoff = cutoffs[static_cast<int64_t>(graph.types[receiver]) * types + graph.types[graph.senders[edge]]];
  return {!(r >= cutoff), r, cutoff, vec[0] / r, vec[1] / r, vec[2] / r};
}

const RadialDescription& radial_of(const Problem& problem, const GraphView& graph, int32_t rows) {
  require(problem.radial.has_value(), "edge_embedding: the problem has no radial description: {}", problem.str());
  require(problem.radial->plain(), "edge_embedding: expected a plain bessel radial part, got {}", problem.str());
  require(rows >= 0 && rows <= graph.n_rows, "edge_embedding: expected 0 <= rows <= {}, got {}", graph.n_rows, rows);
  return *problem.radial;
}

}  // namespace

template <typename T>
void edge_embedding_forward(const Problem& problem, const GraphView& graph, const double* cutoffs, const double* basis,
                            int types, int32_t rows, T* harmonics, T* radial_basis, int threads) {
  const RadialDescription& radial = radial_of(problem, graph, rows);
  const int64_t size = radial.basis_size(), components = harmonics_count(problem.lmax_in2);
  const int64_t done = graph.row_ptr[rows], capacity = graph.n_edges;
  std::fill(harmonics + done * components, harmonics + capacity * components, T(0));
  std::fill(radial_basis + done * size, radial_basis + capacity * size, T(0));
#pragma omp parallel for schedule(static) num_threads(std::max(threads, 1))
  for (int32_t receiver = 0; receiver < rows; ++receiver) {
    for (int32_t edge = graph.row_ptr[receiver]; edge < graph.row_ptr[receiver + 1]; ++edge) {
      const EdgeGeometry g = edge_geometry(graph, cutoffs, types, receiver, edge);
      double values[harmonics_count(kMaxDegree)];
      spherical_harmonics(problem.lmax_in2, g.x, g.y, g.z, values);
      for (int64_t m = 0; m < components; ++m) harmonics[edge * components + m] = static_cast<T>(values[m]);
      T* row = radial_basis + edge * size;
      if (!g.inside) {
        std::fill_n(row, size, T(0));
        continue;
      }
      const double x = g.r / g.cutoff, factor = radial.prefactor / x * polynomial_cutoff(x, radial.cutoff_p).value;
      for (int64_t n = 0; n < size; ++n) row[n] = static_cast<T>(factor * std::sin(basis[n] * x));
    }
  }
}

template <typename T>
void edge_embedding_backward(const Problem& problem, const GraphView& graph, const double* cutoffs, const double* basis,
                             int types, int32_t rows, const T* grad_harmonics, const T* grad_radial_basis,
                             double* grad_edge_vec, int threads) {
  const RadialDescription& radial = radial_of(problem, graph, rows);
  const int64_t size = radial.basis_size(), components = harmonics_count(problem.lmax_in2);
  std::fill(grad_edge_vec + 3 * static_cast<int64_t>(graph.row_ptr[rows]), grad_edge_vec + 3 * graph.n_edges, 0.0);
#pragma omp parallel for schedule(static) num_threads(std::max(threads, 1))
  for (int32_t receiver = 0; receiver < rows; ++receiver) {
    for (int32_t edge = graph.row_ptr[receiver]; edge < graph.row_ptr[receiver + 1]; ++edge) {
      const EdgeGeometry g = edge_geometry(graph, cutoffs, types, receiver, edge);
      double grad[harmonics_count(kMaxDegree)], slope = 0;
      for (int64_t m = 0; m < components; ++m) grad[m] = static_cast<double>(grad_harmonics[edge * components + m]);
      if (g.inside) {
        const double x = g.r / g.cutoff;
        const Cutoff f = polynomial_cutoff(x, radial.cutoff_p);
        for (int64_t n = 0; n < size; ++n) {
          const double b = basis[n], sine = std::sin(b * x), cosine = std::cos(b * x);
          const double derivative = (b * cosine - sine / x) / x * f.value + sine / x * f.slope;
          slope += radial.prefactor * derivative / g.cutoff * static_cast<double>(grad_radial_basis[edge * size + n]);
        }
      }
      double* out = grad_edge_vec + 3 * static_cast<int64_t>(edge);
      out[0] = slope * g.x;
      out[1] = slope * g.y;
      out[2] = slope * g.z;
      spherical_harmonics_backward(problem.lmax_in2, g.x, g.y, g.z, 1.0 / g.r, grad, out);
    }
  }
}

template void edge_embedding_forward(const Problem&, const GraphView&, const double*, const double*, int, int32_t,
                                     float*, float*, int);
template void edge_embedding_forward(const Problem&, const GraphView&, const double*, const double*, int, int32_t,
                                     double*, double*, int);
template void edge_embedding_backward(const Problem&, const GraphView&, const double*, const double*, int, int32_t,
                                      const float*, const float*, double*, int);
template void edge_embedding_backward(const Problem&, const GraphView&, const double*, const double*, int, int32_t,
                                      const double*, const double*, double*, int);

}  // namespace clebsch::cpu
