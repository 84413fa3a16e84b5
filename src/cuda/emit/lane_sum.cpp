#include "cuda/emit/lane_sum.h"

namespace clebsch::cuda {

std::string write_lane_sums(SourceWriter& w, const std::vector<std::string>& values, int lanes) {
  int width = 1;
  const int n = static_cast<int>(values.size());
  while (width < n) width *= 2;
  for (int half = width / 2, present = n; half >= 1; half /= 2) {
    if (present > half) w.line("const bool upper{}_{} = lane & {};", values[0], half, half);
    for (int i = 0; i < half && i < present; ++i) {
      const std::string& low = values[static_cast<size_t>(i)];
      if (i + half < present) {
        // The upper lanes keep value i + half and hand over value i; the lower ones the other way round.
        const std::string& high = values[static_cast<size_t>(i + half)];
        w.line("{0} = (upper{2}_{3} ? {1} : {0}) + __shfl_xor_sync(0xffffffffu, upper{2}_{3} ? {0} : {1}, {3});", low,
               high, values[0], half);
      } else {
        w.line("{0} += __shfl_xor_sync(0xffffffffu, {0}, {1});", low, half);
      }
    }
    if (present > half) present = half;
  }
  for (int step = width; step < lanes; step *= 2)
    w.line("{0} += __shfl_xor_sync(0xffffffffu, {0}, {1});", values[0], step);
  return values[0];
}

}  // namespace clebsch::cuda
