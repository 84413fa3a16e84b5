// SPDX-License-Identifier: GPL-2.0-only
#include "kokkos/pair_clebsch_kokkos.h"

#include <type_traits>

#include "atom_kokkos.h"
#include "atom_masks.h"
#include "comm.h"
#include "comm/rank_device.h"
#include "comm/stop_rank.h"
#include "error.h"
#include "force.h"
#include "kokkos.h"
#include "memory_kokkos.h"
#include "neigh_request.h"
#include "neighbor.h"
#include "pair/run_checks.h"
#include "update.h"

using namespace LAMMPS_NS;
using clebsch_lammps::StepTimes;

namespace {

template <class DeviceType>
constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename DeviceType::memory_space>::accessible;

}  // namespace

template <class DeviceType>
PairClebschKokkos<DeviceType>::PairClebschKokkos(LAMMPS* lmp)
    : PairClebsch(lmp), atom_kokkos_(static_cast<AtomKokkos*>(atom)), exchange_(lmp) {
  kokkosable = 1;
  reverse_comm_device = 1;
}

template <class DeviceType>
PairClebschKokkos<DeviceType>::~PairClebschKokkos() {
  if (copymode) return;
  Kokkos::fence();  // kernels may still write to the arrays of atoms
  free_per_atom();
}

template <class DeviceType>
std::string PairClebschKokkos<DeviceType>::choose_model_device() {
  if constexpr (on_host<DeviceType>) {
    // auto: where Kokkos computes
    return settings_.device == "cuda" ? PairClebsch::choose_model_device() : "cpu:padded";
  } else {
    return clebsch_lammps::choose_device(lmp, settings_.device, Kokkos::device_id());
  }
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::make_source(const std::string& device) {
  const bool in_place = on_host<DeviceType> == (model_->device() == "cpu");
  if (in_place) {
    device_ = std::make_unique<clebsch_lammps::DeviceSource<DeviceType>>(lmp, model_, model_type_, times_);
  } else {
    PairClebsch::make_source(device);
  }
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::forget_model() {
  device_.reset();
  halo_kokkos_.reset();
  PairClebsch::forget_model();
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::init_style() {
  check_model();
  execution_space = device_ ? ExecutionSpaceFromDevice<DeviceType>::space : Host;
  datamask_read = device_ ? X_MASK | F_MASK | TYPE_MASK | ENERGY_MASK | VIRIAL_MASK : ALL_MASK;
  datamask_modify = device_ ? F_MASK | ENERGY_MASK | VIRIAL_MASK : ALL_MASK;
  if (!device_ && !on_host<DeviceType> && comm->me == 0)
    error->warning(FLERR, "Pair style clebsch/kk: the model runs on the CPU, and every step copies atoms to the host");
  if (comm->nprocs > 1) atom_kokkos_->sync(Host, TYPE_MASK);  // the choice of a way counts atoms
  halo_kokkos_.reset();
  PairClebsch::init_style();
  if (!device_) return;
  device_->init_run();
  if (halo_) halo_kokkos_ = std::make_unique<clebsch_lammps::HaloKokkos<DeviceType>>(lmp, *halo_, exchange_, this);
}

template <class DeviceType>
std::string PairClebschKokkos<DeviceType>::exchange_problem() const {
  if (device_ && model_->metadata().layers == 1) return "";  // forces alone
  return PairClebsch::exchange_problem();
}

/// With newton on LAMMPS sends ghosts' forces itself. With newton off it leaves them to the style, and where MPI takes
/// no pointers to a GPU's memory LAMMPS's communication for pair styles goes through arrays of all atoms on the host.
template <class DeviceType>
bool PairClebschKokkos<DeviceType>::returns_forces() const {
  return device_ && !force->newton_pair;
}

template <class DeviceType>
NeighRequest* PairClebschKokkos<DeviceType>::request_list(bool ghost_rows) {
  NeighRequest* request = PairClebsch::request_list(ghost_rows);
  if (device_) {
    constexpr bool device = std::is_same_v<DeviceType, LMPDeviceType>;
    request->set_kokkos_host(!device);
    request->set_kokkos_device(device);
  }
  return request;
}

template <class DeviceType>
const clebsch_lammps::StepSource* PairClebschKokkos<DeviceType>::source() const {
  return device_ ? device_.get() : PairClebsch::source();
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::finish() {
  if (device_) device_->check();
  times();
  PairClebsch::finish();
}

template <class DeviceType>
const StepTimes& PairClebschKokkos<DeviceType>::times() {
  if (device_) device_->collect_times();
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
  return PairClebsch::memory_usage() + exchange_.memory_usage() + (halo_kokkos_ ? halo_kokkos_->memory_usage() : 0.0);
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::compute(int eflag, int vflag) {
  if (!device_) {
    free_per_atom();
    atom_kokkos_->sync(execution_space, datamask_read);
    PairClebsch::compute(eflag, vflag);
    atom_kokkos_->modified(execution_space, datamask_modify);
  } else {
    clebsch_lammps::guard_step(lmp, "clebsch/kk", [&] { compute_in_place(eflag, vflag); });
  }
}

/// A step on a graph in Kokkos's memory.
template <class DeviceType>
void PairClebschKokkos<DeviceType>::compute_in_place(int eflag, int vflag) {
  ev_init(eflag, vflag, 0);
  if (check_run_)
    atom_kokkos_->sync(Host, TYPE_MASK | MASK_MASK | SPECIAL_MASK);
  else if (neighbor->ago == 0 && clebsch_lammps::drops_bonded(lmp))
    atom_kokkos_->sync(Host, TYPE_MASK | SPECIAL_MASK);
  begin_step();
  grow_per_atom();
  device_->start_clock();
  device_->compute(static_cast<NeighListKokkos<DeviceType>*>(list), step_of_arrays(), request_, result_,
                   halo_kokkos_.get());
  last_step_ = update->ntimestep;
  device_->lap(StepTimes::kModel);
  const clebsch::DeviceResult& there = device_->there();

  // Every rank comes through here, also without atoms: with newton off the sums below are collective.
  const bool only_check_energies = !eflag_global && !eflag_atom;
  add_to_atoms(atom_kokkos_->k_f.template view<DeviceType>(), there.forces, 3, clebsch_lammps::kBadForce,
               only_check_energies ? there.atomic_energy : nullptr);
  // run and minimize do the same after the call; fixes and computes that call the style themselves do not.
  atom_kokkos_->modified(execution_space, eflag || vflag ? datamask_modify : F_MASK);
  if (!only_check_energies) add_energies();
  if (vflag_global) add_virial();
  if (eflag_atom) k_eatom_.sync_host();
  if (vflag_atom) {
    add_to_atoms(k_vatom_.template view<DeviceType>(), there.atom_virial, 6, 0);
    k_vatom_.sync_host();
  }
  if (cvflag_atom) {
    add_to_atoms(k_cvatom_.template view<DeviceType>(), there.centroid_virial, 9, 0);
    k_cvatom_.sync_host();
  }
  // Where the host has waited anyway a fault stops this step; on a GPU it otherwise comes to light with the next one.
  if (eflag_global || !device_->stream()) device_->check();
  device_->lap(StepTimes::kForces);
  if (!update->setupflag) return;
  device_->forget_times();  // the evaluation before the first step is not in LAMMPS's loop time
  times_.reset();
}

/// LAMMPS's arrays of this step, synchronised.
template <class DeviceType>
typename clebsch_lammps::GraphKokkos<DeviceType>::Step PairClebschKokkos<DeviceType>::step_of_arrays() {
  typename clebsch_lammps::GraphKokkos<DeviceType>::Step step;
  step.local = atom->nlocal;
  step.all = atom->nlocal + atom->nghost;
  step.new_list = list_watch_.is_new(lmp);
  if (halo_kokkos_) step.new_list = halo_kokkos_->is_new(step.new_list);
  step.mode = communication_.mode();
  const bool fold = communication_.folds();
  if (fold && step.new_list) exchange_.find_owners(this);
  if (fold) step.owner = exchange_.owners();
  atom_kokkos_->sync(execution_space, datamask_read);
  step.x = atom_kokkos_->k_x.template view<DeviceType>();
  step.type = atom_kokkos_->k_type.template view<DeviceType>();
  return step;
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::grow_per_atom() {
  const auto grow = [&](bool wanted, auto& view, auto*& rows, int room, const char* name) {
    if (!wanted) return;
    if (static_cast<int>(view.extent(0)) < room) {
      if (view.extent(0) > 0) {
        memoryKK->destroy_kokkos(view, rows);
      } else {
        memory->destroy(rows);  // of the base class
      }
      memoryKK->create_kokkos(view, rows, room, name);
    }
    Kokkos::deep_copy(Execution(), view.template view<DeviceType>(), 0.0);
    view.clear_sync_state();
    view.template modify<DeviceType>();
  };
  grow(eflag_atom, k_eatom_, eatom, maxeatom, "pair:eatom");
  grow(vflag_atom, k_vatom_, vatom, maxvatom, "pair:vatom");
  grow(cvflag_atom, k_cvatom_, cvatom, maxcvatom, "pair:cvatom");
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::add_energies() {
  const double* const energies = device_->there().atomic_energy;
  const int owned = energies ? device_->counts().owned : 0;
  const auto faults = device_->faults();
  const auto atoms = device_->device_atoms();
  const double factor = energy_factor_;
  const bool per_atom = eflag_atom != 0;
  const auto eatom_view = k_eatom_.template view<DeviceType>();
  if (owned == 0) return;
  double sum = 0;
  Kokkos::parallel_reduce(
      "clebsch:energies", Kokkos::RangePolicy<Execution>(0, owned),
      KOKKOS_LAMBDA(const int node, double& total) {
        const double energy = energies[node];
        total += energy;
        if (per_atom) eatom_view(atoms(node)) += factor * energy;
        if (!(energy - energy == 0.0)) Kokkos::atomic_or(&faults(0), std::int64_t{clebsch_lammps::kBadEnergy});
      },
      sum);
  if (eflag_global) eng_vdwl += factor * sum;
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::add_virial() {
  const double* const there = device_->there().virial;
  if (!there) return;
  double v[9];
  Kokkos::deep_copy(Kokkos::View<double*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(v, 9),
                    Source(there, 9));
  const double voigt[6] = {v[0], v[4], v[8], 0.5 * (v[1] + v[3]), 0.5 * (v[2] + v[6]), 0.5 * (v[5] + v[7])};
  for (int c = 0; c < 6; ++c) virial[c] += energy_factor_ * voigt[c];
}

/// Adds (nodes, width) numbers to atoms' rows; those that are not finite set `fault`, and owned nodes' `energies` that
/// are not (null: not looked at) kBadEnergy.
template <class DeviceType>
template <class Target>
void PairClebschKokkos<DeviceType>::add_to_atoms(const Target& target, const double* source, int width,
                                                 std::int64_t fault, const double* energies) {
  const auto counts = device_->counts();
  const int owned = source ? counts.owned : 0, nodes = source ? counts.all : 0;
  // With newton on LAMMPS sums the ghosts' rows of f, vatom and cvatom to their owners; with newton off nobody does.
  // Rows that are sent are those of nodes where ranks exchange features, else those of atoms.
  const bool send = communication_.sums_ghosts(), by_node = send && halo_kokkos_;
  if (by_node) {
    halo_kokkos_->begin_reverse(nodes, width);
  } else if (send) {
    exchange_.begin_reverse(width);
  }
  double* const sent = by_node ? halo_kokkos_->rows().data() : exchange_.rows().data();
  const auto atoms = device_->device_atoms();
  const auto faults = device_->faults();
  const double factor = energy_factor_;
  const Target to = target;
  Kokkos::parallel_for(
      "clebsch:add_to_atoms", Kokkos::RangePolicy<Execution>(0, nodes), KOKKOS_LAMBDA(const int node) {
        const int i = atoms(node);
        const double* values = source + static_cast<std::size_t>(node) * width;
        const std::size_t row = static_cast<std::size_t>(by_node ? node : i) * width;
        double probe = 0;
        for (int c = 0; c < width; ++c) {
          const double value = factor * values[c];
          probe += value;
          if (send && node >= owned) {
            sent[row + c] += value;
          } else {
            to(i, c) += value;
          }
        }
        if (!(probe - probe == 0.0)) Kokkos::atomic_or(&faults(0), fault);
        if (energies && node < owned && !(energies[node] - energies[node] == 0.0))
          Kokkos::atomic_or(&faults(0), std::int64_t{clebsch_lammps::kBadEnergy});
      });
  if (!send) return;
  by_node ? halo_kokkos_->reverse(device_->stream()) : exchange_.reverse(this);
  Kokkos::parallel_for(
      "clebsch:add_reversed", Kokkos::RangePolicy<Execution>(0, (by_node ? owned : atom->nlocal) * width),
      KOKKOS_LAMBDA(const int k) { to(by_node ? atoms(k / width) : k / width, k % width) += sent[k]; });
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::refresh_ghost_types() {
  if (!device_) {
    PairClebsch::refresh_ghost_types();
  } else if (!communication_.folds()) {
    exchange_.refresh_ghost_types(this, execution_space);
  }
}

template <class DeviceType>
int PairClebschKokkos<DeviceType>::pack_forward_comm(int n, int* list, double* buf, int pbc_flag, int* pbc) {
  return in_place() ? exchange_.pack_forward(n, list, buf)
                    : PairClebsch::pack_forward_comm(n, list, buf, pbc_flag, pbc);
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::unpack_forward_comm(int n, int first, double* buf) {
  in_place() ? exchange_.unpack_forward(n, first, buf) : PairClebsch::unpack_forward_comm(n, first, buf);
}

template <class DeviceType>
int PairClebschKokkos<DeviceType>::pack_reverse_comm(int n, int first, double* buf) {
  return in_place() ? exchange_.pack_reverse(n, first, buf) : PairClebsch::pack_reverse_comm(n, first, buf);
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::unpack_reverse_comm(int n, int* list, double* buf) {
  in_place() ? exchange_.unpack_reverse(n, list, buf) : PairClebsch::unpack_reverse_comm(n, list, buf);
}

template <class DeviceType>
int PairClebschKokkos<DeviceType>::pack_forward_comm_kokkos(int n, DAT::tdual_int_1d list,
                                                            clebsch_lammps::CommBuffer& buf, int, int*) {
  return exchange_.pack_forward(n, list, buf);
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::unpack_forward_comm_kokkos(int n, int first, clebsch_lammps::CommBuffer& buf) {
  exchange_.unpack_forward(n, first, buf);
}

template <class DeviceType>
int PairClebschKokkos<DeviceType>::pack_reverse_comm_kokkos(int n, int first, clebsch_lammps::CommBuffer& buf) {
  return exchange_.pack_reverse(n, first, buf);
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::unpack_reverse_comm_kokkos(int n, DAT::tdual_int_1d list,
                                                               clebsch_lammps::CommBuffer& buf) {
  exchange_.unpack_reverse(n, list, buf);
}

namespace LAMMPS_NS {
template class PairClebschKokkos<LMPDeviceType>;
#ifdef LMP_KOKKOS_GPU
template class PairClebschKokkos<LMPHostType>;
#endif
}  // namespace LAMMPS_NS
