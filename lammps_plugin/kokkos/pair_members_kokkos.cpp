// SPDX-License-Identifier: GPL-2.0-only
// What compute clebsch/committee needs of clebsch/kk: members' steps are those of the host.
#include <utility>
#include <vector>

#include "atom_kokkos.h"
#include "atom_masks.h"
#include "kokkos/pair_clebsch_kokkos.h"
#include "neigh_list.h"
#include "neighbor.h"
#include "npair.h"
#include "pair/ghost_cutoff.h"

using namespace LAMMPS_NS;

template <class DeviceType>
int PairClebschKokkos<DeviceType>::member_list_flags() const {
  if (!device_) return PairClebsch::member_list_flags();
  const bool ghost_rows = clebsch_lammps::GhostCutoff::needs_rows(communication_.mode(), model_->metadata());
  // LAMMPS makes no occasional list with ghosts' rows.
  return NeighConst::REQ_FULL | (ghost_rows ? NeighConst::REQ_GHOST : NeighConst::REQ_OCCASIONAL);
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::begin_members(NeighList* asked) {
  if (!device_) {
    PairClebsch::begin_members(asked);
    return;
  }
  device_->check();
  atom_kokkos_->sync(Host, ALL_MASK);
  if (asked->occasional) {
    // LAMMPS keeps it until it makes others. Atoms have moved before it was made and move on after it, by up to half a
    // skin either time: it may lack pairs that have come near.
    if (asked->np) asked->np->last_build = -1;
    neighbor->build_one(asked);
  }
  execution_space = Host;
  member_list_ = asked;
  communication_.find_owners(this);
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::end_members() {
  member_list_ = nullptr;
  if (device_) execution_space = ExecutionSpaceFromDevice<DeviceType>::space;
}

/// Forces are where the model left them still: a step that nobody reads copies nothing.
template <class DeviceType>
void PairClebschKokkos<DeviceType>::own_forces(std::vector<double>& forces) {
  if (!device_) {
    PairClebsch::own_forces(forces);
    return;
  }
  const double* const there = device_->there().forces;
  const int nodes = there ? device_->counts().all : 0;
  const auto atoms = Kokkos::create_mirror_view_and_copy(
      Kokkos::HostSpace(), Kokkos::subview(device_->device_atoms(), std::make_pair(0, nodes)));
  const auto rows =
      Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), Source(there, 3 * static_cast<std::size_t>(nodes)));
  sum_forces(std::vector<int>(atoms.data(), atoms.data() + nodes), nodes, rows.data(), forces);
}

// Members of the class that pair_clebsch_kokkos.cpp instantiates.
#define CLEBSCH_INSTANTIATE(DEVICE)                                   \
  template int PairClebschKokkos<DEVICE>::member_list_flags() const;  \
  template void PairClebschKokkos<DEVICE>::begin_members(NeighList*); \
  template void PairClebschKokkos<DEVICE>::end_members();             \
  template void PairClebschKokkos<DEVICE>::own_forces(std::vector<double>&)

namespace LAMMPS_NS {
CLEBSCH_INSTANTIATE(LMPDeviceType);
#ifdef LMP_KOKKOS_GPU
CLEBSCH_INSTANTIATE(LMPHostType);
#endif
}  // namespace LAMMPS_NS
