// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// From LAMMPS's neighbour list to the list of pairs that a model keeps between two of LAMMPS's: for models on a GPU,
// which find a step's edges themselves.
#include <vector>

#include "core/pair_list.h"
#include "pair/node_numbering.h"
#include "pointers.h"

namespace LAMMPS_NS {
class NeighList;
}

namespace clebsch_lammps {

/// Nodes are numbered along all pairs of the list, the skin included: the numbers hold as long as LAMMPS's list does.
/// Buffers keep their capacity.
class PairListBuilder : protected LAMMPS_NS::Pointers {
 public:
  explicit PairListBuilder(LAMMPS_NS::LAMMPS* lmp) : Pointers(lmp) {}

  /// `model_type[t]` is the model's type of LAMMPS type t (1..ntypes), or -1.
  void set_types(const std::vector<int>& model_type, int layers);
  /// `type[i]` is LAMMPS's type of atom i, ghosts included. With `owner`, ghost i is an image of atom owner[i], which
  /// is an own atom or one of `remote`, the nodes behind the own ones, and the rows are those of own atoms alone (null:
  /// there are none). With null, ghosts are nodes and the list must hold rows of ghosts unless there is one layer only.
  void build(const LAMMPS_NS::NeighList* list, const int* type, const int* owner, const std::vector<int>* remote);
  /// Whether an atom has another type than at the last build(): which atoms are nodes follows from types.
  bool types_changed(const int* type) const;
  /// Valid until the next build().
  const clebsch::PairListView& view() const { return view_; }
  /// Where the list's points are now; valid until the next call.
  clebsch::PointsView gather(int threads);
  /// LAMMPS's index of each node.
  const std::vector<int>& atoms() const { return nodes_.atoms(); }
  const NodeNumbering& nodes() const { return nodes_; }
  double memory_usage() const;

 private:
  void add_row(const LAMMPS_NS::NeighList* list, const int* type, const int* owner, int node);
  int node_of_owner(int owner, int neighbour) const;
  void fold_images(const int* owner);

  std::vector<int> model_type_;
  int layers_ = 1;
  NodeNumbering nodes_;
  std::vector<int> images_;    ///< image -> LAMMPS index of the ghost
  std::vector<int> image_of_;  ///< LAMMPS index -> image or -1
  std::vector<int> row_ptr_, neighbours_, owners_, types_;
  std::vector<int> lammps_types_;  ///< by LAMMPS index, of the last build
  std::vector<double> positions_;  ///< nodes, then images
  clebsch::PairListView view_;
};

}  // namespace clebsch_lammps
