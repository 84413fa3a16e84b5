// The generated symmetric contraction: plans, nested polynomials, and compilation without spills. Needs no GPU; the
// compiler's part is skipped without NVRTC.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "cuda/horner_tree.h"
#include "cuda/symmetric_contraction.h"
#include "nvrtc_needed.h"
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

class CudaSymmetric : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    CLEBSCH_NEEDS_NVRTC();
    ::setenv("CLEBSCH_CACHE_DIR", "", 1);  // what is tested is the compiler, not the user's cache
  }
};

TEST_P(CudaSymmetric, CompilesWithoutSpills) {
  DeviceLimits limits;
  limits.arch = GetParam();
  if (limits.arch == 120) limits.warps_per_multiprocessor = 48;
  EXPECT_EQ(compile(group_rows_source(), "group_rows", limits.arch).kernels.at(0).spill_bytes, 0);
  for (const char* name : {"mace-M", "test-uneven", "test-correlation-4"}) {
    const SymmetricProblem problem = named_symmetric_problem(name);
    for (const SymmetricPass pass : {SymmetricPass::forward, SymmetricPass::backward, SymmetricPass::tangent}) {
      if (pass == SymmetricPass::tangent && limits.arch != 90) continue;
      const CompiledSymmetric made = compile_symmetric(problem, pass, Scalar::f32, limits);
      const KernelResources& kernel = made.cubin.kernels.at(0);
      const std::string label = std::string(name) + ", " + made.schedule.str() + ", " +
                                std::to_string(kernel.registers) + " registers, sm_" + std::to_string(limits.arch);
      std::cout << label << "\n";
      EXPECT_EQ(kernel.name, symmetric_entry(pass)) << label;
      EXPECT_EQ(kernel.spill_bytes, 0) << label;
    }
  }
  const CompiledSymmetric f64 =
      compile_symmetric(named_symmetric_problem("test-uneven"), SymmetricPass::backward, Scalar::f64, limits);
  EXPECT_EQ(f64.cubin.kernels.at(0).spill_bytes, 0) << f64.schedule.str();
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaSymmetric, ::testing::Values(80, 90, 120));

}  // namespace
}  // namespace clebsch::cuda
