// The generated symmetric contraction: nested polynomials. Compilation is in cuda_compile_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cuda/nodes/horner_tree.h"
#include "symmetric_problems.h"
#include "symmetric_reference.h"

namespace clebsch::cuda {
namespace {

/// Adds value * (product of the factors on the way) of every monomial, as (coefficient index -> sorted factors).
void collect(const HornerNode& node, std::vector<int32_t> factors, std::vector<std::vector<int32_t>>& found) {
  if (node.factor >= 0) factors.push_back(node.factor);
  if (node.coefficient >= 0) {
    std::sort(factors.begin(), factors.end());
    ASSERT_TRUE(found.at(node.coefficient).empty());
    found.at(node.coefficient) = factors;
  }
  for (const HornerNode& child : node.children) collect(child, factors, found);
}

TEST(HornerTree, HoldsEveryMonomialOnce) {
  for (const char* name : {"mace-S", "mace-L", "test-uneven", "test-correlation-4", "test-linear"}) {
    const SymmetricProblem problem = named_symmetric_problem(name);
    const auto roots = horner_trees(problem);
    ASSERT_EQ(roots.size(), static_cast<size_t>(problem.out_components));
    for (int32_t w = 0; w < problem.out_components; ++w) {
      std::vector<std::vector<int32_t>> found(problem.monomials.size());
      collect(roots[w], {}, found);
      for (size_t k = 0; k < found.size(); ++k) {
        const auto& m = problem.monomials[k];
        const std::vector<int32_t> factors(m.factors.begin(), m.factors.begin() + m.degree);
        EXPECT_EQ(found[k], m.out == w ? factors : std::vector<int32_t>{}) << name << " " << k;
      }
    }
  }
}

TEST(HornerTree, SmallerThanOneMultiplicationAFactor) {
  const HornerCounts counts = count_nodes(horner_trees(named_symmetric_problem("mace-M")));
  EXPECT_EQ(counts.depth, 3);
  EXPECT_LE(counts.leaves + counts.inner, 610);  // 410 monomials of degree up to 3
}

}  // namespace
}  // namespace clebsch::cuda
