#pragma once
// The edge prologue of a convolution: a warp copies the harmonics of its edges from memory into rows of shared memory.
#include <string>

#include "cuda/emit/source_writer.h"
#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

/// Emits the parts of a kernel that provide `real y<component>` for the edge at hand.
class EdgeOperands {
 public:
  EdgeOperands(const Problem& problem, const Schedule& schedule) : problem_(problem), schedule_(schedule) {}
  /// fill_rows(real* rows, const real* harmonics, int first, int count, int lane), before the kernels: fills the warp's
  /// rows for edges first .. first + count - 1 of harmonics (E, in2.dim()). With Schedule::copies also fill_both,
  /// which uses the ring's functions.
  void functions(SourceWriter& w) const;
  /// Shared rows of all warps of a block, `rows` for the warp at hand.
  void declare(SourceWriter& w) const;
  /// Reads the components of [first, last) of the rows' edge `e` into <name><component>.
  void read(SourceWriter& w, int first, int last, const char* rows = "rows", const char* name = "y") const;

 private:
  void fill_both(SourceWriter& w) const;

  const Problem& problem_;
  const Schedule& schedule_;
};

}  // namespace clebsch::cuda
