#pragma once
// The generator of the gate's kernels.
#include <cstdint>
#include <string>

#include "core/problem/gate_plan.h"
#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {

/// Work items of a node: one for each scalar and each gated channel.
int64_t gate_items(const GatePlan& plan);
/// Threads a block.
constexpr int kGateThreads = 256;

/// Entry points and parameters:
///   gate_forward(const real* x, const int* row_limit, int nodes, real* out)
///   gate_backward(const real* x, const real* grad_out, const int* row_limit, int nodes, real* grad_x)
/// A thread makes one scalar, or one gated channel with all its components (backward: and its gate), of one node. Rows
/// from *row_limit on (null: none) are written as zero. Grid: ceil(nodes * gate_items / kGateThreads).
std::string gate_source(const GateProblem& problem, Scalar scalar);

}  // namespace clebsch::cuda
