// The CUDA files of the triangle multiplicative update's fused pass by NVRTC, for several architectures. No GPU is
// needed.
#include <gtest/gtest.h>

#include <string>

#include "multilinear/triangle/device_contract.h"
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

/// Tiles of all widths, and all layouts of the forward and the backward pass.
TEST(TriangleKernels, ContractionCompilesWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  struct Case {
    int number;
    int64_t n;
    bool turned_a, turned_b;
    int columns;
  };
  const cuda::DeviceLimits limits = cuda::limits_of_architecture(90);
  for (const Case& c : {Case{kBfloat16, 256, false, false, 256}, Case{kBfloat16, 1024, true, true, 256},
                        Case{kFloat16, 768, false, true, 256}, Case{kBfloat16, 300, false, false, 160},
                        Case{kFloat16, 350, true, true, 192}, Case{kBfloat16, 440, false, true, 224},
                        Case{kBfloat16, 20, true, true, 32}, Case{kBfloat16, 60, false, false, 64},
                        Case{kBfloat16, 90, false, true, 96}, Case{kBfloat16, 128, false, false, 128}}) {
    SCOPED_TRACE(::testing::Message() << c.n << " " << c.turned_a << c.turned_b);
    const ContractPlan plan = contract_plan(c.number, c.n, 128, c.turned_a, c.turned_b, limits);
    EXPECT_EQ(plan.columns, c.columns);
    EXPECT_GE(plan.stages, 4);
    EXPECT_LE(plan.shared, cuda::most_shared_per_block(limits));
    const cuda::CompileRequest request = contract_source(plan);
    const cuda::Cubin cubin = cuda::cached_compile(cuda::CubinCache(""), request.source, request.name, 90);
    ASSERT_EQ(cubin.kernels.size(), 1u);
    EXPECT_EQ(cubin.kernels[0].spill_bytes, 0);
    EXPECT_LE(cubin.kernels[0].registers, 224);
    const std::string code(cubin.code.begin(), cubin.code.end());
    EXPECT_NE(code.find("clebsch_starts_early"), std::string::npos);
  }
}

}  // namespace
}  // namespace clebsch::testing
