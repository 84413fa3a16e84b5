#include "core/graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/errors.h"
#include "core/graph_passes.h"

namespace clebsch {
namespace {

constexpr int64_t kMaxEdges = std::numeric_limits<int32_t>::max();

void require_index(int64_t value, int64_t count, const char* what, int64_t edge) {
  if (value < 0 || value >= count) fail("graph: expected {} of 0 to {}, got {} at {}", what, count - 1, value, edge);
}

/// Whether all of values[0..count) are in [0, bound). The loop has no branch, so that it vectorises; when the answer is
/// no, the caller looks for the culprit one by one.
bool all_below(const int64_t* values, int64_t count, int64_t bound) {
  bool inside = true;
  for (int64_t e = 0; e < count; ++e) inside &= values[e] >= 0 && values[e] < bound;
  return inside;
}

// ptr[0] = 0, never falling, last value `total` (or at most `total` when the total is a capacity).
void require_offsets(const int32_t* ptr, int32_t count, int64_t total, bool exact, const char* what) {
  require(ptr[0] == 0, "graph: expected {}[0] = 0, got {}", what, ptr[0]);
  for (int32_t i = 0; i < count; ++i) {
    if (ptr[i + 1] < ptr[i]) fail("graph: expected {} not to fall, got {} after {} at {}", what, ptr[i + 1], ptr[i], i);
  }
  const bool fits = exact ? ptr[count] == total : ptr[count] <= total;
  require(fits, "graph: expected {} to end at {}{}, got {}", what, exact ? "" : "no more than ", total, ptr[count]);
}

void check_counts(int64_t n_local, int64_t n_rows, int64_t n_nodes) {
  require(0 <= n_local && n_local <= n_rows && n_rows <= n_nodes,
          "graph: expected 0 <= n_local <= n_rows <= n_nodes, got {}, {}, {}", n_local, n_rows, n_nodes);
}

}  // namespace

void Graph::assign(int32_t n_local_, int32_t n_rows_, int32_t n_nodes_, int64_t edges, const int64_t* receiver,
                   const int64_t* sender, const double* vectors, const int64_t* type, int layers) {
  check_counts(n_local_, n_rows_, n_nodes_);
  require(edges >= 0 && edges <= kMaxEdges, "graph: expected 0 to {} edges, got {}", kMaxEdges, edges);
  require(layers >= 0, "graph: expected a number of layers of at least 0, got {}", layers);
  // Everything is checked before anything is changed, so that a refused graph leaves the last one whole.
  const bool sound =
      all_below(receiver, edges, n_rows_) && all_below(sender, edges, n_nodes_) && all_finite(vectors, 3 * edges, 1);
  for (int64_t e = 0; !sound && e < edges; ++e) {
    require_index(receiver[e], n_rows_, "a receiver", e);
    require_index(sender[e], n_nodes_, "a sender", e);
    for (int d = 0; d < 3; ++d) {
      if (!std::isfinite(vectors[3 * e + d])) {
        fail("graph: expected finite edge vectors, got {} at edge {} (receiver {}, sender {})", vectors[3 * e + d], e,
             receiver[e], sender[e]);
      }
    }
  }
  for (int32_t i = 0; i < n_nodes_; ++i) {
    require_index(type[i], std::numeric_limits<int32_t>::max(), "a type", i);
  }

  n_local = n_local_;
  n_rows = n_rows_;
  n_nodes = n_nodes_;
  types.assign(type, type + n_nodes);
  layer_rows.assign(layers, n_rows);
  senders.resize(edges);
  edge_vec.resize(3 * edges);
  row_ptr.assign(static_cast<size_t>(n_rows) + 1, 0);
  for (int64_t e = 0; e < edges; ++e) ++row_ptr[receiver[e] + 1];
  for (int32_t i = 0; i < n_rows; ++i) row_ptr[i + 1] += row_ptr[i];
  if (std::is_sorted(receiver, receiver + edges)) {
    std::copy(sender, sender + edges, senders.begin());
    std::copy(vectors, vectors + 3 * edges, edge_vec.begin());
    finish();
    return;
  }
  // row_ptr[i] serves as the write position of row i and ends as the row's end; it is shifted back afterwards.
  for (int64_t e = 0; e < edges; ++e) {
    const int32_t slot = row_ptr[receiver[e]]++;
    senders[slot] = static_cast<int32_t>(sender[e]);
    for (int d = 0; d < 3; ++d) edge_vec[3 * static_cast<int64_t>(slot) + d] = vectors[3 * e + d];
  }
  for (int32_t i = n_rows; i > 0; --i) row_ptr[i] = row_ptr[i - 1];
  row_ptr[0] = 0;
  finish();
}

bool Graph::refer_to_sorted(int32_t n_local_, int32_t n_rows_, int32_t n_nodes_, int64_t edges, const int64_t* receiver,
                            const int64_t* sender, const double* vectors, const int64_t* type, int layers,
                            int threads) {
  check_counts(n_local_, n_rows_, n_nodes_);
  require(edges >= 0 && edges <= kMaxEdges, "graph: expected 0 to {} edges, got {}", kMaxEdges, edges);
  if (!all_below(type, n_nodes_, std::numeric_limits<int32_t>::max())) return false;
  row_ptr.resize(static_cast<size_t>(n_rows_) + 1);
  senders.resize(edges);
  constexpr int64_t kPiece = 1 << 15;
  const int64_t pieces = (edges + kPiece - 1) / kPiece;
  bool sound = true;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(&& : sound) if (threads > 1 && pieces > 4)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t end = std::min(edges, (piece + 1) * kPiece);
    for (int64_t e = piece * kPiece; e < end; ++e) {
      const int64_t row = receiver[e], last = e > 0 ? receiver[e - 1] : -1, node = sender[e];
      if (row < last || row < 0 || row >= n_rows_ || last < -1 || node < 0 || node >= n_nodes_) {
        sound = false;
        break;
      }
      senders[e] = static_cast<int32_t>(node);
      for (int64_t k = last + 1; k <= row; ++k) row_ptr[k] = static_cast<int32_t>(e);
    }
  }
  if (!sound) return false;
  const int64_t last = edges > 0 ? receiver[edges - 1] : -1;
  std::fill(row_ptr.begin() + last + 1, row_ptr.end(), static_cast<int32_t>(edges));
  n_local = n_local_;
  n_rows = n_rows_;
  n_nodes = n_nodes_;
  types.assign(type, type + n_nodes);
  layer_rows.assign(layers, n_rows);
  receivers.clear();
  col_ptr.clear();
  vectors_ = vectors;
  return true;
}

void Graph::finish() {
  vectors_ = nullptr;
  receivers.resize(senders.size());
  for (int32_t i = 0; i < n_rows; ++i) {
    for (int32_t e = row_ptr[i]; e < row_ptr[i + 1]; ++e) receivers[e] = i;
  }
  if (with_transpose) {
    transpose_graph(view(), col_ptr, col_edge);
  } else {
    col_ptr.clear();
  }
}

GraphView Graph::view() const {
  GraphView v;
  v.n_local = n_local;
  v.n_rows = n_rows;
  v.n_nodes = n_nodes;
  v.n_edges = static_cast<int64_t>(senders.size());
  v.n_layers = static_cast<int32_t>(layer_rows.size());
  v.row_ptr = row_ptr.data();
  v.senders = senders.data();
  v.receivers = vectors_ || receivers.size() != senders.size() ? nullptr : receivers.data();
  const bool transposed = col_ptr.size() == static_cast<size_t>(n_nodes) + 1 && !row_ptr.empty();
  v.col_ptr = transposed ? col_ptr.data() : nullptr;
  v.col_edge = transposed ? col_edge.data() : nullptr;
  v.layer_rows = layer_rows.data();
  v.types = types.data();
  v.edge_vec = vectors_ ? vectors_ : edge_vec.data();
  return v;
}

void transpose_graph(const GraphView& graph, std::vector<int32_t>& col_ptr, std::vector<int32_t>& col_edge) {
  const int64_t edges = graph.row_ptr[graph.n_rows];
  col_ptr.assign(static_cast<size_t>(graph.n_nodes) + 1, 0);
  col_edge.resize(edges);
  for (int64_t e = 0; e < edges; ++e) ++col_ptr[graph.senders[e] + 1];
  for (int32_t j = 0; j < graph.n_nodes; ++j) col_ptr[j + 1] += col_ptr[j];
  // Edges are visited in ascending order, so each sender's list ascends.
  for (int64_t e = 0; e < edges; ++e) col_edge[col_ptr[graph.senders[e]]++] = static_cast<int32_t>(e);
  for (int32_t j = graph.n_nodes; j > 0; --j) col_ptr[j] = col_ptr[j - 1];
  col_ptr[0] = 0;
}

void validate_graph(const GraphView& graph, int types_count) { validate_graph(graph, types_count, 1); }

void validate_graph(const GraphView& graph, int types_count, int threads) {
  check_counts(graph.n_local, graph.n_rows, graph.n_nodes);
  require(graph.n_edges >= 0 && graph.n_edges <= kMaxEdges, "graph: expected 0 to {} edges, got {}", kMaxEdges,
          graph.n_edges);
  require(graph.row_ptr != nullptr, "graph: expected row_ptr, got none");
  require_offsets(graph.row_ptr, graph.n_rows, graph.n_edges, false, "row_ptr");
  const int64_t edges = graph.row_ptr[graph.n_rows];
  require(edges == 0 || graph.senders != nullptr, "graph: expected senders, got none");
  if (!all_below(graph.senders, edges, graph.n_nodes, threads)) {
    for (int64_t e = 0; e < edges; ++e) require_index(graph.senders[e], graph.n_nodes, "a sender", e);
  }
  if (graph.receivers != nullptr) {
    for (int32_t i = 0; i < graph.n_rows; ++i) {
      for (int32_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
        if (graph.receivers[e] != i) fail("graph: expected receiver {} at edge {}, got {}", i, e, graph.receivers[e]);
      }
    }
  }
  if (graph.col_ptr != nullptr) {
    require_offsets(graph.col_ptr, graph.n_nodes, edges, true, "col_ptr");
    require(edges == 0 || graph.col_edge != nullptr, "graph: expected col_edge beside col_ptr, got none");
    for (int32_t j = 0; j < graph.n_nodes; ++j) {
      int64_t last = -1;
      for (int32_t k = graph.col_ptr[j]; k < graph.col_ptr[j + 1]; ++k) {
        const int32_t e = graph.col_edge[k];
        require_index(e, edges, "an edge in col_edge", k);
        if (graph.senders[e] != j)
          fail("graph: expected col_edge of sender {}, got sender {} at {}", j, graph.senders[e], k);
        if (e <= last) fail("graph: expected col_edge to rise for sender {}, got {} after {}", j, e, last);
        last = e;
      }
    }
  }
  if (graph.n_layers > 0) {
    require(graph.layer_rows != nullptr, "graph: expected layer_rows, got none");
    for (int32_t k = 0; k < graph.n_layers; ++k) {
      const int32_t rows = graph.layer_rows[k], above = k > 0 ? graph.layer_rows[k - 1] : graph.n_rows;
      if (rows < graph.n_local || rows > above) {
        fail("graph: expected layer_rows[{}] of {} to {}, got {}", k, graph.n_local, above, rows);
      }
    }
  }
  require(graph.n_nodes == 0 || graph.types != nullptr, "graph: expected types, got none");
  for (int32_t i = 0; i < graph.n_nodes; ++i) require_index(graph.types[i], types_count, "a type", i);
}

}  // namespace clebsch
