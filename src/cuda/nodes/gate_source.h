#pragma once
// The generator of the gate's kernels.
#include <cstdint>
#include <string>

#include "core/problem/gate_plan.h"
#include "cuda/emit/source_writer.h"
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// Work items of a node: one for each scalar and each gated channel.
int64_t gate_items(const GatePlan& plan);
/// Threads a block.
constexpr int kGateThreads = 256;

/// Arguments of gate_forward or gate_backward.
struct GateArguments {
  bool backward = false;
  const void* x = nullptr;
  const void* grad_out = nullptr;
  const int32_t* row_limit = nullptr;
  int32_t nodes = 0;
  void* out = nullptr;  ///< backward: grad_x

  template <typename F>
  void each(F&& visit) {
    visit("const real* __restrict__ rows_in", x);
    if (backward) visit("const real* __restrict__ grad_out", grad_out);
    visit("const int* __restrict__ row_limit", row_limit);
    visit("int nodes", nodes);
    visit("real* __restrict__ rows_out", out);
  }
};

/// gate_forward and gate_backward. A thread makes one scalar, or one gated channel with all its components (backward:
/// and its gate), of one node. Rows from *row_limit on (null: none) are written as zero. Grid: ceil(nodes * gate_items
/// / kGateThreads).
std::string gate_source(const GateProblem& problem, Scalar scalar);

}  // namespace clebsch::cuda
