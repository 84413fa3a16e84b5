// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// From LAMMPS's neighbour list for Kokkos to the graph a model sees, by kernels in the list's execution space.
#include <cstdint>
#include <vector>

#include "comm/communication.h"
#include "kokkos/cuda_event.h"
#include "kokkos/kk_types.h"
#include "kokkos/row_policy.h"
#include "model/model.h"
#include "neigh_list_kokkos.h"
#include "pair/step_errors.h"

namespace clebsch_lammps {

/// Why a step must stop, as bits. The device gathers them, and the host reads them with the next step's totals().
enum StepFault : std::int64_t { kBadPosition = 1, kNoOwner = 2, kBadEnergy = 4, kBadForce = 8, kOtherNodes = 16 };

/// A point in the work of an execution space. The host can wait for it without waiting for what was started after it.
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

/// Builds the graph of one step as GraphBuilder does, nodes breadth first from the owned atoms, in two halves. start()
/// and count() find the nodes. fill() writes the graph into arrays that have room for the nodes and, perhaps, for the
/// edges: how many edges there are is known only from totals(), and by then the model can be running. Ghosts of one hop
/// are in LAMMPS's order. Edges of a row are in the order of the neighbour list, which Kokkos may build in another
/// order each time; the transpose is sorted. Everything is public, because nvcc demands this of functions that contain
/// kernels.
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
    Positions<DeviceType> x;
    typename Arrays::t_int_1d_randomread type;  ///< of this step; folded ghosts' own are not read
    int local = 0, all = 0;                     ///< atoms without and with ghosts
    bool new_list = false;                      ///< the neighbour list or the atoms have changed
    GhostMode mode = GhostMode::expand;
    Ints owner;  ///< with folded ghosts: the owner of every atom
  };
  struct Counts {
    int owned = 0, rows = 0, nodes = 0;
    std::int64_t edges = 0, faults = 0;  ///< of the last totals(); also what the step before left in faults()
  };
  /// First half: finds the owned nodes. The host waits when the list is new. With an old list the nodes stay those that
  /// followed from the types when it was new; the fault kOtherNodes says that the present types would give others. With
  /// a new list kOtherNodes says that the list lacks atoms.
  void start(LAMMPS_NS::NeighListKokkos<DeviceType>* list, const Step& step);

  /// What find_halo_nodes() and make_halo_plan() ask about the list of the last start(), on the host.
  struct Neighbours {
    std::vector<char> needed;
    std::vector<int> row_of_atom;
  };
  Neighbours read_neighbours();
  /// GhostMode::halo: where the list is new, between start() and count(). As HaloNodes has them.
  void set_remote(const std::vector<int>& node_atom, const std::vector<int>& representatives);

  /// The rest of the first half: rows and nodes of counts(). The host waits when ghosts are nodes.
  void count();
  /// The number of edges, for which the host waits; also in counts().
  std::int64_t count_edges();
  /// Second half: writes the graph that count() found, and its transpose. When there is no room for all edges it writes
  /// a graph without any; it may then be called again with more room.
  void fill(const clebsch::DeviceGraph& graph);
  /// Waits for fill(), but not for work that was started after it. Throws std::runtime_error.
  Counts totals();

  /// The faults of the last step.
  std::int64_t read_faults();
  /// Clears the faults that count() and fill() have found, so that start() can be called again in the same step.
  void forget_faults();
  /// Of the last graph. Slow: for messages.
  ClosestPair closest_pair() const;

  /// LAMMPS's index of each node.
  const Ints& atoms() const { return atoms_; }
  /// Changes whenever the owned nodes are numbered anew.
  std::int64_t numbering() const { return numbering_; }
  const Counts& counts() const { return counts_; }
  const Faults& faults() const { return faults_; }
  double memory_usage() const;

  void find_owned_nodes();
  void mark_needed();
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
  int remote_ = 0;         ///< nodes of other ranks behind the owned ones
  Step step_;
  typename Arrays::t_neighbors_2d neighbors_;
  typename Arrays::t_int_1d_randomread neighbor_count_, list_atoms_;
  int list_size_ = 0;
  std::int64_t numbering_ = 0;
  Counts counts_;
  clebsch::DeviceGraph graph_;  ///< of the last fill()
  Kokkos::Array<int, kMostLayers> layer_rows_;
  Ints atoms_, node_of_;  ///< node -> LAMMPS index; LAMMPS index -> node, -1: none, -2: to be one
  Ints node_atom_;        ///< of set_remote()
  Ints needed_;           ///< LAMMPS index -> whether an owned node has it as a neighbour
  Ints offset_;           ///< (rows) edges
  Ints sent_, places_;    ///< LAMMPS index -> edges it sends that are not written yet; edges by sender in any order
  Faults faults_;
  HostTotals totals_;  ///< a copy of faults_
  Milestone<Execution> filled_;
};

}  // namespace clebsch_lammps
