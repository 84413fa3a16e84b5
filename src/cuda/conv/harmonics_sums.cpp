#include "cuda/conv/harmonics_sums.h"

#include <algorithm>

#include "cuda/emit/lane_sum.h"

namespace clebsch::cuda {
namespace {

int columns_of(const EmitContext& context) { return static_cast<int>(context.problem.in2.dim()); }

}  // namespace

void write_harmonics_buffers(SourceWriter& w, const EmitContext& context, bool wanted) {
  const Schedule& schedule = context.schedule;
  const int units = schedule.units_per_launch();
  if (units == 1 || !wanted) {
    w.line("real* sums = nullptr;");
    return;
  }
  w.line("__shared__ real all_sums[{}][{}];", schedule.receivers_per_block,
         2 * units * schedule.edges_per_tile * columns_of(context));
  w.line("real* sums = all_sums[group];");
}

void write_harmonics_over_lanes(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  const int columns = columns_of(context), rows = context.schedule.edges_per_tile;
  const bool several_units = context.schedule.units_per_launch() > 1;
  const bool several_launches = context.schedule.launches > 1 || context.schedule.adds;
  if (several_units) {
    w.line("real* target = sums + (buffer * {} + unit) * {} + e * {};", context.schedule.units_per_launch(),
           rows * columns, columns);
  } else {
    w.line("real* target = grad_harmonics + static_cast<int64>(first + e) * {};", columns);
  }
  for (int from = kind.first_component; from < kind.last_component; from += 32) {
    const int to = std::min(from + 32, kind.last_component);
    std::vector<std::string> values;
    for (int c = from; c < to; ++c) values.push_back(fmt::format("dy{}", c));
    const std::string sum = write_lane_sums(w, values);
    const std::string place = fmt::format("target[lane + {}]", from);
    if (!several_units && several_launches) {
      // Launches run one after the other, so the additions are in a fixed order. No thread waits for the old value.
      w.line("if (lane < {}) {{", to - from);
      w.line("if (first_launch) {} = {};", place, sum);
      w.line("else atomicAdd(&{}, {});", place, sum);
      w.line("}}");
    } else {
      w.line("if (lane < {}) {} = {};", to - from, place, sum);
    }
  }
  if (!several_units && several_launches) w.line("if (!first_launch) continue;");
  if (kind.first_component > 0) w.line("for (int i = lane; i < {}; i += 32) target[i] = 0;", kind.first_component);
  if (kind.last_component < columns) {
    w.line("for (int i = lane + {}; i < {}; i += 32) target[i] = 0;", kind.last_component, columns);
  }
}

void write_harmonics_over_units(SourceWriter& w, const EmitContext& context) {
  const int columns = columns_of(context), rows = context.schedule.edges_per_tile;
  const int units = context.schedule.units_per_launch();
  if (units == 1) return;
  // One barrier a tile is enough, because there are two buffers and no warp gets two tiles ahead.
  w.line("group_barrier(group);");
  w.line("for (int i = 32 * unit + lane; i < count * {}; i += {}) {{", columns, 32 * units);
  w.line("const real* parts = sums + buffer * {} + i;", units * rows * columns);
  w.line("real total = parts[0];");
  for (int u = 1; u < units; ++u) w.line("total += parts[{}];", u * rows * columns);
  w.line("real* target = grad_harmonics + static_cast<int64>(first) * {} + i;", columns);
  w.line(context.schedule.launches > 1 || context.schedule.adds ? "*target = first_launch ? total : *target + total;"
                                                                : "*target = total;");
  w.line("}}");
  w.line("buffer ^= 1;");
}

}  // namespace clebsch::cuda
