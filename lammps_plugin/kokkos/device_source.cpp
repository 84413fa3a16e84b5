// SPDX-License-Identifier: GPL-2.0-only
#include "kokkos/device_source.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "atom_kokkos.h"
#include "atom_masks.h"
#include "comm.h"
#include "comm/stop_rank.h"
#include "error.h"
#include "update.h"
#include "utils.h"

namespace clebsch_lammps {

template <class DeviceType>
DeviceSource<DeviceType>::DeviceSource(LAMMPS_NS::LAMMPS* lmp, std::shared_ptr<clebsch::Model> model,
                                       const std::vector<int>& model_type, StepTimes& times)
    : lmp_(lmp),
      atom_(static_cast<LAMMPS_NS::AtomKokkos*>(lmp->atom)),
      model_(std::move(model)),
      model_type_(model_type),
      times_(times) {}

template <class DeviceType>
DeviceSource<DeviceType>::~DeviceSource() noexcept(false) {
  Kokkos::fence();  // kernels may still read the model's arrays
}

template <class DeviceType>
void DeviceSource<DeviceType>::init_run() {
  const auto& meta = model_->metadata();
  if (meta.layers > Graph::kMostLayers)
    lmp_->error->all(FLERR, "Pair style clebsch/kk: expected a model of at most {} layers, got {}",
                     static_cast<int>(Graph::kMostLayers), meta.layers);
  graph_.set_types(model_type_, meta.pair_cutoffs, static_cast<int>(meta.type_names.size()), meta.layers);
  there_ = {};
  laps_.forget();
}

/// Kokkos's stream of the execution space, which every kernel here is put on; null where there are none.
template <class DeviceType>
void* DeviceSource<DeviceType>::stream() const {
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (std::is_same_v<Execution, Kokkos::Cuda>) return Execution().cuda_stream();
#endif
  return nullptr;
}

/// Calls what uses the clock of the device; its errors end as those of a step do.
template <class DeviceType>
template <class Call>
void DeviceSource<DeviceType>::measure(const Call& call) {
  guard_step(lmp_, "clebsch/kk", call);
}

template <class DeviceType>
void DeviceSource<DeviceType>::lap(StepTimes::Part part) {
  if (times_.wanted()) measure([&] { laps_.lap(Execution(), times_, part); });
}

template <class DeviceType>
void DeviceSource<DeviceType>::start_clock() {
  if (times_.wanted()) measure([&] { laps_.start(Execution(), times_); });
}

template <class DeviceType>
void DeviceSource<DeviceType>::collect_times() {
  measure([&] { laps_.collect(times_); });
}

template <class DeviceType>
void DeviceSource<DeviceType>::compute(List* list, typename Graph::Step step, const clebsch::Request& request,
                                       clebsch::Result& result, HaloKokkos<DeviceType>* halo) {
  for (;;) {
    graph_.start(list, step);
    if (halo && step.new_list) halo->make_plan(graph_);
    graph_.count();
    Attempt attempt;
    attempt.new_list = step.new_list;
    attempt.halo = halo;
    if (evaluate(attempt, request, result) != Verdict::other_nodes) return;
    graph_.forget_faults();
    step.new_list = true;  // with which no verdict is other_nodes
  }
}

template <class DeviceType>
Verdict DeviceSource<DeviceType>::evaluate(Attempt attempt, const clebsch::Request& request, clebsch::Result& result) {
  there_ = {};
  // Between two lists the number of edges changes little: the step is started as if they fitted, and done again when
  // the host learns, while the model runs, that they did not.
  attempt.edges = attempt.new_list ? graph_.count_edges() : graph_.counts().edges;
  // With other ranks all do it again then, which a little more room makes rare.
  if (attempt.halo && attempt.new_list) attempt.edges += attempt.edges / 16;
  for (;;) {
    Verdict verdict = try_once(attempt, request, result);
    if (attempt.halo) {
      verdict = attempt.halo->agree(verdict);
      attempt.halo->check();
    }
    if (verdict == Verdict::other_nodes) return verdict;
    if (verdict == Verdict::done) break;
    lap(StepTimes::kModel);  // of edges that were too many
  }
  return Verdict::done;
}

template <class DeviceType>
Verdict DeviceSource<DeviceType>::try_once(Attempt& attempt, const clebsch::Request& request, clebsch::Result& result) {
  const auto counts = graph_.counts();
  result.outputs.clear();
  if (counts.owned == 0) {
    lap(StepTimes::kGraph);
    // The model is not evaluated on a rank without atoms, but others may wait for its part in the exchange of features.
    if (attempt.halo)
      attempt.halo->exchange_without_rows(request.forces || request.virial || request.atom_virial ||
                                          request.centroid_virial);
    return judge(graph_.read_faults(), attempt, false);
  }
  if (attempt.edges > std::numeric_limits<std::int32_t>::max() - 65536)
    stop_rank(lmp_, "Pair style clebsch/kk: expected at most 2147418111 edges a rank, got " +
                        std::to_string(attempt.edges) + "; use more ranks");
  if (!attempt.filled) {
    attempt.graph = model_->reserve(counts.rows, counts.nodes, attempt.edges, stream());
    graph_.fill(attempt.graph);
    lap(StepTimes::kGraph);
  }
  clebsch::FeatureExchange* const exchange =
      attempt.halo && model_->metadata().layers > 1 ? &attempt.halo->exchange() : nullptr;
  there_ = model_->compute_reserved(counts.rows, request, stream(), result, exchange, counts.nodes);
  const typename Graph::Counts found = graph_.totals();
  for (const std::string& message : model_->take_messages())
    if (lmp_->comm->me == 0)
      LAMMPS_NS::utils::logmesg(lmp_, "Pair style clebsch/kk: step {}: {}\n", lmp_->update->ntimestep, message);
  attempt.filled = found.edges <= attempt.graph.edges;
  attempt.edges = found.edges;
  const Verdict verdict = judge(found.faults, attempt, attempt.filled);
  return verdict == Verdict::done && !attempt.filled ? Verdict::more_room : verdict;
}

/// Stops at faults that no other nodes would heal.
template <class DeviceType>
Verdict DeviceSource<DeviceType>::judge(std::int64_t faults, const Attempt& attempt, bool same_atoms) {
  // A ghost that has become an atom of the model lacks a node, while its owner lacks a row.
  const std::int64_t healed = attempt.halo ? kOtherNodes | kNoOwner : kOtherNodes;
  if ((faults & healed) && !attempt.new_list) return Verdict::other_nodes;
  stop_at_faults(faults, same_atoms);
  return Verdict::done;
}

template <class DeviceType>
const std::vector<int>& DeviceSource<DeviceType>::atoms() const {
  if (read_numbering_ == graph_.numbering()) return node_atoms_;
  using Host = Kokkos::View<int*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const int owned = graph_.counts().owned;
  node_atoms_.resize(owned);
  Kokkos::deep_copy(Host(node_atoms_.data(), owned), Kokkos::subview(graph_.atoms(), std::make_pair(0, owned)));
  read_numbering_ = graph_.numbering();
  return node_atoms_;
}

/// Stops when a step has gone wrong. `same_atoms`: nodes are still numbered as when it was computed.
template <class DeviceType>
void DeviceSource<DeviceType>::stop_at_faults(std::int64_t faults, bool same_atoms) {
  if (faults == 0) return;
  if (faults & kOtherNodes) {
    atom_->sync(LAMMPS_NS::Host, TYPE_MASK);
    int missing = -graph_.counts().owned;
    for (int i = 0; i < atom_->nlocal; ++i) missing += model_type_[atom_->type[i]] >= 0;
    stop_at_missing_atoms(lmp_, missing);
  }
  if (faults & kNoOwner)
    stop_rank(lmp_,
              "Pair style clebsch/kk: expected the owner of every neighbor in the neighbor list, got none for one; "
              "please report this");
  atom_->sync(LAMMPS_NS::Host, ALL_MASK);
  const auto atoms = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), graph_.atoms());
  const int owned = graph_.counts().owned;
  if (faults & kBadPosition)
    for (int node = 0; node < owned; ++node) {
      const double* x = atom_->x[atoms(node)];
      if (!std::isfinite(x[0] + x[1] + x[2])) stop_at_position(lmp_, atoms(node));
    }
  const bool energy = (faults & kBadEnergy) != 0;
  if (same_atoms && there_.atomic_energy && there_.forces) {
    const auto closest = graph_.closest_pair();
    const auto find = [&](const double* values, int width) {
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(),
                                                            Source(values, static_cast<std::size_t>(owned) * width));
      for (int k = 0; k < owned * width; ++k)
        if (!std::isfinite(host(k))) stop_at_atom(lmp_, atoms(k / width), width == 1 ? "energy" : "force", closest);
    };
    if (energy) find(there_.atomic_energy, 1);
    find(there_.forces, 3);
  }
  stop_rank(lmp_,
            "Pair style clebsch/kk: expected finite energies and forces, got one that is not at step " +
                std::to_string(lmp_->update->ntimestep) +
                " or the one before; check for overlapping atoms, the timestep and the model's range of validity",
            1e7);
}

template class DeviceSource<LMPDeviceType>;
#ifdef LMP_KOKKOS_GPU
template class DeviceSource<LMPHostType>;
#endif

}  // namespace clebsch_lammps
