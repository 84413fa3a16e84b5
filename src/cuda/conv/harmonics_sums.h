#pragma once
// How the passes that make gradients of the harmonics sum them: over the lanes of a warp, then over the units of a
// receiver, always in the same order.
#include "cuda/emit/emit_common.h"

namespace clebsch::cuda {

/// `__shared__ real all_sums` and `real* sums`, this receiver's part (null for a single unit or when not `wanted`).
/// Uses `group`.
void write_harmonics_buffers(SourceWriter& w, const EmitContext& context, bool wanted);

/// Sums dy<component> of edge `e` over the 32 lanes, then to grad_harmonics (a single unit) or to the unit's part of
/// `sums`, buffer `buffer`. Uses first, lane, unit, first_launch.
void write_harmonics_over_lanes(SourceWriter& w, const EmitContext& context, const UnitKind& kind);

/// After a tile of edges: adds the units' parts and writes grad_harmonics. Nothing for a single unit. Uses `buffer`
/// (int, 0 before the first tile), count, group.
void write_harmonics_over_units(SourceWriter& w, const EmitContext& context);

}  // namespace clebsch::cuda
