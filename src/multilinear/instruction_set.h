#pragma once
// Which instruction set of this processor the loops on the CPU use.
#include <cstdlib>
#include <string>

#include "core/errors.h"

namespace clebsch {

/// The best of `baseline`, `avx2` and `avx512` (one loop compiled for each) that this processor has, or what the
/// environment variable CLEBSCH_ISA names. Throws Error when it names another, or one that this processor lacks.
template <typename Loops>
const Loops& of_instruction_set(const Loops& baseline, [[maybe_unused]] const Loops* avx2,
                                [[maybe_unused]] const Loops* avx512) {
  const char* text = std::getenv("CLEBSCH_ISA");
  const std::string wanted = text == nullptr ? "" : text;
  require(wanted.empty() || wanted == "baseline" || wanted == "avx2" || wanted == "avx512",
          "CLEBSCH_ISA: expected baseline, avx2 or avx512, got '{}'", wanted);
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  require((wanted != "avx2" || has_avx2) && (wanted != "avx512" || has_avx512),
          "CLEBSCH_ISA={}: this processor does not have these instructions", wanted);
  if (has_avx512 && (wanted.empty() || wanted == "avx512")) return *avx512;
  if (has_avx2 && wanted != "baseline") return *avx2;
#endif
  return baseline;
}

}  // namespace clebsch
