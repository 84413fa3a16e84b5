#pragma once
// Passes over all edges of a graph that a step on the CPU makes beside its ops, by several threads. Results are the
// same numbers, in the same places, for any number of threads.
#include <cstdint>
#include <vector>

#include "core/graph.h"

namespace clebsch {

/// As transpose_graph() of core/graph.h: a counting sort in which each thread counts, then places, its own range of
/// edges. `counts` is scratch memory that keeps its capacity: at most as many numbers as there are edges.
void transpose_graph(const GraphView& graph, int threads, std::vector<int32_t>& col_ptr, std::vector<int32_t>& col_edge,
                     std::vector<int32_t>& counts);

/// Writes the receiver of every edge, receivers (E), from row_ptr.
void fill_receivers(const GraphView& graph, int threads, int32_t* receivers);

/// Whether all of values (count) are finite.
bool all_finite(const double* values, int64_t count, int threads);

/// Whether all of values (count) are in [0, bound).
bool all_below(const int32_t* values, int64_t count, int32_t bound, int threads);

/// As validate_graph() of core/graph.h.
void validate_graph(const GraphView& graph, int types_count, int threads);

}  // namespace clebsch
