#include "cpu/pair_repulsion.h"

#include <cmath>
#include <vector>

namespace clebsch::cpu {
namespace {

/// What depends on the two types alone.
struct Pair {
  double cutoff, strength, inverse_length;
};

std::vector<Pair> make_pairs(const ZblProblem& problem, const double* cutoffs, const double* charges, int types) {
  std::vector<Pair> pairs;
  for (int i = 0; i < types; ++i) {
    for (int j = 0; j < types; ++j) {
      pairs.push_back(
          {cutoffs[i * types + j], problem.scale * charges[i] * charges[j],
           (std::pow(charges[i], problem.exponent) + std::pow(charges[j], problem.exponent)) / problem.length});
    }
  }
  return pairs;
}

double distance(const double* v) { return std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]); }

/// Energy of one edge and, unless null, its derivative by r. Requires 0 < r < cutoff.
double edge_energy(const Pair& pair, const ZblProblem& problem, double r, double* slope) {
  const double p = problem.p;
  const double u = r * pair.inverse_length;
  double psi = 0, psi_slope = 0;
  for (int k = 0; k < 4; ++k) {
    const double term = problem.weights[k] * std::exp(-problem.rates[k] * u);
    psi += term;
    psi_slope -= problem.rates[k] * term;
  }
  const double x = r / pair.cutoff, xp = std::pow(x, p);
  const double f = 1 - xp * (0.5 * (p + 1) * (p + 2) - x * (p * (p + 2) - x * 0.5 * p * (p + 1)));
  const double bare = pair.strength / r;
  if (slope) {
    const double f_slope = -0.5 * p * (p + 1) * (p + 2) * xp / x * (1 - x) * (1 - x) / pair.cutoff;
    *slope = bare * (psi * f_slope + f * (psi_slope * pair.inverse_length - psi / r));
  }
  return bare * psi * f;
}

}  // namespace

void pair_repulsion_forward(const ZblProblem& problem, const GraphView& graph, const double* cutoffs,
                            const double* charges, int types, double* energy, int threads) {
  const std::vector<Pair> pairs = make_pairs(problem, cutoffs, charges, types);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int32_t i = 0; i < graph.n_rows; ++i) {
    double sum = 0;
    for (int32_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      const Pair& pair = pairs[graph.types[i] * types + graph.types[graph.senders[e]]];
      const double r = distance(graph.edge_vec + 3 * static_cast<int64_t>(e));
      if (r < pair.cutoff) sum += edge_energy(pair, problem, r, nullptr);
    }
    energy[i] = sum;
  }
}

void pair_repulsion_backward(const ZblProblem& problem, const GraphView& graph, const double* cutoffs,
                             const double* charges, int types, const double* grad_energy, double* grad_edge_vec,
                             int threads) {
  const std::vector<Pair> pairs = make_pairs(problem, cutoffs, charges, types);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int32_t i = 0; i < graph.n_rows; ++i) {
    for (int32_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      const Pair& pair = pairs[graph.types[i] * types + graph.types[graph.senders[e]]];
      const double* v = graph.edge_vec + 3 * static_cast<int64_t>(e);
      const double r = distance(v);
      double slope = 0;
      if (r < pair.cutoff) edge_energy(pair, problem, r, &slope);
      const double factor = grad_energy[i] * slope / r;
      for (int d = 0; d < 3; ++d) grad_edge_vec[3 * static_cast<int64_t>(e) + d] = factor * v[d];
    }
  }
}

}  // namespace clebsch::cpu
