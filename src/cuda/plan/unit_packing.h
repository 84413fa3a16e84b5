#pragma once
// Which warps of a receiver compute which paths of which channels: paths are cut into pieces of bounded cost and
// registers, and the pieces packed into units of about equal cost. make_schedule (schedule.h) chooses among packings.
#include <vector>

#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

/// Paths that write a common output block: they accumulate in the same registers, so no cut may part them.
struct PathAtom {
  std::vector<int> paths;
  int accumulators = 0;
  int cost = 0;
};

/// Units with absolute slices; `fits` when each has work and no more registers than allowed.
struct UnitPacking {
  std::vector<UnitKind> units;
  bool fits = false;
};

/// Packs one problem's paths for one pass; keeps a reference to the problem.
class UnitPacker {
 public:
  UnitPacker(const Problem& problem, Pass pass, Scalar scalar, bool stored = false);
  /// Into so many units of at most `budget` registers (estimate).
  UnitPacking pack(int units, int budget) const;
  /// Into as few units as have at most so many registers (estimate) and instructions an edge, a slice each: all paths
  /// of an input block where that is possible.
  std::vector<UnitKind> by_input(int budget, int most_code) const;

 private:
  const Problem& problem_;
  Pass pass_;
  Scalar scalar_;
  bool stored_;
  std::vector<PathAtom> atoms_;
  int total_ = 0;  ///< cost of all
};

/// Registers a thread may hold (estimate) before a unit is cut: twelve warps fit a multiprocessor, eight in fp64; at
/// most `most` where that is above 0.
int register_budget(int units, Scalar scalar, int most);

/// Registers that a set of tiles needs, in 32-bit words. `stored`: see Schedule.
int estimate_registers(const Problem& problem, const UnitKind& kind, Pass pass, Scalar scalar, bool prefetch,
                       bool stored = false);

/// Instructions an edge that a unit spends beside its paths: loop, addresses, harmonics, and their gradient's sum
/// over the lanes (four instructions a component).
int overhead(const UnitKind& kind, Pass pass);

/// Receivers of a block. With a table, the shared rows of a chunk leave no room for twelve warps of four receivers.
int receivers_for(int units, Pass pass);

/// Turns absolute slices into (kind, first slice), sharing the code of alike units.
void name_kinds(Schedule& schedule, std::vector<UnitKind> units);

/// What a packing costs an edge and receiver, in issue slots: a multiprocessor has four schedulers, warp w belongs to
/// scheduler w mod 4. Units beyond 128 registers leave too few warps to hide memory, and each further kind of unit
/// competes for the instruction cache; both weights are fitted to measurements (docs/developers/kernels.md).
double score(const Problem& problem, const UnitPacking& packing, Pass pass, Scalar scalar, int receivers);

}  // namespace clebsch::cuda
