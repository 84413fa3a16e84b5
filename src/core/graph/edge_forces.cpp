#include "core/edge_forces.h"

#include <algorithm>

#include "core/errors.h"

namespace clebsch {
namespace {

// Every sum of an atom runs in one order whatever the threads: first the edges it receives, then those it sends, each
// in edge order. The global virial is summed over this many fixed ranges of edges, then over the ranges.
constexpr int kVirialRanges = 128;

// Positions of LAMMPS' centroid order xx yy zz xy xz yz yx zx zy in edge_vec[a] * g[b].
constexpr int kFirst[9] = {0, 1, 2, 0, 0, 1, 1, 2, 2};
constexpr int kSecond[9] = {0, 1, 2, 1, 2, 2, 0, 0, 1};

struct Sum {
  const double* edge_vec;
  const double* gradient;
  const EdgeForceTargets& targets;

  void half_virial(int64_t atom, const double* r, const double* g) const {
    double* v = targets.atom_virial + 6 * atom;
    for (int c = 0; c < 6; ++c) v[c] -= 0.25 * (r[kFirst[c]] * g[kSecond[c]] + r[kSecond[c]] * g[kFirst[c]]);
  }
  void receive(int64_t atom, int64_t edge) const {
    const double *r = edge_vec + 3 * edge, *g = gradient + 3 * edge;
    if (targets.forces != nullptr) {
      for (int d = 0; d < 3; ++d) targets.forces[3 * atom + d] += g[d];
    }
    if (targets.atom_virial != nullptr) half_virial(atom, r, g);
  }
  void send(int64_t atom, int64_t edge) const {
    const double *r = edge_vec + 3 * edge, *g = gradient + 3 * edge;
    if (targets.forces != nullptr) {
      for (int d = 0; d < 3; ++d) targets.forces[3 * atom + d] -= g[d];
    }
    if (targets.atom_virial != nullptr) half_virial(atom, r, g);
    if (targets.centroid_virial != nullptr) {
      double* v = targets.centroid_virial + 9 * atom;
      for (int c = 0; c < 9; ++c) v[c] -= r[kFirst[c]] * g[kSecond[c]];
    }
  }
  // Adds the virial of edges [from, to) to w.
  void range_virial(int64_t from, int64_t to, double* w) const {
    for (int64_t e = from; e < to; ++e) {
      const double *r = edge_vec + 3 * e, *g = gradient + 3 * e;
      for (int a = 0; a < 3; ++a) {
        for (int b = 0; b < 3; ++b) w[3 * a + b] -= r[a] * g[b];
      }
    }
  }
};

}  // namespace

void accumulate_edge_forces(const GraphView& graph, const double* edge_gradient, const EdgeForceTargets& targets,
                            int threads) {
  const int64_t edges = graph.row_ptr[graph.n_rows];
  const Sum sum{graph.edge_vec, edge_gradient, targets};
  threads = std::max(threads, 1);
  require(threads == 1 || graph.col_ptr != nullptr,
          "edge forces: expected the transposed graph for {} threads, got none; build it or use one thread", threads);

  const bool per_atom = targets.forces != nullptr || targets.atom_virial != nullptr;
  if (per_atom) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int32_t i = 0; i < graph.n_rows; ++i) {
      for (int64_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) sum.receive(i, e);
    }
  }
  if (per_atom || targets.centroid_virial != nullptr) {
    if (threads == 1) {
      for (int64_t e = 0; e < edges; ++e) sum.send(graph.senders[e], e);
    } else {
#pragma omp parallel for schedule(static) num_threads(threads)
      for (int32_t j = 0; j < graph.n_nodes; ++j) {
        for (int64_t k = graph.col_ptr[j]; k < graph.col_ptr[j + 1]; ++k) sum.send(j, graph.col_edge[k]);
      }
    }
  }
  if (targets.virial != nullptr) {
    double parts[kVirialRanges][9] = {};
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int part = 0; part < kVirialRanges; ++part) {
      sum.range_virial(edges * part / kVirialRanges, edges * (part + 1) / kVirialRanges, parts[part]);
    }
    for (const auto& part : parts) {
      for (int c = 0; c < 9; ++c) targets.virial[c] += part[c];
    }
  }
}

}  // namespace clebsch
