#pragma once
// The sums in fixed order that finish deterministic results.
#include <string>

#include "core/problem/problem.h"
#include "cuda/plan/schedule.h"
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// sum_by_sender, grid (nodes): out (nodes, in1.dim()) = sum of the edges' rows, ascending edge ids.
struct SumBySenderArguments {
  const void* edge_rows = nullptr;  ///< (E, max_input_parts * in1.dim()), of the deterministic backward kernel
  const int32_t *col_ptr = nullptr, *col_edge = nullptr;
  int32_t nodes = 0;
  void* out = nullptr;

  template <typename F>
  void each(F&& visit) {
    visit("const real* __restrict__ edge_rows", edge_rows);
    visit("const int* __restrict__ col_ptr", col_ptr);
    visit("const int* __restrict__ col_edge", col_edge);
    visit("int nodes", nodes);
    visit("real* __restrict__ out", out);
  }
};

/// sum_slab, grid (nodes): out (nodes, in1.dim()) += the rows of the edges [edge_begin, edge_end) with this sender,
/// ascending edge ids; the first slab (edge_begin = 0) overwrites.
struct SumSlabArguments {
  const void* edge_rows = nullptr;  ///< of the slab's edges
  const int32_t *col_ptr = nullptr, *col_edge = nullptr;
  int32_t edge_begin = 0, edge_end = 0;
  void* out = nullptr;

  template <typename F>
  void each(F&& visit) {
    visit("const real* __restrict__ edge_rows", edge_rows);
    visit("const int* __restrict__ col_ptr", col_ptr);
    visit("const int* __restrict__ col_edge", col_edge);
    visit("int edge_begin", edge_begin);
    visit("int edge_end", edge_end);
    visit("real* __restrict__ out", out);
  }
};

/// sum_parts, grid (ceil(count / kReductionThreads)): out[i] = sum over s of parts[s * count + i].
struct SumPartsArguments {
  const void* parts = nullptr;
  int64_t count = 0;
  int32_t splits = 0;
  void* out = nullptr;

  template <typename F>
  void each(F&& visit) {
    visit("const real* __restrict__ parts", parts);
    visit("int64 count", count);
    visit("int splits", splits);
    visit("real* __restrict__ out", out);
  }
};

/// Threads a block of all.
constexpr int kReductionThreads = 128;

/// sum_by_sender and sum_parts, beside a convolution's kernel of this schedule; with sums in windows (window_sums.h)
/// sum_windows instead of sum_by_sender.
std::string reductions_source(const Problem& problem, const Schedule& schedule, bool windows = false);
/// sum_slab and sum_parts, beside an interaction's.
std::string interaction_sums_source(const Problem& problem, const Schedule& schedule);

}  // namespace clebsch::cuda
