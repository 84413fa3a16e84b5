// Interaction kernels of the models' problems for three architectures: complete plans, no spills in fp32, resources as
// planned. Needs NVRTC (skipped without), no GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "core/errors.h"
#include "core/registry.h"
#include "cuda/interaction_kernels.h"
#include "cuda/kernel_compiler.h"
#include "cuda/known_devices.h"

namespace clebsch::cuda {
namespace {

KernelSource generate(const Problem& problem, int variant, Scalar scalar, const DeviceLimits& limits,
                      const ScheduleOptions& options = {}) {
  InteractionOutputs outputs;
  outputs.deterministic = variant == 1;
  return variant == 0 ? interaction_forward_source(problem, scalar, limits, options)
                      : interaction_backward_source(problem, scalar, outputs, limits, options);
}

class CudaInteractionCompile : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string reason;
    if (!nvrtc_available(&reason)) GTEST_SKIP() << reason;
    ::setenv("CLEBSCH_CACHE_DIR", "", 1);  // what is tested is the compiler, not the user's cache
  }
};

TEST_P(CudaInteractionCompile, KernelsFitWithoutSpills) {
  const DeviceLimits limits = limits_of_architecture(GetParam());
  std::vector<std::string> names{"nequip-S", "nequip-M", "nequip-water", "mace-M"};
  if (GetParam() == 90) names.insert(names.end(), {"nequip-L", "mace-l1", "mace-L"});
  for (const std::string& name : names) {
    const auto problem = cached_problem(named_problem(name).problem);
    for (int variant : {0, 1, 2}) {
      if (variant == 1 && name != "mace-M") continue;
      const auto plan = [&](const ScheduleOptions& options) {
        return generate(*problem, variant, Scalar::f32, limits, options);
      };
      const CompiledKernel compiled = compile_without_spills(plan, {}, limits.arch);
      const Schedule& schedule = compiled.source.schedule;
      const std::string label = name + ", variant " + std::to_string(variant) + ": " + schedule.str();
      ASSERT_EQ(compiled.cubin.kernels.size(), 1u) << label;
      const KernelResources& kernel = compiled.cubin.kernels[0];
      EXPECT_EQ(kernel.name, compiled.source.name);
      EXPECT_EQ(kernel.spill_bytes, 0) << label;
      EXPECT_LE(kernel.registers * schedule.threads() * schedule.min_blocks, limits.registers_per_multiprocessor)
          << label;
      EXPECT_LE(kernel.shared_bytes, limits.shared_per_block) << label;
      EXPECT_LE(kernel.shared_bytes, table_shared_bytes(*problem, schedule) + 64) << label;
      EXPECT_LE((kernel.shared_bytes + 1024) * schedule.min_blocks, limits.shared_per_multiprocessor) << label;
      EXPECT_GE(schedule.min_blocks * schedule.warps(), 8) << label;  // enough to hide memory
    }
  }
}

TEST_P(CudaInteractionCompile, DoublePrecisionAndSumsCompile) {
  const DeviceLimits limits = limits_of_architecture(GetParam());
  const auto problem = cached_problem(named_problem("test-unsorted").problem);
  const KernelSource forward = generate(*problem, 0, Scalar::f64, limits);
  const KernelSource backward = generate(*problem, 1, Scalar::f64, limits);
  const std::vector<Cubin> cubins = compile_all({{forward.name, forward.source},
                                                 {backward.name, backward.source},
                                                 {"sums", interaction_sums_source(*problem, backward.schedule)}},
                                                limits.arch);
  EXPECT_EQ(cubins[2].kernels.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaInteractionCompile, ::testing::Values(80, 90, 120));

/// Everything the generator is asked for in the registry has a plan that names each path and slice once.
TEST(CudaInteractionPlan, EveryPathAndSliceBelongsToExactlyOneUnit) {
  for (const NamedProblem& named : named_problems()) {
    const auto problem = cached_problem(named.problem);
    if (!problem->radial) continue;
    for (int variant : {0, 1}) {
      for (Scalar scalar : {Scalar::f32, Scalar::f64}) {
        const KernelSource kernel = generate(*problem, variant, scalar, {});
        EXPECT_EQ(kernel.source, generate(*problem, variant, scalar, {}).source) << named.name;
        EXPECT_EQ(kernel.source.find("#include"), std::string::npos) << named.name;
        const Schedule& schedule = kernel.schedule;
        EXPECT_EQ(static_cast<int>(schedule.units.size()), schedule.units_per_launch() * schedule.launches);
        EXPECT_LE(schedule.threads(), 1024) << named.name;
        EXPECT_LE(schedule.receivers_per_block, 15) << named.name;  // one named barrier a receiver
        EXPECT_GE(schedule.chunk, 32) << named.name;
        EXPECT_LE(schedule.chunk, 255) << named.name;  // a key's place has eight bits
        std::map<std::pair<int, int>, int> count;
        size_t expected = 0;
        for (const Unit& unit : schedule.units) {
          for (const Tile& tile : schedule.kinds[static_cast<size_t>(unit.kind)].tiles) {
            for (int path : tile.paths) ++count[{path, unit.first_slice + tile.slice}];
          }
        }
        for (size_t path = 0; path < problem->paths.size(); ++path) {
          const int64_t slices = (problem->in1[problem->paths[path].in1].mul + 31) / 32;
          for (int slice = 0; slice < slices; ++slice, ++expected) {
            EXPECT_EQ((count[{static_cast<int>(path), slice}]), 1) << named.name << " path " << path;
          }
        }
        EXPECT_EQ(count.size(), expected) << named.name;
      }
    }
  }
}

TEST(CudaInteractionPlan, RefusesProblemsWithoutRadialPart) {
  const Problem problem = Problem::parse(named_problem("test-weightless").problem);
  EXPECT_THROW(generate(problem, 0, Scalar::f32, {}), Error);
  EXPECT_THROW(generate(problem, 1, Scalar::f32, {}), Error);
}

}  // namespace
}  // namespace clebsch::cuda
