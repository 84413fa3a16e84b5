// The CUDA files of the triangle multiplicative update's composed passes and of its fused backward pass by NVRTC, for
// several architectures. No GPU is needed.
#include <gtest/gtest.h>

#include "cuda/runtime/cubin_cache.h"
#include "multilinear/triangle/device_gradients.h"
#include "nvrtc_needed.h"

namespace clebsch::testing {
namespace {

using namespace triangle;

void compile(const std::vector<std::string>& names, const ComposedProblem& problem, int arch, int most_spilled) {
  for (const std::string& name : names) {
    const cuda::Cubin cubin = cuda::cached_compile(cuda::CubinCache(""), composed_source(name, problem), name, arch);
    EXPECT_FALSE(cubin.code.empty());
    for (const cuda::KernelResources& kernel : cubin.kernels) {
      EXPECT_LE(kernel.spill_bytes, most_spilled) << kernel.name << " " << arch;
    }
  }
}

TEST(TriangleGradients, ComposedKernelsCompile) {
  CLEBSCH_NEEDS_NVRTC();
  compile(composed_sources(), {kFloat32, kTf32x3, kNumberMask, 384, 128, 384, false}, 90, 0);
  compile(composed_sources(), {kBfloat16, kBrain, kByteMask, 128, 128, 128, true}, 80, 0);
  compile(composed_sources(), {kFloat16, kHalf, kNoMask, 48, 96, 16, false}, 75, 0);
  // Sums of three gradients in double precision for two vectors of columns.
  compile(composed_sources(), {kFloat64, kDouble, kNumberMask, 48, 112, 80, true}, 90, 200);
}

TEST(TriangleGradients, FusedKernelsCompileWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  compile(gradient_sources(false), {kBfloat16, kBrain, kByteMask, 128, 128, 128, false}, 90, 0);
  compile(gradient_sources(false), {kFloat32, kHalf, kNumberMask, 128, 128, 128, false}, 90, 0);
  compile(gradient_sources(false), {kFloat16, kHalf, kNoMask, 64, 64, 96, false}, 120, 0);
  // A few numbers outside of the products.
  compile(gradient_sources(true), {kBfloat16, kBrain, kByteMask, 128, 128, 128, false}, 90, 48);
  compile(gradient_sources(true), {kFloat16, kHalf, kNoMask, 64, 64, 64, false}, 90, 48);
  compile(gradient_sources(true, true), {kBfloat16, kBrain, kByteMask, 128, 128, 128, false}, 90, 0);
  compile(gradient_sources(true, true), {kFloat16, kHalf, kNoMask, 128, 128, 128, false}, 90, 32);
  compile(gradient_sources(true, true), {kFloat32, kHalf, kNumberMask, 128, 128, 128, false}, 90, 0);
  compile(gradient_sources(true, true), {kFloat32, kBrain, kNoMask, 128, 128, 128, false}, 90, 64);
  compile(gradient_sources(true, true), {kBfloat16, kBrain, kNumberMask, 128, 128, 128, false}, 90, 0);
  compile(gradient_sources(true, true), {kFloat16, kHalf, kByteMask, 128, 128, 128, false}, 90, 0);
}

TEST(TriangleGradients, WhatTheFusedKernelsTake) {
  DeviceArguments given;
  given.shape = {1, 256, 128, 128, 128, false, false};
  given.number = kBfloat16;
  given.precision = kBrain;
  const auto takes = [&](int arch) { return takes_fused_gradients(given, cuda::limits_of_architecture(arch)); };
  EXPECT_TRUE(takes(90));
  EXPECT_FALSE(takes(80));  // too little shared memory for all weights
  given.shape.n = 300;
  EXPECT_FALSE(takes(90));
  given.shape.n = 256;
  given.shape.gate_before = true;
  EXPECT_FALSE(takes(90));
  given.shape.gate_before = false;
  given.precision = kTf32;
  EXPECT_FALSE(takes(90));
}

}  // namespace
}  // namespace clebsch::testing
