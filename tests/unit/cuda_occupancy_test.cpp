// Theoretical occupancy against figures that follow from the programming guide's table of compute capabilities.
#include "cuda/plan/occupancy.h"

#include <gtest/gtest.h>

#include "core/errors.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

int blocks(int arch, int threads, int registers, int shared) {
  return resident_blocks(limits_of_architecture(arch), {threads, registers, shared});
}

TEST(Occupancy, IsBoundedByBlocksWarpsRegistersAndSharedMemory) {
  EXPECT_EQ(blocks(90, 32, 16, 0), 32);  // blocks
  EXPECT_EQ(blocks(86, 32, 16, 0), 16);
  EXPECT_EQ(blocks(89, 32, 16, 0), 24);
  EXPECT_EQ(blocks(120, 32, 16, 0), 24);
  EXPECT_EQ(blocks(90, 1024, 32, 0), 2);  // warps
  EXPECT_EQ(blocks(86, 1024, 32, 0), 1);
  EXPECT_EQ(blocks(90, 128, 128, 0), 4);  // registers: 4 warps of 128 * 32 numbers each, 65536 in all
  EXPECT_EQ(blocks(90, 128, 129, 0), 3);  // the next piece of 256
  EXPECT_EQ(blocks(90, 128, 255, 0), 2);
  EXPECT_EQ(blocks(90, 96, 168, 0), 4);         // 3 warps of each of four parts, 12 in all
  EXPECT_EQ(blocks(90, 1024, 128, 0), 0);       // not even one
  EXPECT_EQ(blocks(90, 64, 32, 48 * 1024), 4);  // 228 KB over 48 KB and 1 KB of the system
  EXPECT_EQ(blocks(80, 64, 32, 48 * 1024), 3);
  EXPECT_EQ(blocks(120, 64, 32, 48 * 1024), 2);
  EXPECT_EQ(blocks(75, 64, 32, 32 * 1024), 2);  // nothing reserved
}

TEST(Occupancy, IsTheShareOfWarps) {
  EXPECT_DOUBLE_EQ(occupancy(limits_of_architecture(90), {128, 128, 0}), 16.0 / 64);
  EXPECT_DOUBLE_EQ(occupancy(limits_of_architecture(86), {128, 128, 0}), 16.0 / 48);
  EXPECT_DOUBLE_EQ(occupancy(limits_of_architecture(90), {1024, 128, 0}), 0);
}

TEST(Occupancy, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(occupancy(limits_of_architecture(90), {0, 32, 0}), Error);
  DeviceLimits other;
  other.arch = 70;
  EXPECT_THROW(occupancy(other, {128, 32, 0}), Error);
}

TEST(Occupancy, IsThatOfEveryKernelOfAResult) {
  KernelResult result;
  CompiledPart main, helper;
  main.cubin.kernels = {{"first", 128, 0, 0, 8}, {"second", 64, 0, 0, 0}};
  main.threads = 128;
  helper.cubin.kernels = {{"third", 32, 0, 0, 0}};
  result.parts = {main, helper};
  const auto uses = kernels_of(result, limits_of_architecture(90));
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_EQ(uses[0].name, "first");
  EXPECT_EQ(uses[0].resources.spill_bytes, 8);
  EXPECT_DOUBLE_EQ(uses[0].occupancy, 0.25);
  EXPECT_DOUBLE_EQ(uses[1].occupancy, 0.5);
  EXPECT_TRUE(uses[1].main);
  EXPECT_FALSE(uses[2].main);
  EXPECT_EQ(uses[2].occupancy, 0);  // threads are not planned
}

}  // namespace
}  // namespace clebsch::cuda
