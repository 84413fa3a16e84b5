// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Communication with its buffers where Kokkos computes.
#include <vector>

#include "comm/halo_nodes.h"
#include "kokkos/kk_types.h"
#include "lammps.h"

namespace LAMMPS_NS {
class AtomKokkos;
class Pair;
}  // namespace LAMMPS_NS

namespace clebsch_lammps {

/// The two exchanges of Communication. LAMMPS takes buffers of the host or of the device as it likes, so there are both
/// kinds of pack and unpack. Everything is public because nvcc wants it so of functions with kernels in them.
template <class DeviceType>
class CommunicationKokkos {
 public:
  using Execution = typename DeviceType::execution_space;
  using List = DAT::tdual_int_1d;
  using Buffer = CommBuffer;

  explicit CommunicationKokkos(LAMMPS_NS::LAMMPS* lmp);

  /// Local index of the owner of every local and ghost atom, in owners(): to be called with each new neighbour list. A
  /// ghost's index is that on its owner's rank.
  void find_owners(LAMMPS_NS::Pair* pair);
  /// The owner of every ghost, on whichever rank. Collective; not beside owners().
  std::vector<AtomHome> find_homes(LAMMPS_NS::Pair* pair);
  auto owners() const { return forwarded_.template view<DeviceType>(); }
  /// Brings ghosts the types of their owners; `space` is the pair style's. Not beside owners().
  void refresh_ghost_types(LAMMPS_NS::Pair* pair, LAMMPS_NS::ExecutionSpace space);

  /// Zeroes rows(): `width` numbers for every local and ghost atom, one row after the other.
  void begin_reverse(int width);
  auto rows() const { return reverse_.template view<DeviceType>(); }
  /// Adds the ghosts' rows to their owners' rows.
  void reverse(LAMMPS_NS::Pair* pair);

  int pack_forward(int n, const int* list, double* buf);
  void unpack_forward(int n, int first, const double* buf);
  int pack_reverse(int n, int first, double* buf);
  void unpack_reverse(int n, const int* list, const double* buf);
  int pack_forward(int n, List list, Buffer& buf);
  void unpack_forward(int n, int first, Buffer& buf);
  int pack_reverse(int n, int first, Buffer& buf);
  void unpack_reverse(int n, List list, Buffer& buf);

  double memory_usage() const;

  void find_ranks(LAMMPS_NS::Pair* pair);

 private:
  void make_forward_room();

  LAMMPS_NS::LAMMPS* lmp_;
  LAMMPS_NS::AtomKokkos* atom_;
  DAT::tdual_int_1d forwarded_;                                                    ///< by LAMMPS index
  Kokkos::DualView<double*, LMPDeviceType::array_layout, LMPDeviceType> reverse_;  ///< (local + ghost atoms, width)
  int width_ = 0;
};

}  // namespace clebsch_lammps
