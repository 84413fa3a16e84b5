// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What the pair style sends between atoms and their ghost copies. Pair's pack and unpack callbacks land here.
#include <vector>

#include "pointers.h"

namespace LAMMPS_NS {
class Pair;
}

namespace clebsch_lammps {

/// Two exchanges, both collective:
///  - forward, one number an atom: the local index of each ghost's owner (one rank alone: the owner is always here), or
///    its owner's type (several ranks);
///  - reverse, up to 9 numbers an atom: sums of ghosts' forces or virials back to their owners. LAMMPS does this itself
///    with newton on; with newton off on several ranks the style has to.
class Communication : protected LAMMPS_NS::Pointers {
 public:
  static constexpr int kForwardSize = 1;
  static constexpr int kReverseSize = 9;

  explicit Communication(LAMMPS_NS::LAMMPS* lmp) : Pointers(lmp) {}

  /// owner()[i] for every local and ghost atom; to be called after each neighbour list build.
  void find_owners(LAMMPS_NS::Pair* pair);
  const std::vector<int>& owner() const { return forwarded_; }

  /// Gives ghosts the types of their owners, as LAMMPS does only with a new neighbour list. Overwrites owner(): a style
  /// uses one of the two.
  void refresh_ghost_types(LAMMPS_NS::Pair* pair);

  /// Zeroes the reverse buffer: `width` numbers for every local and ghost atom.
  void begin_reverse(int width);
  double* row(int atom_index) { return buffer_.data() + static_cast<std::size_t>(atom_index) * width_; }
  /// Adds the ghosts' rows to their owners' rows.
  void reverse(LAMMPS_NS::Pair* pair);

  int pack_forward(int n, const int* list, double* buf) const;
  void unpack_forward(int n, int first, const double* buf);
  int pack_reverse(int n, int first, double* buf) const;
  void unpack_reverse(int n, const int* list, const double* buf);

  double memory_usage() const;

 private:
  std::vector<int> forwarded_;
  std::vector<double> buffer_;
  int width_ = 0;
};

}  // namespace clebsch_lammps
