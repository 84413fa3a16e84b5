// SPDX-License-Identifier: GPL-2.0-only
#include "pair/pair_list_builder.h"

#include <algorithm>
#include <limits>

#include "atom.h"
#include "error.h"
#include "neigh_list.h"

namespace clebsch_lammps {

void PairListBuilder::set_types(const std::vector<int>& model_type, int layers) {
  model_type_ = model_type;
  layers_ = std::max(layers, 1);
}

bool PairListBuilder::types_changed(const int* type) const {
  return !std::equal(lammps_types_.begin(), lammps_types_.end(), type);
}

void PairListBuilder::build(const LAMMPS_NS::NeighList* list, const int* type, const int* owner,
                            const std::vector<int>* remote) {
  lammps_types_.assign(type, type + atom->nlocal + atom->nghost);
  nodes_.start(atom->nlocal + atom->nghost);
  image_of_.assign(atom->nlocal + atom->nghost, -1);
  images_.clear();
  neighbours_.clear();
  row_ptr_.assign(1, 0);
  for (int k = 0; k < list->inum; ++k)
    if (model_type_[type[list->ilist[k]]] >= 0) nodes_.number(list->ilist[k]);
  const auto rows = [&](int begin, int end) {
    for (int node = begin; node < end; ++node) add_row(list, type, owner, node);
  };
  if (remote) {
    nodes_.append(layers_, *remote);
    rows(0, nodes_.owned());
  } else {
    nodes_.expand(layers_, rows);
  }

  view_ = {};
  view_.n_local = nodes_.owned();
  view_.n_rows = nodes_.rows();
  view_.n_nodes = nodes_.nodes();
  fold_images(owner);
  types_.resize(view_.n_nodes);
  for (int node = 0; node < view_.n_nodes; ++node) types_[node] = model_type_[type[atoms()[node]]];
  view_.n_points = view_.n_nodes + static_cast<int>(images_.size());
  view_.row_ptr = row_ptr_.data();
  view_.neighbours = neighbours_.data();
  view_.owners = owners_.data();
  view_.layer_rows = nodes_.layer_rows().data();
  view_.n_layers = layers_;
  view_.types = types_.data();
}

void PairListBuilder::add_row(const LAMMPS_NS::NeighList* list, const int* type, const int* owner, int node) {
  const int i = atoms()[node];
  const int* neighbours = list->firstneigh[i];
  for (int k = 0; k < list->numneigh[i]; ++k) {
    const int j = neighbours[k] & NEIGHMASK;
    if (model_type_[type[j]] < 0) continue;
    if (owner && owner[j] != j) {
      // Images come after all nodes, whose number is known in the end.
      if (image_of_[j] < 0) {
        image_of_[j] = static_cast<int>(images_.size());
        images_.push_back(j);
      }
      neighbours_.push_back(-1 - image_of_[j]);
    } else {
      neighbours_.push_back(owner ? node_of_owner(j, j) : nodes_.number(j));
    }
  }
  if (neighbours_.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    error->one(FLERR, "Pair style clebsch: expected at most 2147483647 pairs a rank, got more; use more ranks");
  row_ptr_.push_back(static_cast<int>(neighbours_.size()));
}

/// The node of a neighbour's owner.
int PairListBuilder::node_of_owner(int owner, int neighbour) const {
  const int node = owner < 0 ? -1 : nodes_.find(owner);
  if (node < 0)
    error->one(FLERR,
               "Pair style clebsch: expected the owner of every neighbor in the neighbor list, got none for local "
               "index {}; please report this",
               neighbour);
  return node;
}

void PairListBuilder::fold_images(const int* owner) {
  owners_.clear();
  for (const int ghost : images_) owners_.push_back(node_of_owner(owner[ghost], ghost));
  for (int& neighbour : neighbours_)
    if (neighbour < 0) neighbour = view_.n_nodes - 1 - neighbour;
}

clebsch::PointsView PairListBuilder::gather(int threads) {
  const int nodes = nodes_.nodes(), points = nodes + static_cast<int>(images_.size());
  positions_.resize(3 * static_cast<std::size_t>(points));
  const double* const* x = atom->x;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && points > 10000)
  for (int p = 0; p < points; ++p)
    std::copy_n(x[p < nodes ? atoms()[p] : images_[p - nodes]], 3, &positions_[3 * static_cast<std::size_t>(p)]);
  return {positions_.data(), nullptr};
}

double PairListBuilder::memory_usage() const {
  const std::size_t ints = nodes_.capacity() + images_.capacity() + image_of_.capacity() + row_ptr_.capacity() +
                           neighbours_.capacity() + owners_.capacity() + types_.capacity() + lammps_types_.capacity();
  return static_cast<double>(ints * sizeof(int) + positions_.capacity() * sizeof(double));
}

}  // namespace clebsch_lammps
