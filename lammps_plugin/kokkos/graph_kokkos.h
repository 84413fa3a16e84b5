// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// From LAMMPS's neighbour list for Kokkos to the graph a model sees, by kernels in the list's execution space.
#include <cstdint>
#include <vector>

#include "kokkos/cuda_event.h"
#include "kokkos/row_policy.h"
#include "kokkos_type.h"
#include "model/model.h"
#include "neigh_list_kokkos.h"
#include "pair/step_errors.h"

namespace clebsch_lammps {

/// Why a step must stop; bits, gathered on the device and read with the next step's totals().
enum StepFault : std::int64_t { kBadPosition = 1, kNoOwner = 2, kBadEnergy = 4, kBadForce = 8, kOtherNodes = 16 };

/// A place in what has been put on an execution space, which the host can wait for without what comes after it.
template <class Execution>
class Milestone {
 public:
  void record(const Execution& space) { space.fence(); }
  void wait() {}
};

#ifdef KOKKOS_ENABLE_CUDA
template <>
class Milestone<Kokkos::Cuda> : public CudaEvent {
 public:
  Milestone() : CudaEvent(cudaEventDisableTiming) {}
};
#endif

/// Builds the graph of one step as GraphBuilder does, nodes breadth first from the owned atoms, in two goes: count()
/// finds nodes; fill() writes the graph into arrays that have room for the nodes and, if they are large enough, for the
/// edges, which only totals() tells: the model can be on its way by then. Ghosts of one hop are in LAMMPS's order and
/// edges of a row in the neighbour list's, which Kokkos may build in another order each time; the transpose is sorted.
/// Everything is public because nvcc wants it so of functions with kernels in them.
template <class DeviceType>
class GraphKokkos {
 public:
  using Execution = typename DeviceType::execution_space;
  using Arrays = ArrayTypes<DeviceType>;
  using Ints = Kokkos::View<int*, DeviceType>;
  using Faults = Kokkos::View<std::int64_t*, DeviceType>;  ///< StepFault bits, number of edges
  using HostTotals = Kokkos::View<std::int64_t*, Kokkos::SharedHostPinnedSpace>;
  static constexpr int kMostLayers = 32;

  /// `model_type[t]` is the model's type of LAMMPS type t (1..ntypes), or -1. `pair_cutoffs` (T,T) [centre][neighbour].
  void set_types(const std::vector<int>& model_type, const std::vector<double>& pair_cutoffs, int types, int layers);

  /// LAMMPS's data of a step.
  struct Step {
    typename Arrays::t_x_array_randomread x;
    typename Arrays::t_int_1d_randomread type;  ///< of this step; folded ghosts' own are not read
    int local = 0, all = 0;                     ///< atoms without and with ghosts
    bool new_list = false;                      ///< the neighbour list or the atoms have changed
    bool fold = false;                          ///< ghosts stand for their owners; else they are nodes
    Ints owner;                                 ///< with fold: the owner of every atom
  };
  struct Counts {
    int owned = 0, rows = 0, nodes = 0;
    std::int64_t edges = 0, faults = 0;  ///< of the last totals(); also what the step before left in faults()
  };
  /// First half: owned, rows and nodes of counts(). The host waits where ghosts are nodes or the list is new. With an
  /// old list, nodes are those of the types that atoms had when it was new: kOtherNodes says that these would be
  /// others. With a new one it says that the list lacks atoms.
  void count(LAMMPS_NS::NeighListKokkos<DeviceType>* list, const Step& step);
  /// The number of edges, for which the host waits; also in counts().
  std::int64_t count_edges();
  /// Second half: the graph that count() found, and its transpose. Without any edges when there is no room for all of
  /// them; it may then be called again with more.
  void fill(const clebsch::DeviceGraph& graph);
  /// Waits for fill() and not for what was started since. Throws std::runtime_error.
  Counts totals();

  /// What the last step left in faults().
  std::int64_t read_faults();
  /// Takes back what count() and fill() have found, for another count() in the same step.
  void forget_faults();
  /// Of the last graph. Slow: for messages.
  ClosestPair closest_pair() const;

  /// LAMMPS's index of each node.
  const Ints& atoms() const { return atoms_; }
  const Counts& counts() const { return counts_; }
  const Faults& faults() const { return faults_; }
  double memory_usage() const;

  void find_owned_nodes();
  void check_owned_nodes();
  void count_rows(int begin, int end);
  int number_marked(int end);
  void fill_nodes(const clebsch::DeviceGraph& graph);
  void fill_edges(const clebsch::DeviceGraph& graph);

 private:
  using Rows = RowPolicy<DeviceType>;

  Ints model_type_;
  Kokkos::View<double*, DeviceType> cutoff_squared_;  ///< (ntypes+1, ntypes+1) [centre][neighbour], by LAMMPS type
  int stride_ = 0, layers_ = 1;
  bool has_null_ = false;  ///< some types are not of this style
  Step step_;
  typename Arrays::t_neighbors_2d neighbors_;
  typename Arrays::t_int_1d_randomread neighbor_count_, list_atoms_;
  int list_size_ = 0;
  Counts counts_;
  clebsch::DeviceGraph graph_;  ///< of the last fill()
  Kokkos::Array<int, kMostLayers> layer_rows_;
  Ints atoms_, node_of_;  ///< node -> LAMMPS index; LAMMPS index -> node, -1: none, -2: to be one
  Ints offset_;           ///< (rows) edges
  Ints sent_, places_;    ///< LAMMPS index -> edges it sends that are not written yet; edges by sender in any order
  Faults faults_;
  HostTotals totals_;  ///< a copy of faults_
  Milestone<Execution> filled_;
};

}  // namespace clebsch_lammps
