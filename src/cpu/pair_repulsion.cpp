#include "cpu/pair_repulsion.h"

#include <cmath>
#include <vector>

#include "core/errors.h"
#include "core/text_fields.h"

namespace clebsch::cpu {
namespace {

constexpr double kPower = 0.23, kLength = 0.46850;
constexpr double kWeights[4] = {0.02817, 0.28022, 0.50986, 0.18175};
constexpr double kRates[4] = {0.20162, 0.40290, 0.94229, 3.19980};

/// What depends on the two types alone.
struct Pair {
  double cutoff, strength, inverse_length;
};

std::vector<Pair> make_pairs(const ZblProblem& problem, const double* cutoffs, const double* charges, int types) {
  std::vector<Pair> pairs;
  for (int i = 0; i < types; ++i) {
    for (int j = 0; j < types; ++j) {
      pairs.push_back({cutoffs[i * types + j], problem.scale * charges[i] * charges[j],
                       (std::pow(charges[i], kPower) + std::pow(charges[j], kPower)) / kLength});
    }
  }
  return pairs;
}

double distance(const double* v) { return std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]); }

/// Energy of one edge and, unless null, its derivative by r. Requires 0 < r < cutoff.
double edge_energy(const Pair& pair, double p, double r, double* slope) {
  const double u = r * pair.inverse_length;
  double psi = 0, psi_slope = 0;
  for (int k = 0; k < 4; ++k) {
    const double term = kWeights[k] * std::exp(-kRates[k] * u);
    psi += term;
    psi_slope -= kRates[k] * term;
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

ZblProblem ZblProblem::parse(const std::string& text) {
  TextFields fields(text, "zbl");
  ZblProblem problem;
  problem.p = parse_real(fields.take("p"), "zbl problem, field 'p'");
  problem.scale = parse_real(fields.take("scale"), "zbl problem, field 'scale'");
  fields.finish();
  require(problem.p >= 2, "zbl problem, field 'p': expected at least 2, got {}", problem.p);
  return problem;
}

void pair_repulsion_forward(const ZblProblem& problem, const GraphView& graph, const double* cutoffs,
                            const double* charges, int types, double* energy, int threads) {
  const std::vector<Pair> pairs = make_pairs(problem, cutoffs, charges, types);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int32_t i = 0; i < graph.n_rows; ++i) {
    double sum = 0;
    for (int32_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      const Pair& pair = pairs[graph.types[i] * types + graph.types[graph.senders[e]]];
      const double r = distance(graph.edge_vec + 3 * static_cast<int64_t>(e));
      if (r < pair.cutoff) sum += edge_energy(pair, problem.p, r, nullptr);
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
      if (r < pair.cutoff) edge_energy(pair, problem.p, r, &slope);
      const double factor = grad_energy[i] * slope / r;
      for (int d = 0; d < 3; ++d) grad_edge_vec[3 * static_cast<int64_t>(e) + d] = factor * v[d];
    }
  }
}

}  // namespace clebsch::cpu
