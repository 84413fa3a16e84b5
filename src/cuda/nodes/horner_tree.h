#pragma once
// A polynomial in nested form: what the generated symmetric contraction evaluates.
#include <cstdint>
#include <vector>

#include "core/problem/symmetric_problem.h"

namespace clebsch::cuda {

/// p = coefficient + sum over children of x[factor] * child. A child without children is a leaf: coefficient *
/// x[factor], one multiply-add; any other costs one more for its factor. Nothing but the x and one sum a level is kept,
/// so the evaluation lives in registers.
struct HornerNode {
  int32_t factor = -1;       ///< component that multiplies this node; -1 at the root
  int32_t coefficient = -1;  ///< index of the monomial that ends here, or -1
  std::vector<HornerNode> children;
  bool leaf() const { return children.empty(); }
};

/// One root for each output component. Factors are chosen greedily, always the component that most of the monomials
/// left contain; the result depends on the problem alone.
std::vector<HornerNode> horner_trees(const SymmetricProblem& problem);

/// Nodes below the roots: leaves, and those with children.
struct HornerCounts {
  int leaves = 0, inner = 0, depth = 0;
};
HornerCounts count_nodes(const std::vector<HornerNode>& roots);

}  // namespace clebsch::cuda
