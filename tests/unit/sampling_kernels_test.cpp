// The sampler's CUDA files by NVRTC, for a new and an old architecture. No GPU is needed.
#include <gtest/gtest.h>

#include "multilinear/sampling/device_kernels.h"
#include "nvrtc_needed.h"

namespace clebsch::testing {
namespace {

TEST(SamplingKernels, CompileWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  for (const std::string& name : sampling::device_sources()) {
    for (const int arch : {75, 90}) {
      if (arch == 75 && name != "build_tree") continue;  // the only one that differs much
      const cuda::Cubin cubin = sampling::compile_source(name, arch, cuda::CubinCache(""));
      EXPECT_FALSE(cubin.code.empty());
      for (const cuda::KernelResources& kernel : cubin.kernels) {
        // A few numbers outside of the loops. Kernels of two variants for more than 32 columns put most of a matrix
        // aside while they read another.
        const bool wide = kernel.name.find("_columns") != std::string::npos && kernel.name != "gram_of_32_columns";
        EXPECT_LE(kernel.spill_bytes, arch != 90 ? 100000 : wide ? 1500 : 200) << kernel.name;
      }
    }
  }
}

}  // namespace
}  // namespace clebsch::testing
