// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// One step of pair_style clebsch/kk: the members of PairClebschKokkos that compute.
#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "atom_kokkos.h"
#include "atom_masks.h"
#include "comm.h"
#include "error.h"
#include "kokkos/pair_clebsch_kokkos.h"
#include "memory_kokkos.h"
#include "neighbor.h"
#include "update.h"
#include "utils.h"

namespace LAMMPS_NS {

/// Kokkos's stream of the execution space, which every kernel here is put on; null where there are none.
template <class DeviceType>
void* PairClebschKokkos<DeviceType>::stream() const {
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (std::is_same_v<Execution, Kokkos::Cuda>) return Execution().cuda_stream();
#endif
  return nullptr;
}

/// Calls what uses the clock of the device; its errors end as those of a step do.
template <class DeviceType>
template <class Call>
void PairClebschKokkos<DeviceType>::measure(const Call& call) {
  try {
    call();
  } catch (const std::exception& failure) {
    error->one(FLERR, "Pair style clebsch/kk: step {}: {}", update->ntimestep, failure.what());
  }
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::lap(clebsch_lammps::StepTimes::Part part) {
  if (measures_) measure([&] { laps_.lap(Execution(), times_, part); });
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
void PairClebschKokkos<DeviceType>::compute(int eflag, int vflag) {
  using clebsch_lammps::StepTimes;
  if (!here_) {
    free_per_atom();
    atom_kokkos_->sync(execution_space, datamask_read);
    PairClebsch::compute(eflag, vflag);
    atom_kokkos_->modified(execution_space, datamask_modify);
    return;
  }
  ev_init(eflag, vflag, 0);
  if (check_run_) atom_kokkos_->sync(Host, TYPE_MASK | MASK_MASK | SPECIAL_MASK);
  begin_step();
  grow_per_atom();
  if (measures_) measure([&] { laps_.start(Execution(), times_); });
  const bool new_list = find_nodes(false);
  if (!evaluate_here(new_list)) {
    graph_.forget_faults();
    evaluate_here(find_nodes(true));
  }
  last_step_ = update->ntimestep;
  lap(StepTimes::kModel);

  // Ranks without atoms come through here as well: with newton off the sums below are collective.
  const bool only_check_energies = !eflag_global && !eflag_atom;
  add_to_atoms(atom_kokkos_->k_f.template view<DeviceType>(), there_.forces, 3, clebsch_lammps::kBadForce,
               only_check_energies ? there_.atomic_energy : nullptr);
  // After the call run and minimize mark the data as modified too, but fixes and computes that call the style
  // themselves do not.
  atom_kokkos_->modified(execution_space, eflag || vflag ? datamask_modify : F_MASK);
  if (!only_check_energies) add_energies();
  if (vflag_global) add_virial();
  if (eflag_atom) k_eatom_.template sync<LMPHostType>();
  if (vflag_atom) {
    add_to_atoms(k_vatom_.template view<DeviceType>(), there_.atom_virial, 6, 0);
    k_vatom_.template sync<LMPHostType>();
  }
  if (cvflag_atom) {
    add_to_atoms(k_cvatom_.template view<DeviceType>(), there_.centroid_virial, 9, 0);
    k_cvatom_.template sync<LMPHostType>();
  }
  // When the host has waited for the device anyway, a fault stops this step. Otherwise, on a GPU, it stops the next
  // one, whose totals the host reads.
  if (eflag_global || !stream()) stop_at_faults(graph_.read_faults(), true);
  lap(StepTimes::kForces);
  if (!update->setupflag) return;
  laps_.forget();  // the evaluation before the first step is not in LAMMPS's loop time
  times_.reset();
}

/// Finds the nodes of this step. Returns whether it numbered them anew: because the neighbour list is new, or because
/// the types of this step make other atoms nodes (`other_nodes`).
template <class DeviceType>
bool PairClebschKokkos<DeviceType>::find_nodes(bool other_nodes) {
  typename clebsch_lammps::GraphKokkos<DeviceType>::Step step;
  step.local = atom->nlocal;
  step.all = atom->nlocal + atom->nghost;
  step.new_list = other_nodes || neighbor->ago == 0 || neighbor->lastcall != known_list_ || step.all != known_atoms_;
  known_atoms_ = step.all;
  known_list_ = neighbor->lastcall;
  if (fold_ && step.new_list) find_owners();
  atom_kokkos_->sync(execution_space, datamask_read);
  step.x = atom_kokkos_->k_x.template view<DeviceType>();
  step.type = atom_kokkos_->k_type.template view<DeviceType>();
  step.fold = fold_;
  if (fold_) step.owner = owner_.template view<DeviceType>();
  graph_.count(static_cast<NeighListKokkos<DeviceType>*>(list), step);
  return step.new_list;
}

/// Returns false when the types have changed so that other atoms are nodes: the step has to be done again with nodes
/// numbered anew.
template <class DeviceType>
bool PairClebschKokkos<DeviceType>::evaluate_here(bool new_list) {
  using clebsch_lammps::kOtherNodes;
  there_ = {};
  const auto counts = graph_.counts();
  // With an old list the number of edges changes little, so the model starts as if they fitted. While it runs, the host
  // learns whether they did, and does the step again if not.
  std::int64_t edges = new_list ? graph_.count_edges() : counts.edges;
  if (counts.owned == 0) {
    result_.outputs.clear();
    lap(clebsch_lammps::StepTimes::kGraph);
    const std::int64_t faults = graph_.read_faults();
    if ((faults & kOtherNodes) && !new_list) return false;
    stop_at_faults(faults, false);
    return true;
  }
  for (bool fits = false; !fits;) {
    if (edges > std::numeric_limits<std::int32_t>::max() - 65536)
      error->one(FLERR, "Pair style clebsch/kk: expected at most 2147418111 edges a rank, got {}; use more ranks",
                 edges);
    result_.outputs.clear();
    typename clebsch_lammps::GraphKokkos<DeviceType>::Counts found;
    try {
      const clebsch::DeviceGraph graph = model_->reserve(counts.rows, counts.nodes, edges, stream());
      graph_.fill(graph);
      lap(clebsch_lammps::StepTimes::kGraph);
      there_ = model_->compute_reserved(counts.rows, request_, stream(), result_);
      found = graph_.totals();
      for (const std::string& message : model_->take_messages())
        if (comm->me == 0) utils::logmesg(lmp, "Pair style clebsch/kk: step {}: {}\n", update->ntimestep, message);
      fits = found.edges <= graph.edges;
    } catch (const std::exception& failure) {
      error->one(FLERR, "Pair style clebsch/kk: step {}: {}", update->ntimestep, failure.what());
    }
    if ((found.faults & kOtherNodes) && !new_list) return false;
    if (!fits) lap(clebsch_lammps::StepTimes::kModel);  // of edges that were too many
    if (found.faults != 0) stop_at_faults(found.faults, fits);
    edges = found.edges;
  }
  if (request_.outputs.empty()) return true;
  node_atoms_.resize(counts.owned);
  const auto atoms = Kokkos::subview(graph_.atoms(), std::make_pair(0, counts.owned));
  Kokkos::deep_copy(
      Kokkos::View<int*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(node_atoms_.data(), counts.owned),
      atoms);
  return true;
}

template <class DeviceType>
void PairClebschKokkos<DeviceType>::add_energies() {
  const int owned = there_.atomic_energy ? graph_.counts().owned : 0;
  const double* const energies = there_.atomic_energy;
  const auto faults = graph_.faults();
  const auto atoms = graph_.atoms();
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
  if (!there_.virial) return;
  double v[9];
  Kokkos::deep_copy(Kokkos::View<double*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(v, 9),
                    Source(there_.virial, 9));
  const double voigt[6] = {v[0], v[4], v[8], 0.5 * (v[1] + v[3]), 0.5 * (v[2] + v[6]), 0.5 * (v[5] + v[7])};
  for (int c = 0; c < 6; ++c) virial[c] += energy_factor_ * voigt[c];
}

/// Adds (nodes, width) numbers to the rows of the atoms. A number that is not finite sets `fault`; an energy of an
/// owned node that is not finite sets kBadEnergy (`energies` null: they are not checked).
template <class DeviceType>
template <class Target>
void PairClebschKokkos<DeviceType>::add_to_atoms(const Target& target, const double* source, int width,
                                                 std::int64_t fault, const double* energies) {
  const int owned = source ? graph_.counts().owned : 0, nodes = source ? graph_.counts().nodes : 0;
  const int local = atom->nlocal, all = atom->nlocal + atom->nghost;
  const bool send = own_reverse_;
  width_ = width;
  if (send) {
    const std::size_t need = static_cast<std::size_t>(all) * width;
    if (reverse_.extent(0) < need)
      reverse_ = DualDoubles("clebsch:reverse", static_cast<std::size_t>(1.3 * static_cast<double>(need)) + 16);
    Kokkos::deep_copy(Execution(), reverse_.template view<DeviceType>(), 0.0);
    reverse_.clear_sync_state();
    reverse_.template modify<DeviceType>();
  }
  const auto reverse = reverse_.template view<DeviceType>();
  const auto atoms = graph_.atoms();
  const auto faults = graph_.faults();
  const double factor = energy_factor_;
  const Target to = target;
  Kokkos::parallel_for(
      "clebsch:add_to_atoms", Kokkos::RangePolicy<Execution>(0, nodes), KOKKOS_LAMBDA(const int node) {
        const int i = atoms(node);
        const double* values = source + static_cast<std::size_t>(node) * width;
        double probe = 0;
        for (int c = 0; c < width; ++c) {
          const double value = factor * values[c];
          probe += value;
          // With newton on LAMMPS adds the ghosts' rows of f, vatom and cvatom to their owners. With newton off nobody
          // else does, so it is done here.
          if (send && node >= owned) {
            reverse(static_cast<std::size_t>(i) * width + c) += value;
          } else {
            to(i, c) += value;
          }
        }
        if (!(probe - probe == 0.0)) Kokkos::atomic_or(&faults(0), fault);
        if (energies && node < owned && !(energies[node] - energies[node] == 0.0))
          Kokkos::atomic_or(&faults(0), std::int64_t{clebsch_lammps::kBadEnergy});
      });
  if (!send) return;
  comm->reverse_comm(this, width);
  reverse_.template sync<DeviceType>();
  Kokkos::parallel_for(
      "clebsch:add_reversed", Kokkos::RangePolicy<Execution>(0, local * width),
      KOKKOS_LAMBDA(const int k) { to(k / width, k % width) += reverse(k); });
}

/// Stops with a message when `faults` says that a step has gone wrong. `same_atoms`: the nodes still have the numbers
/// that they had in that step.
template <class DeviceType>
void PairClebschKokkos<DeviceType>::stop_at_faults(std::int64_t faults, bool same_atoms) {
  if (faults == 0) return;
  if (faults & clebsch_lammps::kOtherNodes) {
    atom_kokkos_->sync(Host, TYPE_MASK);
    int missing = -graph_.counts().owned;
    for (int i = 0; i < atom->nlocal; ++i) missing += model_type_[atom->type[i]] >= 0;
    stop_at_missing_atoms(missing);
  }
  if (faults & clebsch_lammps::kNoOwner)
    error->one(FLERR,
               "Pair style clebsch/kk: expected the owner of every neighbor in the neighbor list, got none for one; "
               "please report this");
  atom_kokkos_->sync(Host, ALL_MASK);
  const auto atoms = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), graph_.atoms());
  const int owned = graph_.counts().owned;
  if (faults & clebsch_lammps::kBadPosition)
    for (int node = 0; node < owned; ++node) {
      const double* x = atom->x[atoms(node)];
      if (std::isfinite(x[0] + x[1] + x[2])) continue;
      error->one(
          FLERR,
          "Pair style clebsch/kk: expected finite coordinates, got {} {} {} for atom ID {} at step {}; check the "
          "starting structure, the timestep and the model's range of validity",
          x[0], x[1], x[2], atom->tag_enable ? atom->tag[atoms(node)] : atoms(node) + 1, update->ntimestep);
    }
  const bool energy = (faults & clebsch_lammps::kBadEnergy) != 0;
  if (same_atoms && there_.atomic_energy && there_.forces) {
    const auto closest = graph_.closest_pair();
    const auto find = [&](const double* values, int width) {
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(),
                                                            Source(values, static_cast<std::size_t>(owned) * width));
      for (int k = 0; k < owned * width; ++k)
        if (!std::isfinite(host(k)))
          stop_at_atom(atoms(k / width), width == 1 ? "energy" : "force", closest.first, closest.second,
                       closest.distance);
    };
    if (energy) find(there_.atomic_energy, 1);
    find(there_.forces, 3);
  }
  error->one(FLERR,
             "Pair style clebsch/kk: expected finite energies and forces, got one that is not at step {} or the one "
             "before; check for overlapping atoms, the timestep and the model's range of validity",
             update->ntimestep);
}

}  // namespace LAMMPS_NS
