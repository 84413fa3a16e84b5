#pragma once
// Small periodic systems for the tests of the model runtime, with folded and with explicit ghosts.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/graph.h"
#include "model/model.h"

namespace clebsch::testing {

using Vec = std::array<double, 3>;

/// The model files that tests/unit/CMakeLists.txt makes with tiny_model.py.
inline std::string model_path(const std::string& name) { return std::string(CLEBSCH_TEST_MODELS) + "/" + name + ".pt"; }

/// Atoms in a cubic box of edge `length`, periodic, on a disturbed grid; types 0 and 1.
struct System {
  double length = 0;
  std::vector<Vec> x;
  std::vector<int64_t> type;
};

inline System make_system(int atoms, double length, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0.0, 0.12);
  const int side = static_cast<int>(std::ceil(std::cbrt(atoms)));
  System s;
  s.length = length;
  for (int i = 0; i < atoms; ++i) {
    const int cell[3] = {i % side, i / side % side, i / side / side};
    Vec p;
    for (int d = 0; d < 3; ++d) p[d] = cell[d] * length / side + noise(random);
    s.x.push_back(p);
    s.type.push_back(static_cast<int64_t>(random() % 2));
  }
  return s;
}

struct Edges {
  std::vector<int64_t> receiver, sender;
  std::vector<double> vec;
  void add(int64_t i, int64_t j, const Vec& v) {
    receiver.push_back(i);
    sender.push_back(j);
    vec.insert(vec.end(), v.begin(), v.end());
  }
};

inline double norm(const Vec& v) { return std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]); }

/// Every image folded to its owner: M = N = n_local.
inline Graph folded_graph(const System& s, double cutoff, int layers) {
  const int n = static_cast<int>(s.x.size()), reach = static_cast<int>(std::ceil(cutoff / s.length)) + 1;
  Edges edges;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      for (int a = -reach; a <= reach; ++a) {
        for (int b = -reach; b <= reach; ++b) {
          for (int c = -reach; c <= reach; ++c) {
            const int shift[3] = {a, b, c};
            Vec v;
            for (int d = 0; d < 3; ++d) v[d] = s.x[j][d] + shift[d] * s.length - s.x[i][d];
            const double r = norm(v);
            if (r < cutoff && r > 1e-9) edges.add(i, j, v);
          }
        }
      }
    }
  }
  Graph g;
  g.assign(n, n, n, static_cast<int64_t>(edges.receiver.size()), edges.receiver.data(), edges.sender.data(),
           edges.vec.data(), s.type.data(), layers);
  return g;
}

/// Explicit ghosts, as ranks of a parallel run see them: owned atoms, then ghosts by the number of hops at which they
/// feed an owned atom. owner[i] is the owned atom that row i is an image of.
struct GhostGraph {
  Graph graph;
  std::vector<int> owner;
  std::vector<double> positions;  ///< (M,3)
};

inline GhostGraph ghost_graph(const System& s, double cutoff, int layers) {
  struct Atom {
    Vec x;
    int owner, hops;
  };
  const int n = static_cast<int>(s.x.size());
  const int reach = static_cast<int>(std::ceil(layers * cutoff / s.length)) + 1;
  std::vector<Atom> atoms;
  for (int i = 0; i < n; ++i) atoms.push_back({s.x[i], i, 0});
  std::vector<Atom> images;
  for (int i = 0; i < n; ++i) {
    for (int a = -reach; a <= reach; ++a) {
      for (int b = -reach; b <= reach; ++b) {
        for (int c = -reach; c <= reach; ++c) {
          if (a == 0 && b == 0 && c == 0) continue;
          const int shift[3] = {a, b, c};
          Atom image{s.x[i], i, -1};
          for (int d = 0; d < 3; ++d) image.x[d] += shift[d] * s.length;
          images.push_back(image);
        }
      }
    }
  }
  auto near = [&](const Atom& p, const Atom& q) {
    Vec v;
    for (int d = 0; d < 3; ++d) v[d] = p.x[d] - q.x[d];
    return norm(v) < cutoff;
  };
  std::vector<int> shell_end{n};
  for (int hop = 1; hop <= layers; ++hop) {
    const std::size_t known = atoms.size();
    for (auto& image : images) {
      if (image.hops >= 0) continue;
      const bool reached = std::any_of(atoms.begin(), atoms.begin() + static_cast<long>(known),
                                       [&](const Atom& atom) { return near(atom, image); });
      if (!reached) continue;
      image.hops = hop;
      atoms.push_back(image);
    }
    shell_end.push_back(static_cast<int>(atoms.size()));
  }
  // Rows up to hop layers - 1 receive messages; the outermost shell only sends.
  const int nodes = static_cast<int>(atoms.size()), rows = shell_end[layers - 1];
  Edges edges;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < nodes; ++j) {
      Vec v;
      for (int d = 0; d < 3; ++d) v[d] = atoms[j].x[d] - atoms[i].x[d];
      if (i != j && norm(v) < cutoff) edges.add(i, j, v);
    }
  }
  std::vector<int64_t> types;
  GhostGraph result;
  for (const Atom& atom : atoms) {
    types.push_back(s.type[atom.owner]);
    result.owner.push_back(atom.owner);
    result.positions.insert(result.positions.end(), atom.x.begin(), atom.x.end());
  }
  result.graph.assign(n, rows, nodes, static_cast<int64_t>(edges.receiver.size()), edges.receiver.data(),
                      edges.sender.data(), edges.vec.data(), types.data(), layers);
  for (int k = 0; k < layers; ++k) result.graph.layer_rows[k] = shell_end[layers - 1 - k];
  return result;
}

/// A graph into reserved arrays, as a caller's kernels would: the padding too, and nonsense where nothing may be read.
inline void fill(const Graph& graph, const DeviceGraph& to) {
  const GraphView from = graph.view();
  const int32_t edges = from.row_ptr[from.n_rows];
  *to.n_local = from.n_local;
  std::copy_n(from.layer_rows, to.layers, to.layer_rows);
  for (int32_t i = 0; i < to.nodes; ++i) to.types[i] = i < from.n_nodes ? from.types[i] : to.padding_type;
  for (int32_t i = 0; i <= to.rows; ++i) to.row_ptr[i] = i < from.n_rows ? from.row_ptr[i] : edges;
  for (int32_t i = 0; i <= to.nodes; ++i) to.col_ptr[i] = i < from.n_nodes ? from.col_ptr[i] : edges;
  for (int32_t i = 0; i < to.rows; ++i) to.weight[i] = i < from.n_local ? 1 : 0;
  for (int64_t e = 0; e < to.edges; ++e) {
    const bool real = e < edges;
    to.senders[e] = real ? from.senders[e] : -7;
    to.receivers[e] = real ? from.receivers[e] : -7;
    to.col_edge[e] = real ? from.col_edge[e] : -7;
    for (int d = 0; d < 3; ++d) to.edge_vec[3 * e + d] = real ? from.edge_vec[3 * e + d] : NAN;
  }
}

}  // namespace clebsch::testing
