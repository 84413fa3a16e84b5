// Tests with the emulator: each begins its order of threads and blocks anew, and one that fails says how to repeat it.
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>

#include "cuda_emulator/engine.h"

namespace clebsch::testing {
namespace {

class Order : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { seed_ = emulator::begin_test(); }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    std::cout << "CLEBSCH_TEST_ORDER=" << seed_ << " repeats the order of threads and blocks\n";
  }
  uint64_t seed_ = 0;
};

// googletest owns it.
[[maybe_unused]] const bool listens = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new Order);
  return true;
}();

}  // namespace
}  // namespace clebsch::testing
