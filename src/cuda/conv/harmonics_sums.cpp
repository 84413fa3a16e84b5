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
  if (units == 1 || !wanted || schedule.pass == Pass::double_backward) {
    w.line("real* sums = nullptr;");
    return;
  }
  w.line("__shared__ real all_sums[{}][{}];", schedule.receivers_per_block,
         2 * units * schedule.edges_per_tile * columns_of(context));
  w.line("real* sums = all_sums[group];");
}

namespace {

/// Where the sums of edge `e` over lanes go: declares `target`.
void write_target(SourceWriter& w, const EmitContext& context) {
  const int columns = columns_of(context), rows = context.schedule.edges_per_tile;
  if (context.schedule.units_per_launch() == 1) {
    w.line("real* target = grad_harmonics + static_cast<int64>(first + e) * {};", columns);
  } else if (context.schedule.pass == Pass::double_backward) {
    w.line("real* target = rows + {} + (buffer * {} + e) * {};", warp_memory(context.problem, context.schedule).parts,
           rows, columns);
  } else {
    w.line("real* target = sums + (buffer * {} + unit) * {} + e * {};", context.schedule.units_per_launch(),
           rows * columns, columns);
  }
}

/// target[component] = `sum`, which lane k has of component `from` + k.
void write_to_target(SourceWriter& w, const EmitContext& context, int from, int to, const std::string& sum) {
  const bool several_launches = context.schedule.launches > 1 || context.schedule.adds;
  const std::string place = fmt::format("target[lane + {}]", from);
  if (context.schedule.units_per_launch() == 1 && several_launches) {
    // Launches run one after the other, so the additions are in a fixed order. No thread waits for the old value.
    w.line("if (lane < {}) {{", to - from);
    w.line("if (first_launch) {} = {};", place, sum);
    w.line("else atomicAdd(&{}, {});", place, sum);
    w.line("}}");
  } else {
    w.line("if (lane < {}) {} = {};", to - from, place, sum);
  }
}

/// Zeroes the components that the unit does not have.
void write_other_components(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  const int columns = columns_of(context);
  const bool several_launches = context.schedule.launches > 1 || context.schedule.adds;
  if (context.schedule.units_per_launch() == 1 && several_launches) w.line("if (!first_launch) continue;");
  if (context.schedule.pass != Pass::double_backward) {
    if (kind.first_component > 0) w.line("for (int i = lane; i < {}; i += 32) target[i] = 0;", kind.first_component);
    if (kind.last_component < columns) {
      w.line("for (int i = lane + {}; i < {}; i += 32) target[i] = 0;", kind.last_component, columns);
    }
    return;
  }
  // Not loops: behind one, the compiler is not sure that a warp's lanes are together, and makes a second copy of the
  // loop over edges for lanes that are not, whose registers count.
  for (int i = 0; i < kind.first_component; i += 32)
    w.line("if (lane < {0}) target[lane + {1}] = 0;", kind.first_component - i, i);
  for (int i = kind.last_component; i < columns; i += 32)
    w.line("if (lane < {}) target[lane + {}] = 0;", columns - i, i);
}

}  // namespace

void write_harmonics_over_lanes(SourceWriter& w, const EmitContext& context, const UnitKind& kind) {
  write_target(w, context);
  for (int from = kind.first_component; from < kind.last_component; from += 32) {
    const int to = std::min(from + 32, kind.last_component);
    std::vector<std::string> values;
    for (int c = from; c < to; ++c) values.push_back(fmt::format("dy{}", c));
    write_to_target(w, context, from, to, write_lane_sums(w, values));
  }
  write_other_components(w, context, kind);
}

HarmonicsSums::HarmonicsSums(SourceWriter& w, const EmitContext& context, const UnitKind& kind,
                             const std::vector<int>& paths)
    : w_(w), context_(context), kind_(kind), numbers_(kind.last_component - kind.first_component) {
  // Fewer numbers take fewer instructions by shuffles.
  constexpr int kFewest = 9;
  shared_ = context.schedule.lanes && numbers_ >= kFewest && numbers_ <= 32;
  last_.assign(static_cast<size_t>((numbers_ + 3) / 4), -1);
  for (size_t place = 0; place < paths.size(); ++place) {
    for (const PairTerms& pair : context.terms[paths[place]].pairs) {
      const int number = context.component(paths[place], pair.j) - kind.first_component;
      last_[static_cast<size_t>(number / 4)] = static_cast<int>(place);
    }
  }
}

void HarmonicsSums::begin() {
  if (!shared_) return;
  w_.line("vector16* const own = reinterpret_cast<vector16*>(rows + {} + lane * {}{});",
          warp_memory(context_.problem, context_.schedule).lanes, lane_sums_row(numbers_),
          lane_sums_parts(numbers_) == 2 ? " + (lane & 16)" : "");
  for (size_t four = 0; four < last_.size(); ++four) {
    if (last_[four] < 0) store(static_cast<int>(four));
  }
}

void HarmonicsSums::store(int four) {
  const auto value = [&](int k) {
    return k < numbers_ ? fmt::format("dy{}", kind_.first_component + k) : std::string("0");
  };
  w_.line("own[{}] = {{{}, {}, {}, {}}};", four, value(4 * four), value(4 * four + 1), value(4 * four + 2),
          value(4 * four + 3));
}

void HarmonicsSums::after(size_t path) {
  for (size_t four = 0; shared_ && four < last_.size(); ++four) {
    if (last_[four] == static_cast<int>(path)) store(static_cast<int>(four));
  }
}

void HarmonicsSums::end() {
  if (!shared_) return write_harmonics_over_lanes(w_, context_, kind_);
  const std::string place = fmt::format("(rows + {})", warp_memory(context_.problem, context_.schedule).lanes);
  w_.text("real dy_sum;");
  write_column_sum(w_, numbers_, place, "dy_sum");
  write_target(w_, context_);
  write_to_target(w_, context_, kind_.first_component, kind_.last_component, "dy_sum");
  write_other_components(w_, context_, kind_);
}

void write_harmonics_over_units(SourceWriter& w, const EmitContext& context) {
  const int columns = columns_of(context), rows = context.schedule.edges_per_tile;
  const int units = context.schedule.units_per_launch();
  if (units == 1) return;
  // One barrier a tile is enough, because there are two buffers and no warp gets two tiles ahead.
  w.line("group_barrier(group);");
  if (context.schedule.pass == Pass::double_backward) w.text("#pragma unroll 1");  // unrolled, it takes registers
  w.line("for (int i = 32 * unit + lane; i < count * {}; i += {}) {{", columns, 32 * units);
  int part = rows * columns;
  if (context.schedule.pass == Pass::double_backward) {
    const WarpMemory memory = warp_memory(context.problem, context.schedule);
    part = memory.numbers;
    w.line("const real* parts = rows - unit * {} + {} + buffer * {} + i;", part, memory.parts, rows * columns);
  } else {
    w.line("const real* parts = sums + buffer * {} + i;", units * rows * columns);
  }
  w.line("real total = parts[0];");
  for (int u = 1; u < units; ++u) w.line("total += parts[{}];", u * part);
  w.line("real* target = grad_harmonics + static_cast<int64>(first) * {} + i;", columns);
  w.line(context.schedule.launches > 1 || context.schedule.adds ? "*target = first_launch ? total : *target + total;"
                                                                : "*target = total;");
  w.line("}}");
  w.line("buffer ^= 1;");
}

}  // namespace clebsch::cuda
