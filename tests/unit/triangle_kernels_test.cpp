// The CUDA files of the triangle multiplicative update's fused pass by NVRTC, for several architectures. No GPU is
// needed.
#include <gtest/gtest.h>

#include <string>

#include "multilinear/triangle/device_fused.h"
#include "nvrtc_needed.h"

namespace clebsch::testing {
namespace {

using namespace triangle;

TEST(TriangleKernels, CompileWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  struct Case {
    int arch;
    Shape shape;
    int number, precision, mask;
  };
  for (const Case& c : {Case{90, {1, 64, 128, 128, 128, false, false}, kBfloat16, kBrain, kByteMask},
                        Case{80, {1, 64, 384, 128, 384, false, true}, kFloat32, kHalf, kNoMask},
                        Case{120, {1, 61, 128, 128, 128, false, true}, kFloat32, kBrain, kNumberMask}}) {
    const auto plan = fused_plan(c.shape, c.number, c.precision, c.mask, cuda::limits_of_architecture(c.arch));
    ASSERT_TRUE(plan.has_value()) << c.arch;
    for (const cuda::CompileRequest& request : fused_sources(*plan)) {
      const cuda::Cubin cubin = cuda::cached_compile(cuda::CubinCache(""), request.source, request.name, c.arch);
      EXPECT_FALSE(cubin.code.empty());
      // Kernels for warpgroups start early (early_start.cuh), which their modules say by a symbol; no others do.
      const std::string code(cubin.code.begin(), cubin.code.end());
      EXPECT_EQ(code.find("clebsch_starts_early") != std::string::npos, request.name == "project_overlapped" ||
                                                                            request.name == "project_warpgroups" ||
                                                                            request.name == "output_warpgroups")
          << request.name;
      for (const cuda::KernelResources& kernel : cubin.kernels) {
        // A few numbers outside of the loops over weights.
        EXPECT_LE(kernel.spill_bytes, 150) << kernel.name << " " << c.arch << " " << c.shape.d;
      }
    }
  }
}

}  // namespace
}  // namespace clebsch::testing
