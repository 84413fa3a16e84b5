// The emulator itself: it computes what CUDA would, and refuses kernels whose threads do not meet.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <vector>

#include "core/errors.h"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/nvrtc.h"
#include "cuda_emulator/engine.h"

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
  EXPECT_TRUE(error.find("threads meet at lines 5 and 3") != std::string::npos ||
              error.find("threads meet at lines 3 and 5") != std::string::npos)
      << error;
}

TEST(Emulator, AThreadThatNeverComes) {
  std::vector<int> data(64);
  const std::string left = launch("if (threadIdx.x == 3) return;\n__syncwarp();", data);
  EXPECT_NE(left.find("lane 3 of the mask has left the kernel"), std::string::npos) << left;
  const std::string stuck =
      launch("if (threadIdx.x < 32) {\nasm volatile(\"barrier.sync %0, 64;\" ::\"r\"(1) : \"memory\");\n}", data);
  EXPECT_NE(stuck.find("threads wait for ever at lines 3"), std::string::npos) << stuck;
}

TEST(Emulator, SharedMemoryIsPoisonedBeforeEveryBlock) {
  std::vector<int> data(4 * 64);
  const char* body = R"(
    __shared__ float numbers[64];
    __shared__ double wide[64];
    __shared__ int words[64];
    const int i = threadIdx.x, seen = words[i];
    const bool none = numbers[i] != numbers[i] && wide[i] != wide[i];
    words[i] = 7;
    numbers[i] = wide[i] = 1;
    data[blockIdx.x * blockDim.x + i] = none ? seen : 0;)";
  EXPECT_EQ(launch(body, data, 4), "");
  std::set<int> different(data.begin(), data.end());
  EXPECT_EQ(different.count(0), 0u) << "shared memory that was a number before it was written";
  EXPECT_EQ(different.count(7), 0u) << "shared memory of another block";
  EXPECT_GT(different.size(), 250u) << "the same in every block";
}

TEST(Emulator, SharedMemoryThatNobodyWrites) {
  std::vector<int> data(64);
  EXPECT_EQ(launch("__shared__ int words[64];\ndata[threadIdx.x] = words[threadIdx.x];", data), "");
  EXPECT_EQ(std::count(data.begin(), data.end(), 0), 0);
}

TEST(Emulator, CopiesOfOneBlockDoNotArriveInAnother) {
  std::vector<int> data(2);
  const char* body = R"(
    __shared__ int slot;
    const int source = 5;
    int *to = &slot;
    const int *from = &source;
    if (data[0] == 0) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
      asm volatile("cp.async.commit_group;" ::: "memory");
      data[0] = 1;
    } else {
      slot = 3;
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      data[1] = slot;
    })";
  EXPECT_EQ(launch(body, data, 2, 1), "");
  EXPECT_EQ(data[1], 3);
}

/// An mbarrier at byte 0 of shared memory, and what is done with it, as src/cuda/kernels/wgmma.cuh has it.
constexpr const char* kBarrierFunctions = R"(
    __shared__ unsigned long long place;
    const unsigned barrier = static_cast<unsigned>(__cvta_generic_to_shared(&place));
    const auto begin = [&](int arrivals) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
    };
    const auto arrive = [&] { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); };
    const auto wait = [&](unsigned parity) {
      unsigned done = 0;
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                   : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    };)";

TEST(Emulator, BarriersInSharedMemoryHavePhases) {
  std::vector<int> data(64);
  const std::string body = std::string(kBarrierFunctions) + R"(
    if (threadIdx.x == 0) begin(32);
    __syncthreads();
    for (unsigned phase = 0; phase < 3; ++phase) {
      if (threadIdx.x < 32) {
        data[threadIdx.x] = 5 + phase;
        arrive();
      } else {
        wait(phase % 2);
        data[threadIdx.x] = data[threadIdx.x - 32];
      }
      __syncthreads();
    })";
  EXPECT_EQ(launch(body, data), "");
  EXPECT_EQ(std::count(data.begin(), data.end(), 7), 64);
  const std::string stuck =
      launch(std::string(kBarrierFunctions) + "begin(65);\n__syncthreads();\narrive();\nwait(0);", data);
  EXPECT_NE(stuck.find("threads wait for ever"), std::string::npos) << stuck;
}

TEST(Emulator, UnknownAssemblyIsRefusedByName) {
  for (const char* statement :
       {"asm volatile(\"bar.red.popc.u32 %0, 0, 1;\" : \"=r\"(data[0]));", "asm(\"mov.u32 %0, 7;\" : \"=r\"(data[0]));",
        "asm volatile(\"cp.async.wait_all;\" ::: \"memory\");",
        "asm volatile(\"prefetch.global.L1 [%0];\" ::\"l\"(data));"}) {
    try {
      compile(std::string("extern \"C\" __global__ void kernel(int* data) {\n") + statement + "\n}", "emulated", 90);
      ADD_FAILURE() << "compiled: " << statement;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("line 2: the emulator does not know this inline assembly"), std::string::npos) << text;
      EXPECT_NE(text.find(statement), std::string::npos) << text;
    }
  }
}

TEST(Emulator, HintsAreLeftOut) {
  std::vector<int> data(64);
  EXPECT_EQ(launch("int i = threadIdx.x;\nasm volatile(\"\" : \"+r\"(i));\n"
                   "asm volatile(\"prefetch.global.L2 [%0];\" ::\"l\"(data + i));\ndata[i] = i;",
                   data),
            "");
  EXPECT_EQ(data[63], 63);
}

TEST(Emulator, OrderOfThreadsAndBlocksDiffersFromLaunchToLaunch) {
  // Every thread takes the next number: which one it gets is the order that threads ran in.
  std::vector<int> first(1 + 4 * 64), second(first.size());
  const char* body = "data[1 + blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(data, 1);";
  EXPECT_EQ(launch(body, first, 4), "");
  EXPECT_EQ(launch(body, second, 4), "");
  EXPECT_NE(first, second);
  std::sort(first.begin() + 1, first.end());
  for (int i = 0; i < 4 * 64; ++i) ASSERT_EQ(first[static_cast<size_t>(i) + 1], i);
}

TEST(Emulator, AMissingBarrierShows) {
  // Right only when the threads run in ascending order.
  std::vector<int> data(64);
  const char* body = R"(
    __shared__ int words[64];
    words[threadIdx.x] = threadIdx.x;
    data[threadIdx.x] = threadIdx.x > 0 ? words[threadIdx.x - 1] : 0;)";
  EXPECT_EQ(launch(body, data), "");
  EXPECT_GT(*std::max_element(data.begin(), data.end()), 64);
}

TEST(Emulator, AWarpMayRunAhead) {
  // Right as long as the warps are in step to within one barrier.
  const Cubin cubin = compile(R"(extern "C" __global__ void kernel(int* data) {
    __shared__ int words[128];
    words[threadIdx.x] = threadIdx.x;
    __syncwarp();
    data[threadIdx.x] = words[127 - threadIdx.x];
  })",
                              "emulated", 90);
  const Kernel kernel = load_module(cubin.code, {"kernel"}).front();
  int wrong = 0;
  for (int k = 0; k < 40; ++k) {
    std::vector<int> data(128);
    int* pointer = data.data();
    kernel.launch(1, 1, 128, nullptr, {&pointer});
    wrong += *std::max_element(data.begin(), data.end()) > 127;
  }
  EXPECT_GT(wrong, 4);
  EXPECT_LT(wrong, 36) << "in step in some of the blocks";
}

TEST(Emulator, ATestsOrderIsRepeated) {
  const char* body = "data[1 + threadIdx.x] = atomicAdd(data, 1);";
  std::vector<int> first(1 + 64), second(first.size());
  ::setenv("CLEBSCH_TEST_ORDER", "77", 1);
  for (auto* data : {&first, &second}) {
    EXPECT_EQ(emulator::begin_test(), 77u);
    EXPECT_EQ(launch(body, *data), "");
  }
  ::unsetenv("CLEBSCH_TEST_ORDER");
  emulator::begin_test();
  EXPECT_EQ(first, second);
}

TEST(Emulator, CompilerErrorsAreReported) {
  EXPECT_THROW(compile("extern \"C\" __global__ void kernel() { nonsense; }", "emulated", 90), Error);
}

}  // namespace
}  // namespace clebsch::cuda
