// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// From LAMMPS's neighbour list to the graph a model sees.
#include <vector>

#include "core/graph.h"
#include "pair/node_numbering.h"
#include "pair/step_errors.h"
#include "pointers.h"

namespace LAMMPS_NS {
class NeighList;
}

namespace clebsch_lammps {

/// Builds the graph of one step. Nodes are numbered along edges within the cutoff at this step: ghosts in the skin
/// never become nodes. Buffers keep their capacity from step to step.
class GraphBuilder : protected LAMMPS_NS::Pointers {
 public:
  explicit GraphBuilder(LAMMPS_NS::LAMMPS* lmp) : Pointers(lmp) {}

  /// `model_type[t]` is the model's type of LAMMPS type t (1..ntypes), or -1. `pair_cutoffs` (T,T) [centre][neighbour].
  void set_types(const std::vector<int>& model_type, const std::vector<double>& pair_cutoffs, int types, int layers);

  /// `type[i]` is LAMMPS's type of atom i, ghosts included. With `owner`, ghost i is an image of atom owner[i], which
  /// is an own atom or one of `remote`, the nodes behind the own ones, and the rows are those of own atoms alone (null:
  /// there are none). With null, ghosts are nodes and the list must hold rows of ghosts unless there is one layer only.
  /// Stops on a position that is not a number.
  void build(const LAMMPS_NS::NeighList* list, const int* type, const int* owner, const std::vector<int>* remote,
             int threads);

  /// Without receivers and transpose, which the model makes.
  const clebsch::Graph& graph() const { return graph_; }
  /// LAMMPS's index of each node.
  const std::vector<int>& atoms() const { return nodes_.atoms(); }
  const NodeNumbering& nodes() const { return nodes_; }
  /// Of the last build(). Slow: for messages.
  ClosestPair closest_pair() const;
  double memory_usage() const;

 private:
  void add_owned_nodes(const LAMMPS_NS::NeighList* list, const int* type);
  void add_rows(const LAMMPS_NS::NeighList* list, const int* type, int begin, int end, int threads);
  void number_senders(const int* owner, int edge_begin, int edge_end, int threads);

  std::vector<int> model_type_;
  std::vector<double> cutoff_squared_;  ///< (ntypes+1, ntypes+1) [centre][neighbour], by LAMMPS type
  int stride_ = 0;
  int layers_ = 1;
  clebsch::Graph graph_;
  NodeNumbering nodes_;
  std::vector<std::vector<int>> unnumbered_;  ///< edges to atoms without a number, by range of edges
};

}  // namespace clebsch_lammps
