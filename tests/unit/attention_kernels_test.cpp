// The CUDA files of spherical attention by NVRTC, for several architectures. No GPU is needed.
#include <gtest/gtest.h>

#include <utility>

#include "multilinear/attention/device_graph.h"
#include "multilinear/attention/device_spherical.h"
#include "nvrtc_needed.h"

namespace clebsch::testing {
namespace {

TEST(AttentionKernels, CompileWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  using attention::KernelShape;
  // The second number: the architecture beside sm_90 that is enough at every change.
  const std::pair<KernelShape, int> shapes[] = {{{attention::kFloat16, 64, 64}, 75},
                                                {{attention::kBfloat16, 128, 128}, 80},
                                                {{attention::kFloat32, 40, 256}, 120}};
  for (const int arch : {75, 80, 90, 120}) {
    for (const auto& [shape, other] : shapes) {
      if (arch == 75 && shape.number == attention::kBfloat16) continue;
      if (usual_run() && arch != 90 && arch != other) continue;
      for (const std::string& name : attention::device_sources(shape, cuda::limits_of_architecture(arch))) {
        const cuda::Cubin cubin =
            cuda::cached_compile(cuda::CubinCache(""), attention::device_source(name, shape), name, arch);
        EXPECT_FALSE(cubin.code.empty());
        for (const cuda::KernelResources& kernel : cubin.kernels) {
          // A few numbers outside of the loops, where registers are left.
          EXPECT_LE(kernel.spill_bytes, arch == 75 ? 100000 : 250) << kernel.name << " " << arch << " " << shape.number;
        }
      }
    }
  }
}

TEST(AttentionKernels, OfGraphsCompileWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  using namespace attention;
  const GraphKernelShape shapes[] = {{{kFloat32, 256, 256, kPlain}, true, true},
                                     {{kFloat64, 64, 32, kUnitLength}, false, true},
                                     {{kFloat16, 17, 3, kSoftmax}, false, false}};
  for (const GraphKernelShape& shape : shapes) {
    for (const char* name : {"graph_rows", "graph_edges"}) {
      const cuda::Cubin cubin = cuda::cached_compile(cuda::CubinCache(""), graph_source(name, shape), name, 90);
      for (const cuda::KernelResources& kernel : cubin.kernels) EXPECT_EQ(kernel.spill_bytes, 0) << kernel.name;
    }
  }
}

}  // namespace
}  // namespace clebsch::testing
