// Compiles a subset of the kernels for three architectures: registers, shared memory, no spills and enough occupancy in
// fp32. Needs NVRTC (skipped without), no GPU. The subset is data/kernel_subset.txt; all kernels are
// benchmarks/kernel_report.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "core/errors.h"
#include "cuda/nodes/node_linear.h"
#include "cuda/plan/device_limits.h"
#include "cuda/plan/occupancy.h"
#include "cuda/runtime/nvrtc.h"
#include "kernel_calls.h"
#include "nvrtc_needed.h"

namespace clebsch::cuda {
namespace {

constexpr size_t kMostKernels = 60;  ///< of all architectures together
constexpr int kArchitectures[] = {80, 90, 120};
/// Least theoretical occupancy of a kernel in fp32: 8 warps of 64 on sm_80 and sm_90, 6 of 48 on sm_120, so two for
/// each scheduler of a multiprocessor (sm_120: three for two). Kernels whose sums fill the registers have no more.
constexpr double kLeastOccupancy = 0.125;

/// Lines "PROBLEM KERNEL"; '#' begins a comment.
std::vector<std::string> subset() {
  std::ifstream file(CLEBSCH_TEST_DATA "/kernel_subset.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

bool is_double(const std::string& name) {
  const std::string end = " double";
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

class CudaCompile : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { CLEBSCH_NEEDS_NVRTC(); }
};

TEST_P(CudaCompile, KernelsFitTheDeviceWithoutSpills) {
#if defined(__SANITIZE_ADDRESS__)
  if (GetParam() != 90) GTEST_SKIP() << "one architecture is enough for sanitizers";
#endif
  const DeviceLimits limits = limits_of_architecture(GetParam());
  std::map<std::string, KernelJob> known;
  for (NamedJob& named : registry_jobs(limits)) known[named.problem + " " + named.job.label] = std::move(named.job);
  std::vector<KernelJob> jobs;
  std::vector<std::string> names;
  const std::vector<std::string> all = subset();
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(known.count(all[i])) << "no kernel '" << all[i] << "'";
    // At every change a kernel is compiled for sm_90 or, each fourth, for one of the others.
    const int in_turn = i % 4 != 3 ? 90 : i % 8 == 3 ? 80 : 120;
    if (testing::usual_run() && GetParam() != in_turn) continue;
    names.push_back(all[i]);
    jobs.push_back(known[all[i]]);
  }
  ASSERT_GE(all.size(), 15u);
  ASSERT_LE(all.size() * std::size(kArchitectures), kMostKernels);
  const auto results = compile_jobs(jobs, CubinCache(""));  // what is tested is the compiler, not a cache
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string label = names[i] + " for sm_" + std::to_string(limits.arch);
    ASSERT_EQ(results[i].error, "") << label;
    ASSERT_FALSE(results[i].parts.empty()) << label;
    for (const CompiledPart& part : results[i].parts) {
      EXPECT_GT(part.cubin.code.size(), 1000u) << label;
      ASSERT_FALSE(part.cubin.kernels.empty()) << label;
      for (const KernelResources& kernel : part.cubin.kernels) {
        const std::string text = label + ", " + kernel.name + ": " + part.plan;
        // Stack without spills would be an array that the compiler could not keep in registers.
        if (!is_double(names[i])) {
          EXPECT_EQ(kernel.spill_bytes, 0) << text;
          EXPECT_EQ(kernel.stack_bytes, 0) << text;
        }
        EXPECT_GE(kernel.registers, 8) << text;
        EXPECT_LE(kernel.registers, 255) << text;
        EXPECT_LE(kernel.shared_bytes, limits.shared_per_block) << text;
        if (part.threads == 0) continue;
        const BlockUse use{part.threads, kernel.registers, kernel.shared_bytes + part.dynamic_shared};
        EXPECT_LE(part.threads, 1024) << text;
        EXPECT_GE(resident_blocks(limits, use), part.min_blocks) << text;
        if (!is_double(names[i])) {
          EXPECT_GE(occupancy(limits, use), kLeastOccupancy) << text;
        }
      }
    }
    const KernelResources& kernel = results[i].parts.front().cubin.kernels.front();
    std::cout << label << ": " << kernel.registers << " registers, " << kernel.spill_bytes << " B spilled, "
              << kernel.shared_bytes << " B shared, " << kernels_of(results[i], limits).front().occupancy
              << " occupancy, " << results[i].seconds << " s\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaCompile, ::testing::ValuesIn(kArchitectures));

TEST(CudaCompileWarpgroups, MapsThatKeepWeightsFitWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  const DeviceLimits limits = limits_of_architecture(90);
  for (const char* text : {"linear in=224x0e+288x1o+256x2e out=224x0e+64x1o+32x2e",
                           "linear in=136x0e+136x1o+136x2e+136x3o out=128x0e+128x1o+128x2e+128x3o"}) {
    for (const bool transposed : {false, true}) {
      const CompiledLinear made = compile_linear(LinearProblem::parse(text), transposed, Scalar::f32, LinearSize::kept,
                                                 true, limits, CubinCache(""));
      ASSERT_EQ(made.cubin.kernels.size(), 1u);
      const KernelResources& kernel = made.cubin.kernels.front();
      EXPECT_EQ(kernel.spill_bytes, 0) << text << transposed;
      EXPECT_LE(kernel.registers * made.tiling.threads(), limits.registers_per_multiprocessor);
      EXPECT_LE(kernel.shared_bytes + made.tiling.dynamic_shared(transposed), limits.dynamic_shared_per_block);
    }
  }
}

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
