// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What the pair style sends between atoms and their ghost copies. Pair's pack and unpack callbacks land here.
#include <vector>

#include "comm/halo_nodes.h"
#include "pointers.h"

namespace LAMMPS_NS {
class Pair;
}

namespace clebsch_lammps {

/// What stands for atoms beyond those that a rank owns.
enum class GhostMode {
  fold,    ///< one rank: ghosts are images of their owners, which are all here
  expand,  ///< ghosts are nodes of their own, as deep as the layers of the model reach
  halo,    ///< atoms of other ranks are nodes once, one cutoff deep; ranks exchange their features (comm/halo.h)
};

/// Two exchanges, both collective:
///  - forward, from owners to their ghosts, one number an atom. On one rank: the owner's local index. On several ranks:
///    the owner's rank and its index there, or the owner's type.
///  - reverse, up to 9 numbers an atom: sums of ghosts' forces or virials back to their owners. LAMMPS does this itself
///    with newton on; with newton off on several ranks the style has to.
class Communication : protected LAMMPS_NS::Pointers {
 public:
  static constexpr int kForwardSize = 1;
  static constexpr int kReverseSize = 9;

  explicit Communication(LAMMPS_NS::LAMMPS* lmp) : Pointers(lmp) {}

  void set_mode(GhostMode mode) { mode_ = mode; }
  GhostMode mode() const { return mode_; }
  bool folds() const { return mode_ == GhostMode::fold; }

  /// To be called with each new neighbour list: the owners of ghosts that are folded.
  void find_owners(LAMMPS_NS::Pair* pair);
  /// Local index of the owner of every local and ghost atom; null where ghosts are nodes.
  const int* owners() const { return folds() ? owners_.data() : nullptr; }
  /// The owner of every ghost, on whichever rank. Collective; to be called with each new neighbour list.
  std::vector<AtomHome> find_homes(LAMMPS_NS::Pair* pair);

  /// Where ghosts are nodes: brings them the types of their owners, as LAMMPS does with each of its neighbour lists.
  void refresh_ghost_types(LAMMPS_NS::Pair* pair);
  /// LAMMPS's type of every local and ghost atom at this step; valid until the next call.
  const int* types();

  /// Whether the sums of ghosts' rows are this class's to make: newton off, and ghosts are nodes.
  bool sums_ghosts() const;

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
  GhostMode mode_ = GhostMode::fold;
  std::vector<double> forwarded_;
  std::vector<int> owners_;
  std::vector<int> types_;  ///< types() where ghosts are folded
  std::vector<double> buffer_;
  int width_ = 0;
};

}  // namespace clebsch_lammps
