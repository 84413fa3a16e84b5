// Work in parallel threads that tells its caller how far it is.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cuda/runtime/kernel_compiler.h"

namespace clebsch::cuda {
namespace {

TEST(InThreads, ReportsInTheCallingThreadUpToTheLast) {
  for (const int threads : {1, 3, 50}) {
    constexpr size_t kCount = 20;
    std::vector<std::atomic<int>> calls(kCount);
    std::vector<size_t> reports;
    const auto caller = std::this_thread::get_id();
    in_threads(
        kCount, threads, [&](size_t i) { ++calls[i]; },
        [&](size_t done) {
          EXPECT_EQ(std::this_thread::get_id(), caller);
          reports.push_back(done);
        });
    for (const auto& count : calls) EXPECT_EQ(count, 1);
    ASSERT_FALSE(reports.empty());
    for (size_t k = 1; k < reports.size(); ++k) EXPECT_GT(reports[k], reports[k - 1]);
    EXPECT_EQ(reports.back(), kCount);
  }
  in_threads(
      0, 2, [](size_t) { FAIL(); }, [](size_t) { FAIL(); });
}

TEST(InThreads, WhatAReportThrowsEndsTheWorkAndReachesTheCaller) {
  constexpr size_t kCount = 1000;
  std::atomic<size_t> begun{0}, ended{0};
  std::atomic<bool> reported{false};
  const auto work = [&](size_t) {
    // The second of two threads may take everything else while the first report is on its way.
    if (begun++ > 0) {
      while (!reported) std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++ended;
  };
  const auto report = [&](size_t) {
    reported = true;
    throw std::runtime_error("enough");
  };
  EXPECT_THROW(in_threads(kCount, 2, work, report), std::runtime_error);
  EXPECT_EQ(begun, ended);  // what has begun is over when it returns
  EXPECT_LT(ended, kCount);
}

}  // namespace
}  // namespace clebsch::cuda
