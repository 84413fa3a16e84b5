#pragma once
// The radial functions of the edge at hand from a table's knots in registers.
//
// A quintic piece of a C2 table is fixed by value, slope and half the curvature at its two ends, the first three
// coefficients of its own table row and of the next. A warp keeps those six numbers a path and channel; with its edges
// in table order the right end of a piece becomes the left end of the next, so a knot is read once.
//
// With Schedule::horner the six are the row's own coefficients: five multiply-adds instead of six for the value, four
// for the slope, one number of the edge instead of twelve, and twice the bytes of the table.
//
// With Schedule::spline the six numbers are coefficients of B-splines (core/radial/radial_spline.h): one a row, and
// from a piece to the d-th after it only d are read.
#include "cuda/emit/emit_common.h"

namespace clebsch::cuda {

/// Declares k<tile>_<path>_<0..5> and which table rows they hold: `left` and, without splines, `right`.
void write_knot_declarations(SourceWriter& w, const EmitContext& context, const UnitKind& kind);
/// Brings the knots of `slot` into the registers; the same branch for a whole warp. Uses s, slot, channel.
void write_knot_loads(SourceWriter& w, const EmitContext& context, const UnitKind& kind);
/// Emits w<tile>_<path> from h0..h5; with `slope` also its derivative u<tile>_<path> from d0..d5. With Schedule::horner
/// both from the place t.
void write_radial(SourceWriter& w, const EmitContext& context, int tile, int path, bool slope);

/// Declares x of the unit's tiles, with a suffix.
void write_input_declarations(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const char* suffix);
/// Loads x of the sender of `slot`, an expression.
void write_input_loads(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const char* slot,
                       const char* suffix);
/// What precedes a loop over slots from `from`: with prefetch, the inputs of the first.
void write_before_slots(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const char* from);
/// Slot `e` of the chunk and its inputs x, within the loop; with prefetch those of the next are on their way.
void write_slot(SourceWriter& w, const EmitContext& context, const UnitKind& kind);

}  // namespace clebsch::cuda
