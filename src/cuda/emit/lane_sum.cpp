#include "cuda/emit/lane_sum.h"

#include "cuda/plan/schedule.h"

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

std::string write_shared_lane_sums(SourceWriter& w, const std::vector<std::string>& values, const std::string& place) {
  const int n = static_cast<int>(values.size()), row = lane_sums_row(n);
  w.text("__syncwarp();  // all have read the sums before");
  w.text("{");
  w.line("vector16* own = reinterpret_cast<vector16*>({} + lane * {}{});", place, row,
         lane_sums_parts(n) == 2 ? " + (lane & 16)" : "");
  for (int i = 0; i < n; i += 4) {
    const auto value = [&](int k) { return i + k < n ? values[static_cast<size_t>(i + k)] : std::string("0"); };
    w.line("own[{}] = {{{}, {}, {}, {}}};", i / 4, value(0), value(1), value(2), value(3));
  }
  w.text("}");
  write_column_sum(w, n, place, values[0]);
  return values[0];
}

void write_column_sum(SourceWriter& w, int values, const std::string& place, const std::string& sum) {
  // Each lane sums one column of its part of the rows: two parts of 16, whose banks differ by 16, or all 32.
  const int row = lane_sums_row(values), parts = lane_sums_parts(values), rows = 32 / parts;
  w.text("__syncwarp();");
  w.text("{");
  if (parts == 2) {
    w.line("const real* column = {} + (lane & 16) * {} + (lane & 15);", place, row + 1);
  } else {
    w.line("const real* column = {} + lane;", place);
  }
  constexpr int kChains = 4;  // sums that do not wait for each other
  for (int i = 0; i < rows; ++i) {
    w.line("{}part{} {}= column[{}];", i < kChains ? "real " : "", i % kChains, i < kChains ? "" : "+", i * row);
  }
  w.line("{} = (part0 + part1) + (part2 + part3);", sum);
  w.text("}");
  if (parts == 2) w.line("{0} += __shfl_xor_sync(0xffffffffu, {0}, 16);", sum);
}

}  // namespace clebsch::cuda
