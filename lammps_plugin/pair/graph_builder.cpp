// SPDX-License-Identifier: GPL-2.0-only
#include "pair/graph_builder.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "atom.h"
#include "comm/stop_rank.h"
#include "neigh_list.h"

namespace clebsch_lammps {

namespace {

/// Edges that are worth a thread of their own: fewer take less time than it takes to wake one.
constexpr int kEdgesOfAThread = 4096;

}  // namespace

void GraphBuilder::set_types(const std::vector<int>& model_type, const std::vector<double>& pair_cutoffs, int types,
                             int layers) {
  model_type_ = model_type;
  stride_ = static_cast<int>(model_type.size());
  layers_ = std::max(layers, 1);
  cutoff_squared_.assign(static_cast<std::size_t>(stride_) * stride_, 0.0);
  for (int a = 1; a < stride_; ++a)
    for (int b = 1; b < stride_; ++b)
      if (model_type[a] >= 0 && model_type[b] >= 0) {
        const double cutoff = pair_cutoffs[static_cast<std::size_t>(model_type[a]) * types + model_type[b]];
        cutoff_squared_[a * stride_ + b] = cutoff * cutoff;
      }
}

void GraphBuilder::build(const LAMMPS_NS::NeighList* list, const int* type, const int* owner,
                         const std::vector<int>* remote, int threads) {
  nodes_.start(atom->nlocal + atom->nghost);
  add_owned_nodes(list, type);
  graph_.row_ptr.assign(1, 0);
  const auto rows = [&](int begin, int end) {
    const int edge_begin = graph_.row_ptr.back();
    add_rows(list, type, begin, end, threads);
    number_senders(owner, edge_begin, graph_.row_ptr.back(), threads);
  };
  if (remote) {
    nodes_.append(layers_, *remote);
    rows(0, nodes_.owned());
  } else {
    nodes_.expand(layers_, rows);
  }
  graph_.layer_rows.assign(nodes_.layer_rows().begin(), nodes_.layer_rows().end());
  graph_.n_local = nodes_.owned();
  graph_.n_rows = nodes_.rows();
  graph_.n_nodes = nodes_.nodes();
  graph_.types.resize(graph_.n_nodes);
  for (int node = 0; node < graph_.n_nodes; ++node) graph_.types[node] = model_type_[type[atoms()[node]]];
  // The model makes receivers and transpose, where it runs and by all threads.
  graph_.receivers.clear();
  graph_.col_ptr.clear();
}

void GraphBuilder::add_owned_nodes(const LAMMPS_NS::NeighList* list, const int* type) {
  for (int k = 0; k < list->inum; ++k) {
    const int i = list->ilist[k];
    if (model_type_[type[i]] < 0) continue;
    const double* x = atom->x[i];
    // A position that is not a number compares as out of every cutoff: the atom would quietly count as isolated.
    if (!std::isfinite(x[0] + x[1] + x[2])) stop_at_position(lmp, i);
    nodes_.number(i);
  }
}

void GraphBuilder::add_rows(const LAMMPS_NS::NeighList* list, const int* type, int begin, int end, int threads) {
  const double* const* x = atom->x;
  const int* numneigh = list->numneigh;
  int* const* firstneigh = list->firstneigh;
  auto visit = [&](int node, auto&& take) {
    const int i = atoms()[node];
    const double* cutoff = &cutoff_squared_[static_cast<std::size_t>(type[i]) * stride_];
    for (int k = 0; k < numneigh[i]; ++k) {
      const int j = firstneigh[i][k] & NEIGHMASK;
      const double dx = x[j][0] - x[i][0], dy = x[j][1] - x[i][1], dz = x[j][2] - x[i][2];
      if (dx * dx + dy * dy + dz * dz < cutoff[type[j]]) take(j, dx, dy, dz);
    }
  };

  graph_.row_ptr.resize(end + 1);
  std::int32_t* row_ptr = graph_.row_ptr.data();
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int node = begin; node < end; ++node) {
    int count = 0;
    visit(node, [&](int, double, double, double) { ++count; });
    row_ptr[node + 1] = count;
  }
  std::int64_t edges = row_ptr[begin];
  for (int node = begin; node < end; ++node) {
    edges += row_ptr[node + 1];
    if (edges > std::numeric_limits<std::int32_t>::max())
      stop_rank(lmp, "Pair style clebsch: expected at most 2147483647 edges a rank, got more; use more ranks");
    row_ptr[node + 1] = static_cast<std::int32_t>(edges);
  }

  graph_.senders.resize(edges);
  graph_.edge_vec.resize(3 * static_cast<std::size_t>(edges));
  std::int32_t* senders = graph_.senders.data();
  double* edge_vec = graph_.edge_vec.data();
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int node = begin; node < end; ++node) {
    std::size_t e = row_ptr[node];
    visit(node, [&](int j, double dx, double dy, double dz) {
      senders[e] = j;
      edge_vec[3 * e] = dx;
      edge_vec[3 * e + 1] = dy;
      edge_vec[3 * e + 2] = dz;
      ++e;
    });
  }
}

void GraphBuilder::number_senders(const int* owner, int edge_begin, int edge_end, int threads) {
  std::int32_t* senders = graph_.senders.data();
  // Nodes are numbered in the order of their first edge. Threads, each in a range of edges, replace atoms by nodes and
  // keep the edges to atoms without a number, which are numbered range by range: that order, whatever the ranges.
  const std::int64_t edges = edge_end - edge_begin;
  const int parts = static_cast<int>(std::clamp<std::int64_t>(edges / kEdgesOfAThread, 1, std::max(threads, 1)));
  if (unnumbered_.size() < static_cast<std::size_t>(parts)) unnumbered_.resize(parts);
#pragma omp parallel for num_threads(parts) schedule(static, 1) if (parts > 1)
  for (int part = 0; part < parts; ++part) {
    std::vector<int>& found = unnumbered_[part];
    found.clear();
    const int end = edge_begin + static_cast<int>(edges * (part + 1) / parts);
    for (int e = edge_begin + static_cast<int>(edges * part / parts); e < end; ++e) {
      const int j = owner ? owner[senders[e]] : senders[e];
      const int node = j < 0 ? -1 : nodes_.find(j);
      if (node < 0)
        found.push_back(e);
      else
        senders[e] = node;
    }
  }
  for (int part = 0; part < parts; ++part)
    for (const int e : unnumbered_[part]) {
      if (owner)
        stop_rank(lmp,
                  "Pair style clebsch: expected the owner of every neighbor in the neighbor list, got none for local "
                  "index " +
                      std::to_string(senders[e]) + "; please report this");
      senders[e] = nodes_.number(senders[e]);
    }
}

ClosestPair GraphBuilder::closest_pair() const {
  ClosestPair closest;
  double shortest = INFINITY;
  for (int node = 0; node < graph_.n_rows; ++node)
    for (int e = graph_.row_ptr[node]; e < graph_.row_ptr[node + 1]; ++e) {
      const double* v = &graph_.edge_vec[3 * static_cast<std::size_t>(e)];
      const double distance = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
      if (distance >= shortest) continue;
      shortest = distance;
      closest = {atoms()[node], atoms()[graph_.senders[e]], distance};
    }
  return closest;
}

double GraphBuilder::memory_usage() const {
  std::size_t ints =
      graph_.row_ptr.capacity() + graph_.senders.capacity() + graph_.types.capacity() + nodes_.capacity();
  for (const std::vector<int>& edges : unnumbered_) ints += edges.capacity();
  return static_cast<double>(ints * sizeof(int) + graph_.edge_vec.capacity() * sizeof(double));
}

}  // namespace clebsch_lammps
