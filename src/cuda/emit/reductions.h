#pragma once
// The sums in fixed order that finish deterministic results.
#include <string>

#include "core/problem/problem.h"
#include "cuda/plan/schedule.h"

namespace clebsch::cuda {

/// Two small sums in fixed order:
///   sum_by_sender(const real* edge_rows, const int* col_ptr, const int* col_edge, int nodes, real* out)
///     grid (nodes); out (nodes, in1.dim()) = sum of the edges' rows, ascending edge ids. edge_rows is what the
///     deterministic backward kernel of `schedule` wrote: (E, max_input_parts * in1.dim())
///   sum_parts(const real* parts, int64 count, int splits, real* out)
///     grid (ceil(count / kReductionThreads)), out[i] = sum over s of parts[s * count + i]
std::string reductions_source(const Problem& problem, const Schedule& schedule);
/// Threads a block of sum_by_sender and sum_parts.
constexpr int kReductionThreads = 128;

/// The sums in fixed order that finish deterministic results, kReductionThreads a block:
///   sum_slab(const real* edge_rows, const int* col_ptr, const int* col_edge, int edge_begin, int edge_end, real* out)
///     grid (nodes); out (nodes, in1.dim()) += the rows of the slab's edges with this sender, ascending edge ids; the
///     first slab (edge_begin = 0) overwrites.
///   sum_parts(const real* parts, int64 count, int splits, real* out)
///     grid (ceil(count / kReductionThreads)), out[i] = sum over s of parts[s * count + i]
std::string interaction_sums_source(const Problem& problem, const Schedule& schedule);

}  // namespace clebsch::cuda
