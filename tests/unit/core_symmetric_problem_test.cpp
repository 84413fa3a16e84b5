#include "core/problem/symmetric_problem.h"

#include <gtest/gtest.h>

#include "core/errors.h"
#include "symmetric_reference.h"

namespace clebsch {
namespace {

std::string message(const std::string& text) {
  try {
    SymmetricProblem::parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const std::string& text, const std::string& part) {
  EXPECT_NE(message(text).find(part), std::string::npos) << text << " -> '" << message(text) << "'";
}

TEST(SymmetricProblem, ReadsItsText) {
  const auto p = SymmetricProblem::parse("symmetric in=8x0e+8x1o out=8x0e+8x1o terms=0,0.0,1.1,0.0.0.0;1,0.1;;3");
  EXPECT_EQ(p.channels, 8);
  EXPECT_EQ(p.components, 4);
  EXPECT_EQ(p.out_components, 4);
  ASSERT_EQ(p.monomials.size(), 7u);
  EXPECT_EQ(p.monomials[3].degree, 4);
  EXPECT_EQ(p.monomials[5].out, 1);
  EXPECT_EQ(p.monomials[5].factors[1], 1);
  EXPECT_EQ(p.monomials[6].out, 3);
  EXPECT_EQ(cached_symmetric_problem("symmetric in=1x0e out=1x0e terms=0"),
            cached_symmetric_problem("symmetric in=1x0e out=1x0e terms=0"));
}

TEST(SymmetricProblem, Refusals) {
  expect_refused("linear in=1x0e out=1x0e", "starts with 'symmetric'");
  expect_refused("symmetric in=1x0e out=1x0e", "field 'terms='");
  expect_refused("symmetric in=1x0e out=1x0e terms=0 more=1", "end of the text");
  expect_refused("symmetric in= out=1x0e terms=0", "field 'in': expected at least one block");
  expect_refused("symmetric in=1x0q out=1x0e terms=0", "field 'in'");
  expect_refused("symmetric in=0x0e out=0x0e terms=0", "field 'in': expected non-empty blocks");
  expect_refused("symmetric in=2x0e+2x0e out=2x0e terms=0", "field 'in': expected non-empty blocks");
  expect_refused("symmetric in=2x0e+3x1o out=2x0e terms=0", "field 'in': expected the same multiplicity");
  expect_refused("symmetric in=2x0e out=3x0e terms=0", "same multiplicity in 'in' and 'out', got 2 and 3");
  expect_refused("symmetric in=1x7e+1x7o+1x7e+1x7o+1x7e+1x7o+1x7e+1x7o+1x7e out=1x0e terms=0",
                 "at most 128 components");
  expect_refused("symmetric in=1x0e out=1x1o terms=0", "expected 3 lists of monomials, got 1");
  expect_refused("symmetric in=1x0e out=1x0e terms=0;0", "expected 1 lists of monomials, got 2");
  expect_refused("symmetric in=1x1o out=1x0e terms=0,3", "integer from 0 to 2, got '3'");
  expect_refused("symmetric in=1x1o out=1x0e terms=0,-1", "integer from 0 to 2, got '-1'");
  expect_refused("symmetric in=1x1o out=1x0e terms=0,", "integer from 0 to 2, got ''");
  expect_refused("symmetric in=1x1o out=1x0e terms=0..1", "integer from 0 to 2, got ''");
  expect_refused("symmetric in=1x1o out=1x0e terms=0x", "got '0x'");
  expect_refused("symmetric in=1x0e out=1x0e terms=0.0.0.0.0", "at most 4 factors");
  expect_refused("symmetric in=1x1o out=1x0e terms=1.0", "ascending order, got '1.0'");
  expect_refused("symmetric in=1x1o out=1x0e terms=1,0", "ascend by degree and factors, got '0'");
  expect_refused("symmetric in=1x1o out=1x0e terms=0.1,0.1", "ascend by degree and factors, got '0.1'");
  expect_refused("symmetric in=1x1o out=1x0e terms=0.1,2", "ascend by degree and factors, got '2'");
}

/// Every leaf is its monomial: head and tail together have the monomial's factors, in the monomial's component.
TEST(ProductPlan, HeadsTimesTailsAreTheMonomials) {
  const unsigned seed = reference::fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int correlation = 1; correlation <= kMaxCorrelation; ++correlation) {
    const auto p = SymmetricProblem::parse(
        reference::random_symmetric_text("2x0e+2x1o+2x2e", "2x0e+2x1o", correlation, 80, random));
    const ProductPlan& plan = p.plan;
    EXPECT_EQ(plan.leaves.size(), p.monomials.size());
    std::vector<int> seen(p.monomials.size());
    const auto append = [&](std::vector<int>& factors, int feature) {
      if (feature < 0) return;
      if (feature < plan.components) return factors.push_back(feature);
      factors.push_back(plan.pairs.at(feature - plan.components).a);
      factors.push_back(plan.pairs.at(feature - plan.components).b);
    };
    std::pair<int, int> last{-1, -1};
    for (const auto& group : plan.groups) {
      const std::pair<int, int> place{group.out, group.head};
      EXPECT_LT(last, place);
      last = place;
      EXPECT_LT(group.begin, group.end);
      for (int l = group.begin; l < group.end; ++l) {
        const auto& m = p.monomials.at(plan.leaves[l].coefficient);
        ++seen.at(plan.leaves[l].coefficient);
        std::vector<int> factors;
        append(factors, group.head);
        append(factors, plan.leaves[l].feature);
        std::sort(factors.begin(), factors.end());
        EXPECT_EQ(group.out, m.out);
        EXPECT_EQ(factors, std::vector<int>(m.factors.begin(), m.factors.begin() + m.degree));
      }
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  }
}

}  // namespace
}  // namespace clebsch
