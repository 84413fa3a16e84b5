// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Which nodes a rank has when features are exchanged: its own atoms, and one for each atom of another rank, however
// many ghosts are images of it. Neither LAMMPS nor MPI, so that it is tested alone.
#include <vector>

namespace clebsch_lammps {

/// Where an atom is owned.
struct AtomHome {
  int rank = 0;
  int index = 0;  ///< its local index there
};
inline bool operator==(const AtomHome& a, const AtomHome& b) { return a.rank == b.rank && a.index == b.index; }
inline bool operator<(const AtomHome& a, const AtomHome& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.index < b.index;
}

struct HaloNodes {
  /// (local + ghost atoms) the atom here whose node stands for each: itself for an own atom, an own atom for its
  /// images, the representative for images of an atom of another rank; -1 for a ghost that is not needed.
  std::vector<int> node_atom;
  /// (remote nodes) one ghost of each: its forces and virials go to the owner through LAMMPS's reverse communication.
  std::vector<int> representatives;
  /// (remote nodes) ascending by rank, then index, so that what a rank sends arrives in place.
  std::vector<AtomHome> homes;
};

/// `ghosts` (nghost): where ghost local + k is owned. `needed` (local + nghost): whether an own atom has it as a
/// neighbour. Of several ghosts of one atom the first is the representative.
HaloNodes find_halo_nodes(int me, int local, const std::vector<AtomHome>& ghosts, const std::vector<char>& needed);

}  // namespace clebsch_lammps
