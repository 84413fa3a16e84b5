// The CUDA files of streamed attention by NVRTC, for several architectures. No GPU is needed.
#include <gtest/gtest.h>

#include "multilinear/attention/device_stream.h"
#include "nvrtc_needed.h"

namespace clebsch::testing {
namespace {

using attention::StreamKind;

void compile(const StreamKind& kind, int arch, int most_spilled) {
  for (const std::string& name : attention::stream_sources(kind, arch)) {
    const cuda::Cubin cubin =
        cuda::cached_compile(cuda::CubinCache(""), attention::stream_source(name, kind), name, arch);
    EXPECT_FALSE(cubin.code.empty());
    for (const cuda::KernelResources& kernel : cubin.kernels) {
      EXPECT_LE(kernel.spill_bytes, most_spilled) << kernel.name << " " << arch;
    }
  }
}

TEST(AttentionStreamKernels, CompileWithoutSpills) {
  CLEBSCH_NEEDS_NVRTC();
  // A few numbers outside of the loops, where registers are left.
  compile({attention::kFloat16, 64, 64, attention::kL2, attention::kBoolMask}, 90, 64);
  compile({attention::kBfloat16, 128, 128}, 80, 128);
  compile({attention::kFloat32, 40, 256, attention::kSoftmax, attention::kBoolMask, true, true}, 75, 100000);
}

TEST(AttentionStreamKernels, WarpgroupsWhereThereAreSome) {
  const StreamKind plain{attention::kFloat16, 64, 64};
  StreamKind other = plain;
  EXPECT_TRUE(attention::streams_warpgroups(plain, 90));
  EXPECT_FALSE(attention::streams_warpgroups(plain, 80));
  EXPECT_FALSE(attention::streams_warpgroups(plain, 120));
  other.multiplicity = true;
  EXPECT_FALSE(attention::streams_warpgroups(other, 90));
  other = plain;
  other.normalise = attention::kSoftmax;
  EXPECT_FALSE(attention::streams_warpgroups(other, 90));
}

}  // namespace
}  // namespace clebsch::testing
