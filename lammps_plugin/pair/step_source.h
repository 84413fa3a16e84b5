// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Which graph a step is computed on, and where it comes from. The pair style only translates between LAMMPS and this.
#include <memory>
#include <vector>

#include "model/model.h"
#include "pair/step_errors.h"

namespace LAMMPS_NS {
class LAMMPS;
class NeighList;
}  // namespace LAMMPS_NS

namespace clebsch_lammps {

/// The nodes of the last step, in whatever memory their graph is.
class StepSource {
 public:
  /// Nodes of a graph.
  struct Counts {
    int owned = 0, all = 0;
  };

  virtual ~StepSource() noexcept(false) = default;  // as that of LAMMPS's Pointers, which sources derive from
  virtual Counts counts() const = 0;
  /// LAMMPS's index of each node, on the host: of the owned ones at least, which is the order of per-atom outputs.
  virtual const std::vector<int>& atoms() const = 0;
  virtual double memory_usage() const = 0;
};

/// A source that reads LAMMPS's arrays on the host and leaves a clebsch::Result there. Every step: update(), then
/// compute() where this rank has nodes.
class HostSource : public StepSource {
 public:
  /// LAMMPS's data of a step; pointers are valid until the step ends.
  struct Step {
    const LAMMPS_NS::NeighList* list = nullptr;
    const int* type = nullptr;   ///< of every local and ghost atom at this step
    const int* owner = nullptr;  ///< of every local and ghost atom; null where ghosts are nodes
    /// Where features are exchanged: the ghosts that are nodes, one an atom of another rank, and the exchange.
    const std::vector<int>* remote = nullptr;
    clebsch::FeatureExchange* exchange = nullptr;
    bool new_list = false;  ///< the neighbour list or the atoms are others than at the last step
  };

  /// Finds the nodes. Stops through LAMMPS's error class when the list lacks atoms.
  virtual void update(const Step& step) = 0;
  /// Evaluates the model at the positions of this step. Throws as clebsch::Model::compute().
  virtual void compute(const clebsch::Request& request, clebsch::Result& result) = 0;

  // For messages, when a step has failed.

  /// Stops when a position is not finite.
  virtual void check_positions() = 0;
  virtual ClosestPair closest_pair() = 0;
};

/// Edges within the cutoff are found here, every step: for models on the CPU. `model_type[t]` is the model's type of
/// LAMMPS type t (1..ntypes), or -1; this and the next.
std::unique_ptr<HostSource> make_graph_source(LAMMPS_NS::LAMMPS* lmp, std::shared_ptr<clebsch::Model> model,
                                              const std::vector<int>& model_type);
/// The model keeps LAMMPS's pairs between two neighbour lists and finds the edges among them itself: for models on a
/// GPU, to which a step then sends positions alone.
std::unique_ptr<HostSource> make_pair_list_source(LAMMPS_NS::LAMMPS* lmp, std::shared_ptr<clebsch::Model> model,
                                                  const std::vector<int>& model_type);

}  // namespace clebsch_lammps
