// Compiles a small set of kernels for three architectures: registers, shared memory, no spills in fp32. Needs NVRTC
// (skipped without), no GPU. The whole registry is tests/gpu/kernel_report.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/errors.h"
#include "core/registry.h"
#include "cuda/kernel_compiler.h"
#include "cuda/kernel_source.h"
#include "cuda/tensor_product_conv.h"
#include "nvrtc_needed.h"

namespace clebsch::cuda {
namespace {

DeviceLimits limits_of(int arch) {
  DeviceLimits limits;
  limits.arch = arch;
  if (arch == 80) limits.shared_per_multiprocessor = 167936;
  if (arch == 120) {
    limits.warps_per_multiprocessor = 48;
    limits.shared_per_multiprocessor = 102400;
  }
  return limits;
}

class CudaCompile : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    CLEBSCH_NEEDS_NVRTC();
    ::setenv("CLEBSCH_CACHE_DIR", "", 1);  // what is tested is the compiler, not the user's cache
  }
};

TEST_P(CudaCompile, KernelsFitWithoutSpills) {
  const DeviceLimits limits = limits_of(GetParam());
  for (const char* name : {"mace-l1", "mace-M", "nequip-water", "nequip-M", "test-uneven", "test-parity"}) {
    const auto problem = cached_problem(named_problem(name).problem);
    // Forward, backward with atomics and deterministic, double backward deterministic.
    for (int variant = 0; variant < 4; ++variant) {
      if (GetParam() != 90 && (variant == 2 || (variant == 3 && problem->paths.size() > 10))) continue;
      DoubleBackwardOutputs outputs;
      outputs.edges.deterministic = variant != 1;
      const auto plan = [&](const ScheduleOptions& options) {
        if (variant == 0) return conv_forward_source(*problem, Scalar::f32, limits, options);
        if (variant == 3) return conv_double_backward_source(*problem, Scalar::f32, outputs, limits, options);
        return conv_backward_source(*problem, Scalar::f32, outputs.edges, limits, options);
      };
      const CompiledKernel compiled = compile_without_spills(plan, {}, limits.arch);
      const Schedule& schedule = compiled.source.schedule;
      const std::string label = std::string(name) + ", variant " + std::to_string(variant) + ": " + schedule.str();
      ASSERT_EQ(compiled.cubin.kernels.size(), 1u) << label;
      const KernelResources& kernel = compiled.cubin.kernels[0];
      EXPECT_EQ(kernel.name, compiled.source.name);
      EXPECT_EQ(kernel.spill_bytes, 0) << label;
      EXPECT_GT(kernel.registers, 16) << label;
      EXPECT_LE(kernel.registers * schedule.threads() * schedule.min_blocks, limits.registers_per_multiprocessor)
          << label;
      EXPECT_LE(kernel.shared_bytes, limits.shared_per_block) << label;
      EXPECT_LE((kernel.shared_bytes + 1024) * schedule.min_blocks, limits.shared_per_multiprocessor) << label;
      EXPECT_GT(compiled.cubin.code.size(), 1000u);
    }
  }
}

TEST_P(CudaCompile, UvwKernelsFitWithoutSpills) {
  const DeviceLimits limits = limits_of(GetParam());
  for (const char* name : {"test-uvw", "diffdock-l1"}) {
    for (const ConvPass& pass : {ConvPass(), ConvPass(BackwardOutputs{})}) {
      const ConvPart part = conv_parts(cached_problem(named_problem(name).problem)).at(0);
      const CompiledConv made = compile_conv(part, Scalar::f32, pass, limits, {}, CubinCache(""));
      const KernelResources& kernel = made.main.kernels.at(0);
      const std::string label = fmt::format("{}: {}, {} registers", name, made.schedule.str(), kernel.registers);
      EXPECT_EQ(kernel.spill_bytes, 0) << label;
      EXPECT_LE(kernel.shared_bytes, limits.shared_per_block) << label;
      EXPECT_LE(kernel.registers * made.schedule.threads() * made.schedule.min_blocks,
                limits.registers_per_multiprocessor)
          << label;
    }
  }
}

TEST_P(CudaCompile, DoublePrecisionAndReductionsCompile) {
  const DeviceLimits limits = limits_of(GetParam());
  const auto problem = cached_problem(named_problem("test-unsorted").problem);
  const KernelSource forward = conv_forward_source(*problem, Scalar::f64, limits);
  const KernelSource backward = conv_backward_source(*problem, Scalar::f64, BackwardOutputs{}, limits);
  const std::vector<Cubin> cubins = compile_all({{forward.name, forward.source},
                                                 {backward.name, backward.source},
                                                 {"reductions", reductions_source(*problem, backward.schedule)}},
                                                limits.arch);
  EXPECT_EQ(cubins[2].kernels.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaCompile, ::testing::Values(80, 90, 120));

TEST(Nvrtc, ErrorCarriesTheLog) {
  CLEBSCH_NEEDS_NVRTC();
  try {
    compile("extern \"C\" __global__ void broken(float* x) { x[0] = undeclared_name; }", "broken", 90);
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("undeclared_name"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("sm_90"), std::string::npos) << error.what();
  }
}

TEST(Nvrtc, ReadsResourcesFromTheLog) {
  const auto kernels = parse_resources(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'first' for 'sm_90'\n"
      "ptxas info    : Function properties for first\n"
      "    16 bytes stack frame, 20 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 8192 bytes smem\n");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].name, "first");
  EXPECT_EQ(kernels[0].registers, 168);
  EXPECT_EQ(kernels[0].shared_bytes, 8192);
  EXPECT_EQ(kernels[0].stack_bytes, 16);
  EXPECT_EQ(kernels[0].spill_bytes, 32);
}

}  // namespace
}  // namespace clebsch::cuda
