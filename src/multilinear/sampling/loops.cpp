#include "multilinear/sampling/loops.h"

#include <cstdlib>
#include <string>

#include "core/errors.h"

namespace clebsch::sampling {

extern const Loops loops_baseline;
#if defined(__x86_64__)
extern const Loops loops_avx2, loops_avx512;
#endif

namespace {

const Loops& choose() {
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
  if (avx512 && (wanted.empty() || wanted == "avx512")) return loops_avx512;
  if (avx2 && wanted != "baseline") return loops_avx2;
#endif
  return loops_baseline;
}

}  // namespace

const Loops& loops() {
  static const Loops& chosen = choose();
  return chosen;
}

}  // namespace clebsch::sampling
