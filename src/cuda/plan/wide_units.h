#pragma once
// Units of whole input blocks, for the double backward pass.
#include <vector>

#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

/// Replaces the units of a double backward pass by units of whole input blocks with Schedule::stored where these are
/// fewer: each spends some 130 instructions an edge beside its paths, and has a part of dX and dY of its own. Returns
/// their launches: one for the slices of a kind, as many of them as a block has registers for, so that the warps of a
/// block have equal work and one code, where kinds have equal numbers of slices, else one for every unit. 0: not
/// replaced.
int wide_units(const Problem& problem, Pass pass, Scalar scalar, const ScheduleOptions& options,
               std::vector<UnitKind>& units);

/// Makes blocks of a schedule of wide units smaller: fewer receivers where `options` leave them open, then fewer slices
/// a launch. False where neither is left.
bool take_fewer_warps(Schedule& schedule, const ScheduleOptions& options);

/// Units of a kind one after the other, so that launches hold as few kinds as possible.
void sort_by_kind(Schedule& schedule);

}  // namespace clebsch::cuda
