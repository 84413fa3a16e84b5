#pragma once
// For tests that compile with NVRTC: on a machine without it they skip, unless CLEBSCH_REQUIRE_NVRTC=1 says that it
// must be there (scripts/test does when torch brought it).
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuda/runtime/nvrtc.h"

namespace clebsch::testing {

/// Whether `scripts/test` runs what it runs at every change (tests/conftest.py). Kernels are then compiled for sm_90
/// and each for one or two other architectures; `--nightly`, and a test program by hand, compile all for all.
inline bool usual_run() {
  const char* usual = std::getenv("CLEBSCH_TEST_USUAL");
  return usual && *usual;
}

}  // namespace clebsch::testing

#define CLEBSCH_NEEDS_NVRTC()                                                               \
  do {                                                                                      \
    std::string reason;                                                                     \
    if (clebsch::cuda::nvrtc_available(&reason)) break;                                     \
    const char* required = std::getenv("CLEBSCH_REQUIRE_NVRTC");                            \
    if (required && std::string(required) == "1") FAIL() << "NVRTC is missing: " << reason; \
    GTEST_SKIP() << reason;                                                                 \
  } while (false)
