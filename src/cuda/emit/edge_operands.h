#pragma once
// The edge prologue: where a warp gets the harmonics of its edges from.
//
// A convolution reads them from memory; a kernel that has edge vectors instead computes them, one edge a lane, into the
// same rows of shared memory. The rest of a kernel does not see the difference.
#include <string>

#include "cuda/emit/source_writer.h"
#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

/// Emits the parts of a kernel that provide `real y<component>` for the edge at hand.
class EdgeOperands {
 public:
  EdgeOperands(const Problem& problem, const Schedule& schedule) : problem_(problem), schedule_(schedule) {}
  virtual ~EdgeOperands() = default;
  /// Kernel parameters, "const real* __restrict__ harmonics".
  virtual std::string parameters() const = 0;
  /// The same as arguments.
  virtual std::string arguments() const = 0;
  /// Functions before the kernels; fill_rows(real* rows, <parameters>, int first, int count, int lane) among them:
  /// fills the warp's rows for edges first .. first + count - 1.
  virtual void functions(SourceWriter& w) const = 0;
  /// Shared rows of all warps of a block, `rows` for the warp at hand.
  void declare(SourceWriter& w) const;
  /// Reads the components of [first, last) of the rows' edge `e` into <name><component>.
  void read(SourceWriter& w, int first, int last, const char* rows = "rows", const char* name = "y") const;

 protected:
  const Problem& problem_;
  const Schedule& schedule_;
};

/// Harmonics (E, in2.dim()) given in memory.
class HarmonicsFromMemory : public EdgeOperands {
 public:
  using EdgeOperands::EdgeOperands;
  std::string parameters() const override { return "const real* __restrict__ harmonics"; }
  std::string arguments() const override { return "harmonics"; }
  void functions(SourceWriter& w) const override;
};

}  // namespace clebsch::cuda
