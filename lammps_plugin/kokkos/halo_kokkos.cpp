// SPDX-License-Identifier: GPL-2.0-only
#include "kokkos/halo_kokkos.h"

#include <utility>

#include "atom.h"
#include "force.h"
#include "kokkos/make_room.h"
#include "model/feature_exchange.h"

namespace clebsch_lammps {

template <class DeviceType>
void HaloKokkos<DeviceType>::make_plan(Graph& graph) {
  const std::vector<AtomHome> homes = communication_.find_homes(pair_);
  const auto neighbours = graph.read_neighbours();
  halo_.make_plan(neighbours.needed, homes, neighbours.row_of_atom, graph.counts().owned);
  graph.set_remote(halo_.node_atoms(), halo_.remote());
  halo_.tell(!lmp_->force->newton_pair);
}

template <class DeviceType>
void HaloKokkos<DeviceType>::begin_reverse(int nodes, int width) {
  nodes_ = nodes;
  width_ = width;
  const std::int64_t size = std::int64_t{nodes} * width;
  make_room(rows_, size, "clebsch:returned");
  if (size > 0) Kokkos::deep_copy(Execution(), Kokkos::subview(rows_, std::make_pair(std::int64_t{0}, size)), 0.0);
}

template <class DeviceType>
void HaloKokkos<DeviceType>::reverse(void* stream) {
  // An exchange in the host's memory reads what kernels have written.
  if (Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename DeviceType::memory_space>::accessible) Execution().fence();
  clebsch::FeatureRows rows;
  rows.data = rows_.data();
  rows.nodes = nodes_;
  rows.width = width_;
  rows.dtype = clebsch::Dtype::float64;
  rows.stream = stream;
  halo_.return_rows(rows);
}

template class HaloKokkos<LMPDeviceType>;
#ifdef LMP_KOKKOS_GPU
template class HaloKokkos<LMPHostType>;
#endif

}  // namespace clebsch_lammps
