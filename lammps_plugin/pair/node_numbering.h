// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// The order of a graph's nodes.
#include <algorithm>
#include <vector>

namespace clebsch_lammps {

/// Numbers nodes breadth first: owned atoms, then the ghosts one hop away, then two hops, ... Rows of layer k are
/// therefore a prefix of the nodes, and ghosts that feed no owned atom never become nodes. Keeps its capacity.
class NodeNumbering {
 public:
  /// For `atoms` local and ghost atoms; number() of owned atoms comes next.
  void start(int atoms) {
    node_of_.assign(atoms, -1);
    atoms_.clear();
  }
  /// The node of LAMMPS's atom i, which becomes the last one when it is none yet.
  int number(int i) {
    if (node_of_[i] < 0) {
      node_of_[i] = static_cast<int>(atoms_.size());
      atoms_.push_back(i);
    }
    return node_of_[i];
  }
  /// The node of LAMMPS's atom i, or -1.
  int find(int i) const { return node_of_[i]; }

  /// The hops, one a layer: calls rows(begin, end) for the nodes of each, which numbers what their rows reach.
  template <class Rows>
  void expand(int layers, const Rows& rows) {
    layer_rows_.resize(layers);
    owned_ = static_cast<int>(atoms_.size());
    int begin = 0, end = owned_;
    for (int hop = 0; hop < layers; ++hop) {
      layer_rows_[layers - 1 - hop] = end;
      rows(begin, end);
      begin = end;
      end = static_cast<int>(atoms_.size());
    }
    rows_ = begin;
  }

  /// Instead of hops: the own atoms' rows for each layer, and nodes of other ranks behind them.
  void append(int layers, const std::vector<int>& remote) {
    owned_ = rows_ = static_cast<int>(atoms_.size());
    layer_rows_.assign(layers, rows_);
    for (const int atom : remote) number(atom);
  }

  /// LAMMPS's index of each node.
  const std::vector<int>& atoms() const { return atoms_; }
  int owned() const { return owned_; }
  /// Nodes with rows: all but those of the last hop.
  int rows() const { return rows_; }
  int nodes() const { return static_cast<int>(atoms_.size()); }
  /// (layers) nodes whose features layer k computes.
  const std::vector<int>& layer_rows() const { return layer_rows_; }
  std::size_t capacity() const { return atoms_.capacity() + node_of_.capacity() + layer_rows_.capacity(); }

 private:
  std::vector<int> atoms_;    ///< node -> LAMMPS index
  std::vector<int> node_of_;  ///< LAMMPS index -> node or -1
  std::vector<int> layer_rows_;
  int owned_ = 0, rows_ = 0;
};

}  // namespace clebsch_lammps
