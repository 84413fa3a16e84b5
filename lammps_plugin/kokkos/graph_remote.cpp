// SPDX-License-Identifier: GPL-2.0-only
// The part of GraphKokkos for nodes of other ranks: once a list, what a plan of exchanges is made from goes to the
// host, and the nodes that follow come back.
#include <utility>

#include "kokkos/graph_kokkos.h"
#include "kokkos/make_room.h"

namespace clebsch_lammps {

template <class DeviceType>
void GraphKokkos<DeviceType>::mark_needed() {
  make_room(needed_, step_.all, "clebsch:needed");
  const auto neighbors = neighbors_;
  const auto type = step_.type;
  const Ints needed = needed_, atoms = atoms_, model_type = model_type_;
  const auto neighbor_count = neighbor_count_;
  const int local = step_.local, owned = counts_.owned;
  Kokkos::deep_copy(Execution(), needed, 0);
  if (owned == 0) return;
  Kokkos::parallel_for(
      "clebsch:mark_needed", Rows::policy(owned), KOKKOS_LAMBDA(const typename Rows::Policy::member_type& team) {
        const int node = team.league_rank() * team.team_size() + team.team_rank();
        if (node >= owned) return;
        const int i = atoms(node);
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, neighbor_count(i)), [&](const int k) {
          const int j = neighbors(i, k) & NEIGHMASK;
          if (j >= local && model_type(type(j)) >= 0) Kokkos::atomic_store(&needed(j), 1);
        });
      });
}

template <class DeviceType>
typename GraphKokkos<DeviceType>::Neighbours GraphKokkos<DeviceType>::read_neighbours() {
  mark_needed();
  const auto read = [](const Ints& ints, int size, auto& to) {
    const auto host =
        Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), Kokkos::subview(ints, std::make_pair(0, size)));
    to.assign(host.data(), host.data() + size);
  };
  Neighbours neighbours;
  read(needed_, step_.all, neighbours.needed);
  read(node_of_, step_.local, neighbours.row_of_atom);
  return neighbours;
}

template <class DeviceType>
void GraphKokkos<DeviceType>::set_remote(const std::vector<int>& node_atom, const std::vector<int>& representatives) {
  using Host = Kokkos::View<const int*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const auto write = [](const std::vector<int>& from, const Ints& to, int first) {
    const int size = static_cast<int>(from.size());
    if (size > 0)
      Kokkos::deep_copy(Kokkos::subview(to, std::make_pair(first, first + size)), Host(from.data(), from.size()));
  };
  make_room(node_atom_, step_.all, "clebsch:node_atom");
  write(node_atom, node_atom_, 0);
  const int owned = counts_.owned;
  write(representatives, atoms_, owned);
  remote_ = static_cast<int>(representatives.size());
  const Ints node_of = node_of_, atoms = atoms_;
  Kokkos::parallel_for(
      "clebsch:remote_nodes", Kokkos::RangePolicy<Execution>(owned, owned + remote_),
      KOKKOS_LAMBDA(const int node) { node_of(atoms(node)) = node; });
}

// Members of the class that graph_kokkos.cpp instantiates.
#define CLEBSCH_INSTANTIATE(DEVICE)                                                         \
  template void GraphKokkos<DEVICE>::mark_needed();                                         \
  template typename GraphKokkos<DEVICE>::Neighbours GraphKokkos<DEVICE>::read_neighbours(); \
  template void GraphKokkos<DEVICE>::set_remote(const std::vector<int>&, const std::vector<int>&)
CLEBSCH_INSTANTIATE(LMPDeviceType);
#ifdef LMP_KOKKOS_GPU
CLEBSCH_INSTANTIATE(LMPHostType);
#endif

}  // namespace clebsch_lammps
