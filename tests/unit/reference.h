#pragma once
// The tensor product convolution and the interaction as slow loops over coupling coefficients in fp64, and random
// graphs to run them on: what every kernel is compared with. Nothing here is shared with the kernels but core/.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/graph.h"
#include "core/math/coupling.h"
#include "core/math/harmonics.h"
#include "core/problem/problem.h"
#include "core/radial/radial_network.h"
#include "core/radial/radial_table.h"

namespace clebsch::reference {

using Values = std::vector<double>;

/// A new seed for every run, so that tests see fresh data; a test prints it (SCOPED_TRACE) and CLEBSCH_TEST_SEED
/// repeats a run.
inline unsigned fresh_seed() {
  if (const char* text = std::getenv("CLEBSCH_TEST_SEED"))
    return static_cast<unsigned>(std::strtoul(text, nullptr, 10));
  return std::random_device{}();
}

inline Values random_values(size_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  Values values(count);
  for (double& v : values) v = uniform(random);
  return values;
}

// ---------------------------------------------------------------------------------------------------- graphs

struct GraphShape {
  int32_t n_local = 20, n_rows = 20, n_nodes = 20;
  int max_degree = 30;  ///< each receiver's degree is uniform in 0..max_degree
  int64_t padding = 5;  ///< entries beyond row_ptr[N], filled with what must never be read
  int types = 2;
  int layers = 1;
};

/// Cutoffs (types, types), different for every ordered pair, 3.5 to 5.
inline Values pair_cutoffs(int types) {
  Values cutoffs(types * types);
  for (int k = 0; k < types * types; ++k) cutoffs[k] = 5.0 - 1.5 * k / (types * types);
  return cutoffs;
}

/// A random directed graph (asymmetric) with distances from 0.3 to beyond the cutoff; some lie on table knots and
/// within 1e-9 of them, some exactly on the cutoff.
inline Graph random_graph(const GraphShape& shape, std::mt19937_64& random) {
  Graph graph;
  graph.n_local = shape.n_local;
  graph.n_rows = shape.n_rows;
  graph.n_nodes = shape.n_nodes;
  const Values cutoffs = pair_cutoffs(shape.types);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::normal_distribution<double> normal;
  for (int32_t i = 0; i < shape.n_nodes; ++i) graph.types.push_back(static_cast<int32_t>(random() % shape.types));
  graph.row_ptr.push_back(0);
  for (int32_t i = 0; i < shape.n_rows; ++i) {
    const int degree = shape.n_nodes == 0 ? 0 : static_cast<int>(random() % (shape.max_degree + 1));
    for (int k = 0; k < degree; ++k) {
      const int32_t sender = static_cast<int32_t>(random() % shape.n_nodes);
      const double cutoff = cutoffs[graph.types[i] * shape.types + graph.types[sender]];
      double r = 0.3 + uniform(random) * (1.1 * cutoff - 0.3);
      const int special = static_cast<int>(random() % 8);
      if (special < 3) {
        const double first = std::sqrt(kTableStart), h = (std::sqrt(cutoff) - first) / kTablePieces;
        const double knot = first + h * static_cast<double>(random() % (kTablePieces + 1));
        r = knot * knot * (1 + (special - 1) * 1e-9);
      }
      double v[3];
      for (double& c : v) c = normal(random);
      const double length = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
      for (double c : v) graph.edge_vec.push_back(c / length * r);
      graph.senders.push_back(sender);
    }
    graph.row_ptr.push_back(static_cast<int32_t>(graph.senders.size()));
  }
  graph.layer_rows.assign(shape.layers, shape.n_rows);
  graph.finish();
  return graph;
}

/// A view whose arrays go on beyond the last edge with indices out of range and vectors that are not numbers.
struct PaddedGraph {
  Graph graph;
  GraphView view;
  PaddedGraph(Graph source, int64_t padding) : graph(std::move(source)) {
    view = graph.view();
    const size_t edges = graph.row_ptr.back() + padding;
    graph.senders.resize(edges, 1 << 30);
    graph.receivers.resize(edges, 1 << 30);
    graph.col_edge.resize(edges, 1 << 30);
    graph.edge_vec.resize(3 * edges, std::numeric_limits<double>::quiet_NaN());
    view.senders = graph.senders.data();
    view.receivers = graph.receivers.data();
    view.col_edge = graph.col_edge.data();
    view.edge_vec = graph.edge_vec.data();
    view.n_edges = static_cast<int64_t>(edges);
  }
  PaddedGraph(const PaddedGraph&) = delete;
};

// ---------------------------------------------------------------------------------------------------- convolution

/// Gradients of sum(grad_out * out).
struct ConvGradients {
  Values x, harmonics, weights;
};

/// Calls f(edge, receiver, sender, weight column or -1, x index, y index, out index, coefficient) for every term of
/// the convolution. Indices are within a row.
template <typename F>
void each_term(const Problem& problem, const GraphView& graph, int32_t rows, const F& f) {
  const auto in1 = channel_fastest_layout(problem.in1), in2 = channel_fastest_layout(problem.in2),
             out = channel_fastest_layout(problem.out);
  for (const Path& path : problem.paths) {
    const BlockLayout &a = in1[path.in1], &b = in2[path.in2], &c = out[path.out];
    for (const CouplingEntry& entry : wigner_3j(a.ir.l, b.ir.l, c.ir.l)) {
      for (int32_t i = 0; i < rows; ++i) {
        for (int32_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
          if (path.mode == Connection::uvw) {
            for (int64_t k = 0; k < a.mul * c.mul; ++k) {
              f(e, i, graph.senders[e], path.weight_offset + k, a.offset + entry.m1 * a.stride + k / c.mul,
                b.offset + entry.m2 * b.stride, c.offset + entry.m3 * c.stride + k % c.mul,
                path.coefficient * entry.value);
            }
            continue;
          }
          for (int64_t u = 0; u < a.mul; ++u) {
            f(e, i, graph.senders[e], path.weighted ? path.weight_offset + u : -1, a.offset + entry.m1 * a.stride + u,
              b.offset + entry.m2 * b.stride, c.offset + entry.m3 * c.stride + u, path.coefficient * entry.value);
          }
        }
      }
    }
  }
}

/// (M, out.dim()), zero beyond `rows`.
inline Values conv_forward(const Problem& problem, const GraphView& graph, int32_t rows, const Values& x,
                           const Values& harmonics, const Values& weights) {
  const int64_t d1 = problem.in1.dim(), d2 = problem.in2.dim(), d3 = problem.out.dim(), columns = problem.weight_count;
  Values out(graph.n_nodes * d3);
  each_term(problem, graph, rows,
            [&](int64_t e, int64_t i, int64_t j, int64_t w, int64_t ix, int64_t iy, int64_t io, double c) {
              const double weight = w < 0 ? 1.0 : weights[e * columns + w];
              out[i * d3 + io] += c * weight * x[j * d1 + ix] * harmonics[e * d2 + iy];
            });
  return out;
}

inline ConvGradients conv_backward(const Problem& problem, const GraphView& graph, int32_t rows, const Values& x,
                                   const Values& harmonics, const Values& weights, const Values& grad_out) {
  const int64_t d1 = problem.in1.dim(), d2 = problem.in2.dim(), d3 = problem.out.dim(), columns = problem.weight_count;
  ConvGradients grad;
  grad.x.resize(graph.n_nodes * d1);
  grad.harmonics.resize(graph.n_edges * d2);
  grad.weights.resize(graph.n_edges * columns);
  each_term(problem, graph, rows,
            [&](int64_t e, int64_t i, int64_t j, int64_t w, int64_t ix, int64_t iy, int64_t io, double c) {
              const double weight = w < 0 ? 1.0 : weights[e * columns + w], g = c * grad_out[i * d3 + io];
              const double xv = x[j * d1 + ix], yv = harmonics[e * d2 + iy];
              grad.x[j * d1 + ix] += g * weight * yv;
              grad.harmonics[e * d2 + iy] += g * weight * xv;
              if (w >= 0) grad.weights[e * columns + w] += g * xv * yv;
            });
  return grad;
}

// ---------------------------------------------------------------------------------------------------- interaction

/// Random tables, one per ordered type pair: C2 quintic as the library builds them, from a random network.
struct Tables {
  int types = 0, pieces = kTablePieces;
  Values cutoffs, values;            ///< (types, types); [tables][pieces + 1][kTableOrder][columns]
  std::vector<int32_t> table_index;  ///< (types, types)
};

/// A network with random weights of the problem's description, of order 1 in its outputs.
inline RadialNetwork random_network(const Problem& problem, std::mt19937_64& random) {
  const RadialDescription& radial = problem.radial.value();
  Values basis(radial.basis_size());
  for (size_t n = 0; n < basis.size(); ++n) basis[n] = M_PI * static_cast<double>(n + 1);
  return RadialNetwork(radial, basis, random_values(radial.weight_count(), random));
}

inline Tables make_tables(const RadialNetwork& network, int types, int pieces = kTablePieces) {
  Tables tables;
  tables.types = types;
  tables.pieces = pieces;
  tables.cutoffs = pair_cutoffs(types);
  for (int k = 0; k < types * types; ++k) {
    // Tables stand in another order than pairs, so that mixing the two up shows.
    tables.table_index.push_back(types * types - 1 - k);
  }
  for (int table = 0; table < types * types; ++table) {
    const Values one = build_radial_table(network, tables.cutoffs[types * types - 1 - table], pieces);
    tables.values.insert(tables.values.end(), one.begin(), one.end());
  }
  return tables;
}

/// Everything about edges that the interaction makes inside: harmonics (E, lmax), W and dW/dr (E, columns).
struct EdgeFunctions {
  Values harmonics, weights, slopes;
};

inline EdgeFunctions edge_functions(const Problem& problem, const GraphView& graph, int32_t rows,
                                    const Tables& tables) {
  const int64_t columns = problem.weight_count, components = harmonics_count(problem.lmax_in2);
  const int64_t d2 = problem.in2.dim();
  const auto in2 = channel_fastest_layout(problem.in2);
  EdgeFunctions f;
  f.harmonics.resize(graph.n_edges * d2);
  f.weights.resize(graph.n_edges * columns);
  f.slopes.resize(graph.n_edges * columns);
  for (int32_t i = 0; i < rows; ++i) {
    for (int32_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      const double* v = graph.edge_vec + 3 * e;
      const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
      Values y(components);
      spherical_harmonics(problem.lmax_in2, v[0] / r, v[1] / r, v[2] / r, y.data());
      for (const BlockLayout& block : in2) {
        for (int m = 0; m < block.ir.dim(); ++m) {
          f.harmonics[e * d2 + block.offset + m * block.stride] = y[block.ir.l * block.ir.l + m];
        }
      }
      const int pair = graph.types[i] * tables.types + graph.types[graph.senders[e]];
      if (r >= tables.cutoffs[pair]) continue;
      const TablePoint p = locate(r, tables.cutoffs[pair], tables.pieces);
      const double* c =
          tables.values.data() +
          (static_cast<int64_t>(tables.table_index[pair]) * (tables.pieces + 1) + p.piece) * kTableOrder * columns;
      for (int64_t w = 0; w < columns; ++w) {
        double value = 0, slope = 0, power = 1;
        for (int k = 0; k < kTableOrder; ++k) {
          value += c[k * columns + w] * power;
          if (k + 1 < kTableOrder) slope += (k + 1) * c[(k + 1) * columns + w] * power;
          power *= p.t;
        }
        f.weights[e * columns + w] = value;
        f.slopes[e * columns + w] = slope * p.dt_dr;
      }
    }
  }
  return f;
}

struct InteractionGradients {
  Values x, edge_vec;
};

inline Values interaction_forward(const Problem& problem, const GraphView& graph, int32_t rows, const Tables& tables,
                                  const Values& x) {
  const EdgeFunctions f = edge_functions(problem, graph, rows, tables);
  return conv_forward(problem, graph, rows, x, f.harmonics, f.weights);
}

inline InteractionGradients interaction_backward(const Problem& problem, const GraphView& graph, int32_t rows,
                                                 const Tables& tables, const Values& x, const Values& grad_out) {
  const EdgeFunctions f = edge_functions(problem, graph, rows, tables);
  const ConvGradients conv = conv_backward(problem, graph, rows, x, f.harmonics, f.weights, grad_out);
  InteractionGradients grad;
  grad.x = conv.x;
  grad.edge_vec.resize(3 * graph.n_edges);
  const int64_t columns = problem.weight_count, d2 = problem.in2.dim();
  const auto in2 = channel_fastest_layout(problem.in2);
  for (int32_t i = 0; i < rows; ++i) {
    for (int32_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      const double* v = graph.edge_vec + 3 * e;
      const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]), inv = 1 / r;
      const int pair = graph.types[i] * tables.types + graph.types[graph.senders[e]];
      if (r >= tables.cutoffs[pair]) continue;
      Values y(harmonics_count(problem.lmax_in2));
      for (const BlockLayout& block : in2) {
        for (int m = 0; m < block.ir.dim(); ++m) {
          y[block.ir.l * block.ir.l + m] += conv.harmonics[e * d2 + block.offset + m * block.stride];
        }
      }
      double slope = 0;
      for (int64_t w = 0; w < columns; ++w) slope += conv.weights[e * columns + w] * f.slopes[e * columns + w];
      double* out = grad.edge_vec.data() + 3 * e;
      for (int d = 0; d < 3; ++d) out[d] = slope * v[d] * inv;
      spherical_harmonics_backward(problem.lmax_in2, v[0] * inv, v[1] * inv, v[2] * inv, inv, y.data(), out);
    }
  }
  return grad;
}

// ---------------------------------------------------------------------------------------------------- comparison

/// Largest |a - b| over the largest |b|, per block of `irreps` over all rows; the worst block. Infinite when a value
/// is not a number. Blocks that are zero in b must be zero in a.
template <typename T>
double block_error(const Irreps& irreps, int64_t rows, const std::vector<T>& a, const Values& b) {
  const int64_t dim = irreps.dim();
  double worst = 0;
  for (const BlockLayout& block : channel_fastest_layout(irreps)) {
    double difference = 0, scale = 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (int m = 0; m < block.ir.dim(); ++m) {
        for (int64_t u = 0; u < block.mul; ++u) {
          const int64_t k = row * dim + block.offset + m * block.stride + u;
          const double d = std::abs(static_cast<double>(a[k]) - b[k]);
          if (!(d <= difference)) difference = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
          scale = std::max(scale, std::abs(b[k]));
        }
      }
    }
    if (difference > 0) worst = std::max(worst, scale > 0 ? difference / scale : difference);
  }
  return worst;
}

/// The same for plain arrays (edge vectors, weights): one block.
template <typename T>
double array_error(const std::vector<T>& a, const Values& b, size_t count) {
  double difference = 0, scale = 0;
  for (size_t k = 0; k < count; ++k) {
    const double d = std::abs(static_cast<double>(a[k]) - b[k]);
    if (!(d <= difference)) difference = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
    scale = std::max(scale, std::abs(b[k]));
  }
  return difference == 0 ? 0 : scale > 0 ? difference / scale : difference;
}

}  // namespace clebsch::reference
