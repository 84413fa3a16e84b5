#pragma once
// Which of the loops that are compiled once an instruction set a process takes.
#include <cstdlib>
#include <string>

#include "core/errors.h"

namespace clebsch {

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

/// The best set of this processor, or what the environment variable CLEBSCH_ISA names. Throws Error when it names
/// another word, or what the processor lacks.
inline InstructionSet instruction_set() {
  const char* text = std::getenv("CLEBSCH_ISA");
  const std::string wanted = text == nullptr ? "" : text;
  require(wanted.empty() || wanted == "baseline" || wanted == "avx2" || wanted == "avx512",
          "CLEBSCH_ISA: expected baseline, avx2 or avx512, got '{}'", wanted);
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  require((wanted != "avx2" || avx2) && (wanted != "avx512" || avx512),
          "CLEBSCH_ISA={}: this processor does not have these instructions", wanted);
  if (avx512 && (wanted.empty() || wanted == "avx512")) return InstructionSet::kAvx512;
  if (avx2 && wanted != "baseline") return InstructionSet::kAvx2;
#endif
  return InstructionSet::kBaseline;
}

}  // namespace clebsch
