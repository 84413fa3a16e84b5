#include "cuda/plan/path_terms.h"

#include <cmath>
#include <map>

#include "core/math/coupling.h"

namespace clebsch::cuda {
namespace {

/// The most frequent magnitude among the coefficients; the smallest one wins a tie, so that the choice is stable.
double common_magnitude(const std::vector<CouplingEntry>& entries) {
  std::map<double, int> counts;
  for (const CouplingEntry& entry : entries) {
    const double size = std::abs(entry.value);
    auto near = counts.lower_bound(size * (1 - 1e-12));
    if (near != counts.end() && near->first <= size * (1 + 1e-12)) {
      ++near->second;
    } else {
      counts[size] = 1;
    }
  }
  double best = 1.0;
  int most = 0;
  for (const auto& [size, count] : counts) {
    if (count > most) {
      most = count;
      best = size;
    }
  }
  return best;
}

}  // namespace

bool shares_output(const Problem& problem, int path) {
  int writers = 0;
  for (const Path& other : problem.paths) writers += other.out == problem.paths[path].out;
  return writers > 1;
}

PathTerms path_terms(const Problem& problem, int path) {
  const Path& p = problem.paths[path];
  const int l1 = problem.in1[p.in1].ir.l, l2 = problem.in2[p.in2].ir.l, l3 = problem.out[p.out].ir.l;
  const std::vector<CouplingEntry>& entries = wigner_3j(l1, l2, l3);
  PathTerms terms{2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1, 1.0, {}, static_cast<int>(entries.size())};
  // A zero coefficient keeps its terms: the path must still give (zero) gradients.
  const bool fold = !shares_output(problem, path) && p.coefficient != 0.0;
  double unit = 1.0;
  if (fold) {
    unit = common_magnitude(entries);
    terms.scale = unit * p.coefficient;
  }
  std::map<std::pair<int, int>, PairTerms> pairs;
  for (const CouplingEntry& entry : entries) {
    double value = fold ? entry.value / unit : entry.value * p.coefficient;
    if (std::abs(std::abs(value) - 1.0) < 1e-12) value = value > 0 ? 1.0 : -1.0;
    PairTerms& pair = pairs.try_emplace({entry.m1, entry.m2}, PairTerms{entry.m1, entry.m2, {}}).first->second;
    pair.outs.emplace_back(entry.m3, value);
  }
  for (auto& item : pairs) terms.pairs.push_back(std::move(item.second));
  return terms;
}

int forward_cost(const PathTerms& terms) {
  int cost = terms.n1 + terms.nonzeros + 2;
  for (const PairTerms& pair : terms.pairs) cost += !pair.direct();
  return cost;
}

int backward_cost(const PathTerms& terms) {
  int cost = 3 * terms.n1 + 2 * static_cast<int>(terms.pairs.size()) + 4;
  for (const PairTerms& pair : terms.pairs) cost += pair.direct() ? 0 : static_cast<int>(pair.outs.size());
  return cost;
}

int double_backward_cost(const PathTerms& terms) {
  // The cost of two backward passes, with Y and with its incoming gradient, of which one makes no dY; then the cost of
  // the products that feed the output.
  int cost = 7 * terms.n1 + 5 * static_cast<int>(terms.pairs.size()) + terms.nonzeros + 6;
  for (const PairTerms& pair : terms.pairs) cost += pair.direct() ? 0 : static_cast<int>(pair.outs.size());
  return cost;
}

}  // namespace clebsch::cuda
