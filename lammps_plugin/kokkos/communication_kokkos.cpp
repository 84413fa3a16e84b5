// SPDX-License-Identifier: GPL-2.0-only
#include "kokkos/communication_kokkos.h"

#include <algorithm>

#include "atom_kokkos.h"
#include "atom_masks.h"
#include "comm.h"
#include "comm/communication.h"

namespace clebsch_lammps {

template <class DeviceType>
CommunicationKokkos<DeviceType>::CommunicationKokkos(LAMMPS_NS::LAMMPS* lmp)
    : lmp_(lmp), atom_(static_cast<LAMMPS_NS::AtomKokkos*>(lmp->atom)) {}

template <class DeviceType>
void CommunicationKokkos<DeviceType>::make_forward_room() {
  const int all = atom_->nlocal + atom_->nghost;
  if (static_cast<int>(forwarded_.extent(0)) < all)
    forwarded_ = DAT::tdual_int_1d("clebsch:forwarded", static_cast<std::size_t>(1.3 * all) + 16);
  forwarded_.clear_sync_state();
  forwarded_.template modify<DeviceType>();
}

template <class DeviceType>
void CommunicationKokkos<DeviceType>::find_owners(LAMMPS_NS::Pair* pair) {
  make_forward_room();
  const int local = atom_->nlocal, all = local + atom_->nghost;
  const auto owner = forwarded_.template view<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:owners", Kokkos::RangePolicy<Execution>(0, all),
      KOKKOS_LAMBDA(const int i) { owner(i) = i < local ? i : -1; });
  // Swaps come in order, so a ghost made from a ghost receives an index that is already resolved.
  lmp_->comm->forward_comm(pair, Communication::kForwardSize);
  forwarded_.template sync<DeviceType>();
}

/// The rank of the owner of every ghost, in owners().
template <class DeviceType>
void CommunicationKokkos<DeviceType>::find_ranks(LAMMPS_NS::Pair* pair) {
  make_forward_room();
  const auto rank = forwarded_.template view<DeviceType>();
  const int me = lmp_->comm->me;
  Kokkos::parallel_for(
      "clebsch:ranks", Kokkos::RangePolicy<Execution>(0, atom_->nlocal), KOKKOS_LAMBDA(const int i) { rank(i) = me; });
  lmp_->comm->forward_comm(pair, Communication::kForwardSize);
}

template <class DeviceType>
std::vector<AtomHome> CommunicationKokkos<DeviceType>::find_homes(LAMMPS_NS::Pair* pair) {
  std::vector<AtomHome> homes(atom_->nghost);
  const auto read = [&](int AtomHome::*part) {
    forwarded_.sync_host();
    for (int k = 0; k < atom_->nghost; ++k) homes[k].*part = forwarded_.view_host()(atom_->nlocal + k);
  };
  find_owners(pair);
  read(&AtomHome::index);
  find_ranks(pair);
  read(&AtomHome::rank);
  return homes;
}

template <class DeviceType>
void CommunicationKokkos<DeviceType>::refresh_ghost_types(LAMMPS_NS::Pair* pair, LAMMPS_NS::ExecutionSpace space) {
  make_forward_room();
  const int local = atom_->nlocal, all = local + atom_->nghost;
  atom_->sync(space, TYPE_MASK);
  const auto type = atom_->k_type.template view<DeviceType>();
  const auto forwarded = forwarded_.template view<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:types", Kokkos::RangePolicy<Execution>(0, all), KOKKOS_LAMBDA(const int i) { forwarded(i) = type(i); });
  lmp_->comm->forward_comm(pair, Communication::kForwardSize);
  forwarded_.template sync<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:ghost_types", Kokkos::RangePolicy<Execution>(local, all),
      KOKKOS_LAMBDA(const int i) { type(i) = forwarded(i); });
  atom_->modified(space, TYPE_MASK);
}

template <class DeviceType>
void CommunicationKokkos<DeviceType>::begin_reverse(int width) {
  width_ = width;
  const std::size_t need = static_cast<std::size_t>(atom_->nlocal + atom_->nghost) * width;
  if (reverse_.extent(0) < need) {
    using Reverse = decltype(reverse_);
    reverse_ = Reverse("clebsch:reverse", static_cast<std::size_t>(1.3 * static_cast<double>(need)) + 16);
  }
  Kokkos::deep_copy(Execution(), rows(), 0.0);
  reverse_.clear_sync_state();
  reverse_.template modify<DeviceType>();
}

template <class DeviceType>
void CommunicationKokkos<DeviceType>::reverse(LAMMPS_NS::Pair* pair) {
  lmp_->comm->reverse_comm(pair, width_);
  reverse_.template sync<DeviceType>();
}

template <class DeviceType>
int CommunicationKokkos<DeviceType>::pack_forward(int n, const int* list, double* buf) {
  forwarded_.sync_host();
  for (int k = 0; k < n; ++k) buf[k] = forwarded_.view_host()(list[k]);
  return n;
}

template <class DeviceType>
void CommunicationKokkos<DeviceType>::unpack_forward(int n, int first, const double* buf) {
  forwarded_.sync_host();
  for (int k = 0; k < n; ++k) forwarded_.view_host()(first + k) = static_cast<int>(buf[k]);
  forwarded_.modify_host();
}

template <class DeviceType>
int CommunicationKokkos<DeviceType>::pack_reverse(int n, int first, double* buf) {
  reverse_.sync_host();
  const double* from = reverse_.view_host().data() + static_cast<std::size_t>(first) * width_;
  std::copy(from, from + static_cast<std::size_t>(n) * width_, buf);
  return n * width_;
}

template <class DeviceType>
void CommunicationKokkos<DeviceType>::unpack_reverse(int n, const int* list, const double* buf) {
  reverse_.sync_host();
  for (int k = 0; k < n; ++k)
    for (int c = 0; c < width_; ++c)
      reverse_.view_host()(static_cast<std::size_t>(list[k]) * width_ + c) += buf[k * width_ + c];
  reverse_.modify_host();
}

template <class DeviceType>
int CommunicationKokkos<DeviceType>::pack_forward(int n, List sendlist, Buffer& buf) {
  forwarded_.template sync<DeviceType>();
  const auto owner = forwarded_.template view<DeviceType>();
  const auto list = sendlist.template view<DeviceType>();
  const auto to = buf.template view<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:pack_owners", Kokkos::RangePolicy<Execution>(0, n),
      KOKKOS_LAMBDA(const int k) { to(k) = owner(list(k)); });
  return n;
}

template <class DeviceType>
void CommunicationKokkos<DeviceType>::unpack_forward(int n, int first, Buffer& buf) {
  forwarded_.template sync<DeviceType>();
  const auto owner = forwarded_.template view<DeviceType>();
  const auto from = buf.template view<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:unpack_owners", Kokkos::RangePolicy<Execution>(0, n),
      KOKKOS_LAMBDA(const int k) { owner(first + k) = static_cast<int>(from(k)); });
  forwarded_.template modify<DeviceType>();
}

template <class DeviceType>
int CommunicationKokkos<DeviceType>::pack_reverse(int n, int first, Buffer& buf) {
  reverse_.template sync<DeviceType>();
  const auto reverse = reverse_.template view<DeviceType>();
  const auto to = buf.template view<DeviceType>();
  const std::size_t begin = static_cast<std::size_t>(first) * width_;
  Kokkos::parallel_for(
      "clebsch:pack_reverse", Kokkos::RangePolicy<Execution>(0, n * width_),
      KOKKOS_LAMBDA(const int k) { to(k) = reverse(begin + k); });
  return n * width_;
}

template <class DeviceType>
void CommunicationKokkos<DeviceType>::unpack_reverse(int n, List sendlist, Buffer& buf) {
  reverse_.template sync<DeviceType>();
  const auto reverse = reverse_.template view<DeviceType>();
  const auto list = sendlist.template view<DeviceType>();
  const auto from = buf.template view<DeviceType>();
  const int width = width_;
  // An atom is in a swap's list once, so nobody else adds to its row.
  Kokkos::parallel_for(
      "clebsch:unpack_reverse", Kokkos::RangePolicy<Execution>(0, n * width), KOKKOS_LAMBDA(const int k) {
        reverse(static_cast<std::size_t>(list(k / width)) * width + k % width) += from(k);
      });
  reverse_.template modify<DeviceType>();
}

template <class DeviceType>
double CommunicationKokkos<DeviceType>::memory_usage() const {
  return static_cast<double>(forwarded_.extent(0) * sizeof(int) + reverse_.extent(0) * sizeof(double));
}

template class CommunicationKokkos<LMPDeviceType>;
#ifdef LMP_KOKKOS_GPU
template class CommunicationKokkos<LMPHostType>;
#endif

}  // namespace clebsch_lammps
