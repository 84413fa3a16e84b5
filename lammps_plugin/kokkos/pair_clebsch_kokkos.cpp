// SPDX-License-Identifier: GPL-2.0-only
#include "kokkos/pair_clebsch_kokkos.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "atom_kokkos.h"
#include "atom_masks.h"
#include "comm.h"
#include "error.h"
#include "force.h"
#include "kokkos.h"
#include "kokkos/step_kokkos.h"
#include "memory_kokkos.h"
#include "neigh_request.h"
#include "neighbor.h"
#include "pair/model_loading.h"

static_assert(std::is_same_v<X_FLOAT, double> && std::is_same_v<F_FLOAT, double>,
              "pair_style clebsch/kk: expected Kokkos's precision double (LMP_PRECISION 2)");

using namespace LAMMPS_NS;
using clebsch_lammps::StepTimes;

namespace {

template <class DeviceType>
constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename DeviceType::memory_space>::accessible;

}  // namespace

template <class DeviceType>
PairClebschKokkos<DeviceType>::PairClebschKokkos(LAMMPS* lmp)
    : PairClebsch(lmp), atom_kokkos_(static_cast<AtomKokkos*>(atom)) {
  kokkosable = 1;
  reverse_comm_device = 1;
}

template <class DeviceType>
PairClebschKokkos<DeviceType>::~PairClebschKokkos() {
  if (copymode) return;
  Kokkos::fence();  // kernels may still read the model's arrays
  free_per_atom();
}

template <class DeviceType>
std::string PairClebschKokkos<DeviceType>::choose_model_device() {
  padded_ = false;
  if constexpr (on_host<DeviceType>) {
    padded_ = settings_.device != "cuda";  // auto: where Kokkos computes
    return padded_ ? "cpu:padded" : PairClebsch::choose_model_device();
  } else {
    return clebsch_lammps::choose_device(lmp, settings_.device, Kokkos::device_id());
  }
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::init_style() {
  check_model();
  here_ = on_host<DeviceType> ? padded_ : model_->device() != "cpu";
  execution_space = here_ ? ExecutionSpaceFromDevice<DeviceType>::space : Host;
  datamask_read = here_ ? X_MASK | F_MASK | TYPE_MASK | ENERGY_MASK | VIRIAL_MASK : ALL_MASK;
  datamask_modify = here_ ? F_MASK | ENERGY_MASK | VIRIAL_MASK : ALL_MASK;
  if (!here_ && !on_host<DeviceType> && comm->me == 0)
    error->warning(FLERR, "Pair style clebsch/kk: the model runs on the CPU, and every step copies atoms to the host");
  PairClebsch::init_style();
  const auto& meta = model_->metadata();
  using Graph = clebsch_lammps::GraphKokkos<DeviceType>;
  if (meta.layers > Graph::kMostLayers)
    error->all(FLERR, "Pair style clebsch/kk: expected a model of at most {} layers, got {}", Graph::kMostLayers,
               meta.layers);
  graph_.set_types(model_type_, meta.pair_cutoffs, static_cast<int>(meta.type_names.size()), meta.layers);
  there_ = {};
  laps_.forget();
}

template <class DeviceType>
NeighRequest* PairClebschKokkos<DeviceType>::request_list(bool ghost_rows) {
  NeighRequest* request = PairClebsch::request_list(ghost_rows);
  if (here_) {
    constexpr bool device = std::is_same_v<DeviceType, LMPDeviceType>;
    request->set_kokkos_host(!device);
    request->set_kokkos_device(device);
  }
  return request;
}

template <class DeviceType>
PairClebsch::NodeCounts PairClebschKokkos<DeviceType>::node_counts() const {
  if (!here_) return PairClebsch::node_counts();
  const auto& counts = graph_.counts();
  return {counts.owned, counts.nodes};
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::finish() {
  if (here_) stop_at_faults(graph_.read_faults(), true);
  times();
  PairClebsch::finish();
}

template <class DeviceType>
const clebsch_lammps::StepTimes& PairClebschKokkos<DeviceType>::times() {
  measure([&] { laps_.collect(times_); });
  return times_;
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::free_per_atom() {
  // Without a count LAMMPS allocates its own arrays again, should the model run on the CPU next.
  if (k_eatom_.extent(0) > 0) memoryKK->destroy_kokkos(k_eatom_, eatom), maxeatom = 0;
  if (k_vatom_.extent(0) > 0) memoryKK->destroy_kokkos(k_vatom_, vatom), maxvatom = 0;
  if (k_cvatom_.extent(0) > 0) memoryKK->destroy_kokkos(k_cvatom_, cvatom), maxcvatom = 0;
  k_eatom_ = {};
  k_vatom_ = {};
  k_cvatom_ = {};
}

template <class DeviceType>
double PairClebschKokkos<DeviceType>::memory_usage() {
  return PairClebsch::memory_usage() + graph_.memory_usage() +
         static_cast<double>(owner_.extent(0) * sizeof(int) + reverse_.extent(0) * sizeof(double));
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::make_forward_room() {
  const int all = atom->nlocal + atom->nghost;
  if (static_cast<int>(owner_.extent(0)) < all)
    owner_ = DAT::tdual_int_1d("clebsch:owner", static_cast<std::size_t>(1.3 * all) + 16);
  owner_.clear_sync_state();
  owner_.template modify<DeviceType>();
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::find_owners() {
  make_forward_room();
  const int local = atom->nlocal, all = local + atom->nghost;
  const auto owner = owner_.template view<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:owners", Kokkos::RangePolicy<Execution>(0, all),
      KOKKOS_LAMBDA(const int i) { owner(i) = i < local ? i : -1; });
  // LAMMPS calls the swaps in order: when a ghost is a copy of another ghost, that one has its owner's index already.
  comm->forward_comm(this, clebsch_lammps::Communication::kForwardSize);
  owner_.template sync<DeviceType>();
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::refresh_ghost_types() {
  if (!here_) {
    PairClebsch::refresh_ghost_types();
    return;
  }
  make_forward_room();
  const int local = atom->nlocal, all = local + atom->nghost;
  atom_kokkos_->sync(execution_space, TYPE_MASK);
  const auto type = atom_kokkos_->k_type.template view<DeviceType>();
  const auto forwarded = owner_.template view<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:types", Kokkos::RangePolicy<Execution>(0, all), KOKKOS_LAMBDA(const int i) { forwarded(i) = type(i); });
  comm->forward_comm(this, clebsch_lammps::Communication::kForwardSize);
  owner_.template sync<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:ghost_types", Kokkos::RangePolicy<Execution>(local, all),
      KOKKOS_LAMBDA(const int i) { type(i) = forwarded(i); });
  atom_kokkos_->modified(execution_space, TYPE_MASK);
}

template <class DeviceType>
int PairClebschKokkos<DeviceType>::pack_forward_comm(int n, int* list, double* buf, int pbc_flag, int* pbc) {
  if (!here_) return PairClebsch::pack_forward_comm(n, list, buf, pbc_flag, pbc);
  owner_.sync_host();
  for (int k = 0; k < n; ++k) buf[k] = owner_.h_view(list[k]);
  return n;
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::unpack_forward_comm(int n, int first, double* buf) {
  if (!here_) return PairClebsch::unpack_forward_comm(n, first, buf);
  owner_.sync_host();
  for (int k = 0; k < n; ++k) owner_.h_view(first + k) = static_cast<int>(buf[k]);
  owner_.modify_host();
}

template <class DeviceType>
int PairClebschKokkos<DeviceType>::pack_reverse_comm(int n, int first, double* buf) {
  if (!here_) return PairClebsch::pack_reverse_comm(n, first, buf);
  reverse_.sync_host();
  const double* from = reverse_.h_view.data() + static_cast<std::size_t>(first) * width_;
  std::copy(from, from + static_cast<std::size_t>(n) * width_, buf);
  return n * width_;
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::unpack_reverse_comm(int n, int* list, double* buf) {
  if (!here_) return PairClebsch::unpack_reverse_comm(n, list, buf);
  reverse_.sync_host();
  for (int k = 0; k < n; ++k)
    for (int c = 0; c < width_; ++c)
      reverse_.h_view(static_cast<std::size_t>(list[k]) * width_ + c) += buf[k * width_ + c];
  reverse_.modify_host();
}

template <class DeviceType>
int PairClebschKokkos<DeviceType>::pack_forward_comm_kokkos(int n, DAT::tdual_int_1d sendlist,
                                                            DAT::tdual_xfloat_1d& buf, int, int*) {
  owner_.template sync<DeviceType>();
  const auto owner = owner_.template view<DeviceType>();
  const auto list = sendlist.template view<DeviceType>();
  const auto to = buf.template view<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:pack_owners", Kokkos::RangePolicy<Execution>(0, n),
      KOKKOS_LAMBDA(const int k) { to(k) = owner(list(k)); });
  return n;
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::unpack_forward_comm_kokkos(int n, int first, DAT::tdual_xfloat_1d& buf) {
  owner_.template sync<DeviceType>();
  const auto owner = owner_.template view<DeviceType>();
  const auto from = buf.template view<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:unpack_owners", Kokkos::RangePolicy<Execution>(0, n),
      KOKKOS_LAMBDA(const int k) { owner(first + k) = static_cast<int>(from(k)); });
  owner_.template modify<DeviceType>();
}

template <class DeviceType>
int PairClebschKokkos<DeviceType>::pack_reverse_comm_kokkos(int n, int first, DAT::tdual_xfloat_1d& buf) {
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
void PairClebschKokkos<DeviceType>::unpack_reverse_comm_kokkos(int n, DAT::tdual_int_1d sendlist,
                                                               DAT::tdual_xfloat_1d& buf) {
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

namespace LAMMPS_NS {
template class PairClebschKokkos<LMPDeviceType>;
#ifdef LMP_KOKKOS_GPU
template class PairClebschKokkos<LMPHostType>;
#endif
}  // namespace LAMMPS_NS
