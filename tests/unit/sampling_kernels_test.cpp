// The sampler's CUDA files by NVRTC, for a new and an old architecture. No GPU is needed.
#include <gtest/gtest.h>

#include "multilinear/sampling/device_kernels.h"
#include "nvrtc_needed.h"

namespace clebsch::testing {
namespace {

TEST(SamplingKernels, CompileWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  for (const std::string& name : sampling::device_sources()) {
    for (const int arch : {75, 80, 90}) {
      if (arch != 90 && name != "build_tree") continue;  // the only one that differs, but for the same products
      const cuda::Cubin cubin = sampling::compile_source(name, arch, cuda::CubinCache(""));
      EXPECT_FALSE(cubin.code.empty());
      for (const cuda::KernelResources& kernel : cubin.kernels) {
        // A few numbers outside of the loops; while a matrix is read, sums of another.
        EXPECT_LE(kernel.spill_bytes, arch == 75                                          ? 100000
                                      : kernel.name.find("_columns") != std::string::npos ? 400
                                                                                          : 200)
            << kernel.name;
      }
    }
  }
}

}  // namespace
}  // namespace clebsch::testing
