// CUDA files that are the same for every model, by NVRTC for three architectures. No GPU is needed.
#include <gtest/gtest.h>

#include <string>

#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/cubin_cache.h"
#include "nvrtc_needed.h"

namespace clebsch::cuda {
namespace {

class FixedKernels : public ::testing::TestWithParam<const char*> {};

TEST_P(FixedKernels, CompileWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  const std::string name = GetParam();
  for (const int arch : {80, 90, 120}) {
    const Cubin cubin = compile_fixed(name, arch, CubinCache(""));
    EXPECT_FALSE(cubin.code.empty());
    for (const KernelResources& kernel : cubin.kernels) {
      // A third block a multiprocessor is worth the few numbers that squares on tensor cores put aside.
      const int most = name == "grades_tensor" && kernel.name.rfind("squares", 0) == 0 ? 64 : 0;
      EXPECT_LE(kernel.spill_bytes, most) << kernel.name << ", " << arch;
    }
  }
}

// grades_tensor is multiplied on tensor cores of compute capability 8.0 and later.
INSTANTIATE_TEST_SUITE_P(Files, FixedKernels,
                         ::testing::Values("allegro_chunks", "allegro_scale", "edge_finder", "edge_forces",
                                           "exchange_rows", "fixed_point", "grades", "grades_tensor", "graph_transpose",
                                           "group_rows", "index_check", "pair_finder", "readout", "scan"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace clebsch::cuda
