#include "cuda/plan/wide_units.h"

#include <algorithm>

#include "cuda/plan/unit_packing.h"

namespace clebsch::cuda {
namespace {

/// Registers (estimate) and instructions an edge of a unit of whole input blocks with Schedule::stored.
constexpr int kWideRegisters = 168, kLongestUnit = 1500;
/// Warps that have them in a block.
constexpr int kMostWarps = 12;

/// The largest divisor of `units` up to `most`.
int divisor(int units, int most) {
  int found = std::min(units, most);
  while (units % found != 0) --found;
  return found;
}

}  // namespace

void sort_by_kind(Schedule& schedule) {
  std::stable_sort(schedule.units.begin(), schedule.units.end(),
                   [](const Unit& a, const Unit& b) { return a.kind < b.kind; });
}

bool take_fewer_warps(Schedule& schedule, const ScheduleOptions& options) {
  const int units = schedule.units_per_launch();
  if (schedule.receivers_per_block > 1 && options.receivers_per_block == 0) {
    schedule.receivers_per_block /= 2;
  } else if (units > 1) {
    schedule.launches *= units / divisor(units, units - 1);
  } else {
    return false;
  }
  return true;
}

int wide_units(const Problem& problem, Pass pass, Scalar scalar, const ScheduleOptions& options,
               std::vector<UnitKind>& units) {
  if (pass != Pass::double_backward || scalar != Scalar::f32 || options.stored == 0 || options.units > 0) return 0;
  const int budget = options.registers > 0 ? options.registers : kWideRegisters;
  std::vector<UnitKind> wide =
      UnitPacker(problem, pass, scalar, true).by_input(budget, options.code > 0 ? options.code : kLongestUnit);
  Schedule trial;
  name_kinds(trial, wide);
  std::vector<int> members(trial.kinds.size(), 0);
  for (const Unit& unit : trial.units) ++members[static_cast<size_t>(unit.kind)];
  const auto [least, most] = std::minmax_element(members.begin(), members.end());
  if (options.stored < 0 && wide.size() >= units.size()) return 0;
  units = std::move(wide);
  return static_cast<int>(units.size()) / (*least == *most ? divisor(*most, kMostWarps) : 1);
}

}  // namespace clebsch::cuda
