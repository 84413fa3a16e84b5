#include "core/graph_passes.h"

#include <algorithm>

namespace clebsch {
namespace {

/// Edges that are worth a thread of their own: fewer take less time than it takes to wake one.
constexpr int64_t kWorthAThread = 4096;

int useful_threads(int64_t items, int threads) {
  return static_cast<int>(std::clamp<int64_t>(items / kWorthAThread, 1, std::max(threads, 1)));
}

/// The beginning of range `part` of `parts` equal ones.
int64_t range_begin(int64_t items, int part, int parts) { return items * part / parts; }

/// Whether test(begin, end) holds for all ranges of [0, count).
template <typename Test>
bool all_ranges(int64_t count, int threads, const Test& test) {
  const int parts = useful_threads(count, threads);
  bool holds = true;
#pragma omp parallel for num_threads(parts) schedule(static, 1) reduction(&& : holds) if (parts > 1)
  for (int part = 0; part < parts; ++part) {
    holds = holds && test(range_begin(count, part, parts), range_begin(count, part + 1, parts));
  }
  return holds;
}

}  // namespace

void transpose_graph(const GraphView& graph, int threads, std::vector<int32_t>& col_ptr, std::vector<int32_t>& col_edge,
                     std::vector<int32_t>& counts) {
  const int64_t edges = graph.row_ptr[graph.n_rows], nodes = graph.n_nodes;
  // A thread's counts are as long as there are nodes: together they are not more than the edges.
  const int64_t most = nodes > 0 ? edges / nodes : 1;
  const int parts = useful_threads(edges, static_cast<int>(std::min<int64_t>(threads, most)));
  if (parts == 1) {
    transpose_graph(graph, col_ptr, col_edge);
    return;
  }
  col_ptr.resize(static_cast<size_t>(nodes) + 1);
  col_edge.resize(edges);
  counts.resize(static_cast<size_t>(parts) * nodes);
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part) {
    int32_t* own = &counts[static_cast<size_t>(part) * nodes];
    std::fill_n(own, nodes, 0);
    const int64_t end = range_begin(edges, part + 1, parts);
    for (int64_t e = range_begin(edges, part, parts); e < end; ++e) ++own[graph.senders[e]];
  }
  // Counts become each range's first place among the edges of its sender, and col_ptr[j + 1] the number of those edges.
#pragma omp parallel for num_threads(parts) schedule(static)
  for (int64_t j = 0; j < nodes; ++j) {
    int32_t before = 0;
    for (int part = 0; part < parts; ++part) {
      int32_t& count = counts[static_cast<size_t>(part) * nodes + j];
      const int32_t here = count;
      count = before;
      before += here;
    }
    col_ptr[j + 1] = before;
  }
  col_ptr[0] = 0;
  for (int64_t j = 0; j < nodes; ++j) col_ptr[j + 1] += col_ptr[j];
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part) {
    // Places within a sender's edges become places among all edges, so that the inner loop looks at one array. Ranges
    // follow each other and a range's edges are visited in ascending order, so each sender's list ascends.
    int32_t* own = &counts[static_cast<size_t>(part) * nodes];
    for (int64_t j = 0; j < nodes; ++j) own[j] += col_ptr[j];
    const int64_t end = range_begin(edges, part + 1, parts);
    for (int64_t e = range_begin(edges, part, parts); e < end; ++e) {
      col_edge[own[graph.senders[e]]++] = static_cast<int32_t>(e);
    }
  }
}

void fill_receivers(const GraphView& graph, int threads, int32_t* receivers) {
  const int parts = useful_threads(graph.row_ptr[graph.n_rows], threads);
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
  for (int32_t i = 0; i < graph.n_rows; ++i) {
    std::fill(receivers + graph.row_ptr[i], receivers + graph.row_ptr[i + 1], i);
  }
}

bool all_finite(const double* values, int64_t count, int threads) {
  return all_ranges(count, threads, [&](int64_t begin, int64_t end) {
    double probe[4] = {0, 0, 0, 0};  // four sums, so that additions overlap; 0 * infinity is not a number
    for (int64_t k = begin; k < end; ++k) probe[k & 3] += values[k] * 0.0;
    return probe[0] + probe[1] + probe[2] + probe[3] == 0;
  });
}

bool all_below(const int32_t* values, int64_t count, int32_t bound, int threads) {
  return all_ranges(count, threads, [&](int64_t begin, int64_t end) {
    bool inside = true;  // no branch, so that the loop vectorises
    for (int64_t k = begin; k < end; ++k) inside &= values[k] >= 0 && values[k] < bound;
    return inside;
  });
}

}  // namespace clebsch
