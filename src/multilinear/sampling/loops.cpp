#include "multilinear/sampling/loops.h"

#include "multilinear/instruction_set.h"

namespace clebsch::sampling {

extern const Loops loops_baseline;
#if defined(__x86_64__)
extern const Loops loops_avx2, loops_avx512;
#endif

const Loops& loops() {
#if defined(__x86_64__)
  static const Loops& chosen = of_instruction_set(loops_baseline, &loops_avx2, &loops_avx512);
#else
  static const Loops& chosen = of_instruction_set<Loops>(loops_baseline, nullptr, nullptr);
#endif
  return chosen;
}

}  // namespace clebsch::sampling
