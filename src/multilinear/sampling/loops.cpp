#include "multilinear/sampling/loops.h"

#include "multilinear/instruction_set.h"

namespace clebsch::sampling {

extern const Loops loops_baseline;
#if defined(__x86_64__)
extern const Loops loops_avx2, loops_avx512;
#endif

namespace {

const Loops& choose() {
#if defined(__x86_64__)
  switch (instruction_set()) {
    case InstructionSet::kAvx512:
      return loops_avx512;
    case InstructionSet::kAvx2:
      return loops_avx2;
    default:
      return loops_baseline;
  }
#else
  return loops_baseline;
#endif
}

}  // namespace

const Loops& loops() {
  static const Loops& chosen = choose();
  return chosen;
}

}  // namespace clebsch::sampling
