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

/// The same in the double backward pass, whose parts lie in `rows` (warp_memory). With Schedule::lanes the sums over
/// lanes go through shared memory: `begin` before the paths of an edge, `after` behind each of them, which stores every
/// four components that no later path adds to, so that their registers are free, and `end`.
class HarmonicsSums {
 public:
  /// `paths`: of the unit, in the order in which they are emitted.
  HarmonicsSums(SourceWriter& w, const EmitContext& context, const UnitKind& kind, const std::vector<int>& paths);
  void begin();
  void after(size_t path);  ///< paths[path]
  void end();

 private:
  void store(int four);
  SourceWriter& w_;
  const EmitContext& context_;
  const UnitKind& kind_;
  std::vector<int> last_;  ///< by four components: place in `paths` of the last that adds to them, -1: none
  int numbers_;            ///< components
  bool shared_;
};

/// After a tile of edges: adds the units' parts and writes grad_harmonics. Nothing for a single unit. Uses `buffer`
/// (int, 0 before the first tile), count, group.
void write_harmonics_over_units(SourceWriter& w, const EmitContext& context);

}  // namespace clebsch::cuda
