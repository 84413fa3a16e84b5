// The emulator itself: it computes what CUDA would, and refuses kernels whose threads do not meet.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/errors.h"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/nvrtc.h"

namespace clebsch::cuda {
namespace {

std::string launch(const std::string& body, std::vector<int>& data, int blocks = 1, int threads = 64) {
  const Cubin cubin = compile("extern \"C\" __global__ void kernel(int* data) {\n" + body + "\n}", "emulated", 90);
  int* pointer = data.data();
  try {
    load_module(cubin.code, {"kernel"}).front().launch(blocks, 1, threads, nullptr, {&pointer});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Emulator, SumsAWarpAndABlock) {
  std::vector<int> data(2 * 64);
  std::iota(data.begin(), data.end(), 0);
  const char* body = R"(
    __shared__ int part[2];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = data[i];
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    data[i] = part[0] + part[1];
    __syncthreads();)";
  EXPECT_EQ(launch(body, data, 2), "");
  EXPECT_EQ(data[5], 64 * 63 / 2);
  EXPECT_EQ(data[64 + 5], 64 * 63 / 2 + 64 * 64);
}

TEST(Emulator, NamedBarriersServeGroupsOfWarps) {
  std::vector<int> data(128);
  const char* body = R"(
    __shared__ int seen[2];
    const int group = threadIdx.x / 64;
    if (threadIdx.x % 64 == 63) seen[group] = group + 7;
    asm volatile("barrier.sync %0, 64;" ::"r"(group + 1) : "memory");
    data[threadIdx.x] = seen[group];)";
  EXPECT_EQ(launch(body, data, 1, 128), "");
  EXPECT_EQ(data[0], 7);
  EXPECT_EQ(data[64], 8);
}

TEST(Emulator, LanesAtDifferentBarriers) {
  std::vector<int> data(64);
  const std::string error = launch("if (threadIdx.x % 2) {\n__syncwarp();\n} else {\n__syncwarp();\n}", data);
  EXPECT_NE(error.find("threads meet at lines 5 and 3"), std::string::npos) << error;
}

TEST(Emulator, AThreadThatNeverComes) {
  std::vector<int> data(64);
  const std::string left = launch("if (threadIdx.x == 3) return;\n__syncwarp();", data);
  EXPECT_NE(left.find("lane 3 of the mask has left the kernel"), std::string::npos) << left;
  const std::string stuck =
      launch("if (threadIdx.x < 32) {\nasm volatile(\"barrier.sync %0, 64;\" ::\"r\"(1) : \"memory\");\n}", data);
  EXPECT_NE(stuck.find("threads wait for ever at lines 3"), std::string::npos) << stuck;
}

TEST(Emulator, CompilerErrorsAreReported) {
  EXPECT_THROW(compile("extern \"C\" __global__ void kernel() { nonsense; }", "emulated", 90), Error);
}

}  // namespace
}  // namespace clebsch::cuda
