#pragma once
// The list of pairs of systems that are calculated again and again, and how long it serves.
#include <cstdint>
#include <vector>

#include "core/pair_grid.h"
#include "core/systems.h"

namespace clebsch {

/// Which atoms are near each other, for steps whose positions and cells change. The list is made of folded atoms, moved
/// by cell vectors into their cells, and of later steps' atoms moved by the same numbers of vectors.
///
/// A list of all pairs within cutoff + skin serves a step when no pair outside of it can be within the cutoff. Let F be
/// how a cell has changed since the list was made (new cell = old cell . F), and u how far an atom is from where F
/// alone would have brought it. A distance d of now was at most |F^-1| (d + 2 max u) then. The list therefore serves
/// while |F^-1| (cutoff + 2 max u) <= cutoff + skin in every system; |F^-1| is bounded by 1 + |F^-1 - 1| in Frobenius'
/// norm.
class SystemList {
 public:
  /// Takes the systems of a step. True: the last list serves, and only points() is new. False: a new list has to be
  /// made of grid(), which is then that of these systems. The first list of some systems has no skin, because a single
  /// calculation would pay for it; the list has the skin when the one before it, with a skin, would almost have served.
  /// Bins are `fineness` a cutoff. `threads` share the work. Throws Error for systems that are none
  /// (core/systems.h); there is no list then.
  bool update(const SystemsView& systems, double cutoff, double skin, int fineness, int threads);
  /// There is no list any more.
  void forget() { held_ = -1; }

  /// The systems of the last update() with complete cells and with atoms as the list has them.
  const SystemsView& points() const { return points_; }
  const PairGrid& grid() const { return grid_; }

 private:
  bool same_systems(const SystemsView& systems) const;
  /// What is to be compared with cutoff + skin, over all systems; moves atoms that have crossed whole cells.
  double needed(const SystemsView& systems, double cutoff, int threads);
  double needed_by(const SystemsView& systems, int32_t system, double cutoff, bool refold, int threads);
  void fold(const SystemsView& systems, int threads);
  void fold_one(const SystemsView& systems, int32_t system);

  double held_ = -1;  ///< skin of the list, -1: there is none
  SystemsView points_;
  std::vector<int32_t> starts_, types_;
  std::vector<uint8_t> periodic_;
  std::vector<double> positions_, cells_;     ///< of points_
  std::vector<double> built_at_, built_for_;  ///< the same when the list was made
  std::vector<int32_t> images_;               ///< (atoms,3) cell vectors that are taken off a position
  PairGrid grid_;
};

}  // namespace clebsch
