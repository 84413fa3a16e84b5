#include "multilinear/triangle/host_products.h"

#include "multilinear/instruction_set.h"

namespace clebsch::triangle {

extern const AllLoops loops_baseline;
#if defined(__x86_64__)
extern const AllLoops loops_avx2, loops_avx512;
#endif

namespace {

const AllLoops& all_loops() {
#if defined(__x86_64__)
  static const AllLoops& chosen = of_instruction_set(loops_baseline, &loops_avx2, &loops_avx512);
#else
  static const AllLoops& chosen = of_instruction_set<AllLoops>(loops_baseline, nullptr, nullptr);
#endif
  return chosen;
}

}  // namespace

template <>
const Loops<float>& loops<float>() {
  return all_loops().floats;
}
template <>
const Loops<double>& loops<double>() {
  return all_loops().doubles;
}

}  // namespace clebsch::triangle
