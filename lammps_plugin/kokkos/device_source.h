// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// The source of steps whose data stay where Kokkos has them.
#include <cstdint>
#include <memory>
#include <vector>

#include "kokkos/device_laps.h"
#include "kokkos/graph_kokkos.h"
#include "kokkos/halo_kokkos.h"
#include "kokkos_type.h"
#include "lammps.h"
#include "pair/step_source.h"
#include "pair/step_times.h"

namespace LAMMPS_NS {
class AtomKokkos;
}

namespace clebsch_lammps {

/// GraphKokkos makes the graph in the model's own arrays, and the model leaves its results there: nothing of an atom
/// crosses to the host. What goes wrong on the device is gathered as StepFault bits, and stops a step when the host
/// learns of it.
template <class DeviceType>
class DeviceSource : public StepSource {
 public:
  using Execution = typename DeviceType::execution_space;
  using Graph = GraphKokkos<DeviceType>;
  using List = LAMMPS_NS::NeighListKokkos<DeviceType>;
  using Source = Kokkos::View<const double*, DeviceType, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  /// `model` is in Kokkos's memory; `times` receives the times of steps while somebody wants them.
  DeviceSource(LAMMPS_NS::LAMMPS* lmp, std::shared_ptr<clebsch::Model> model, const std::vector<int>& model_type,
               StepTimes& times);
  ~DeviceSource() noexcept(false) override;

  /// Before a run.
  void init_run();
  /// A step: evaluates the model on the graph of the list's pairs; the results are in there(). With `halo`, which
  /// GhostMode::halo needs, collective; step.new_list is the same on all ranks then.
  void compute(List* list, typename Graph::Step step, const clebsch::Request& request, clebsch::Result& result,
               HaloKokkos<DeviceType>* halo);
  /// Of the last step; null where this rank has no nodes.
  const clebsch::DeviceResult& there() const { return there_; }
  /// StepFault bits, to be set by what reads the results too.
  const typename Graph::Faults& faults() const { return graph_.faults(); }
  /// LAMMPS's index of each node, on the device.
  const typename Graph::Ints& device_atoms() const { return graph_.atoms(); }
  /// Waits for the last step and stops when it has gone wrong.
  void check() { stop_at_faults(graph_.read_faults(), true); }
  /// Kokkos's stream of the execution space, which every kernel here is put on; null where there are none.
  void* stream() const;

  // Times of a step's parts on the clock of the device, for whoever wants them.
  void start_clock();
  void lap(StepTimes::Part part);
  /// Adds what has been measured and not been read yet.
  void collect_times();
  void forget_times() { laps_.forget(); }

  Counts counts() const override { return {graph_.counts().owned, graph_.counts().nodes}; }
  /// LAMMPS's indices of the owned nodes. Waits for the device when these were numbered anew since the last call, as
  /// with each new list.
  const std::vector<int>& atoms() const override;
  double memory_usage() const override { return graph_.memory_usage(); }

 private:
  /// An evaluation in progress.
  struct Attempt {
    bool new_list = false;
    std::int64_t edges = 0;      ///< room to ask for
    clebsch::DeviceGraph graph;  ///< what the model gave
    bool filled = false;         ///< the whole graph is in its arrays
    HaloKokkos<DeviceType>* halo = nullptr;
  };
  Verdict evaluate(Attempt attempt, const clebsch::Request& request, clebsch::Result& result);
  Verdict try_once(Attempt& attempt, const clebsch::Request& request, clebsch::Result& result);
  Verdict judge(std::int64_t faults, const Attempt& attempt, bool same_atoms);
  void stop_at_faults(std::int64_t faults, bool same_atoms);
  template <class Call>
  void measure(const Call& call);

  LAMMPS_NS::LAMMPS* lmp_;
  LAMMPS_NS::AtomKokkos* atom_;
  std::shared_ptr<clebsch::Model> model_;
  std::vector<int> model_type_;
  StepTimes& times_;
  Graph graph_;
  DeviceLaps<Execution> laps_;
  clebsch::DeviceResult there_;
  mutable std::vector<int> node_atoms_;
  mutable std::int64_t read_numbering_ = -1;  ///< the graph's numbering() that node_atoms_ is of
};

}  // namespace clebsch_lammps
