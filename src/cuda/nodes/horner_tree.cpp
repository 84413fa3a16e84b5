#include "cuda/nodes/horner_tree.h"

#include <algorithm>
#include <map>

namespace clebsch::cuda {
namespace {

struct Term {
  std::vector<int32_t> factors;  ///< those still to be divided out
  int32_t coefficient;
};

HornerNode build(int32_t factor, std::vector<Term> terms) {
  HornerNode node;
  node.factor = factor;
  std::vector<Term> left;
  for (Term& term : terms) {
    if (term.factors.empty()) {
      node.coefficient = term.coefficient;
    } else {
      left.push_back(std::move(term));
    }
  }
  while (!left.empty()) {
    std::map<int32_t, int> counts;
    for (const Term& term : left) {
      for (size_t i = 0; i < term.factors.size(); ++i) {
        if (i == 0 || term.factors[i] != term.factors[i - 1]) ++counts[term.factors[i]];
      }
    }
    const int32_t best = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                           return a.second < b.second;
                         })->first;
    std::vector<Term> taken, rest;
    for (Term& term : left) {
      const auto at = std::find(term.factors.begin(), term.factors.end(), best);
      if (at == term.factors.end()) {
        rest.push_back(std::move(term));
      } else {
        term.factors.erase(at);
        taken.push_back(std::move(term));
      }
    }
    node.children.push_back(build(best, std::move(taken)));
    left = std::move(rest);
  }
  return node;
}

void count(const HornerNode& node, int depth, HornerCounts& counts) {
  counts.depth = std::max(counts.depth, depth);
  for (const HornerNode& child : node.children) {
    ++(child.leaf() ? counts.leaves : counts.inner);
    count(child, depth + 1, counts);
  }
}

}  // namespace

std::vector<HornerNode> horner_trees(const SymmetricProblem& problem) {
  std::vector<std::vector<Term>> terms(static_cast<size_t>(problem.out_components));
  for (size_t k = 0; k < problem.monomials.size(); ++k) {
    const auto& m = problem.monomials[k];
    terms[static_cast<size_t>(m.out)].push_back(
        {{m.factors.begin(), m.factors.begin() + m.degree}, static_cast<int32_t>(k)});
  }
  std::vector<HornerNode> roots;
  for (auto& list : terms) roots.push_back(build(-1, std::move(list)));
  return roots;
}

HornerCounts count_nodes(const std::vector<HornerNode>& roots) {
  HornerCounts counts;
  for (const HornerNode& root : roots) count(root, 0, counts);
  return counts;
}

}  // namespace clebsch::cuda
