#pragma once
// The generator of tensor_product_conv: a problem becomes the CUDA source of a kernel.
#include "core/problem/problem.h"
#include "cuda/plan/schedule.h"
#include "cuda/runtime/kernel_source.h"

namespace clebsch::cuda {

/// Which gradients a backward kernel writes, and how dX is summed.
struct BackwardOutputs {
  bool x = true, harmonics = true, weights = true;
  /// true: dX of every edge goes to memory (E, in1.dim()), to be summed by sender in edge order; false: atomics.
  bool deterministic = true;
  /// With deterministic, in fp32, of a double backward pass: dX as integers in any order (cuda/emit/window_sums.h).
  bool windows = false;
  bool by_edge() const { return deterministic && !windows; }
};

/// tensor_product_conv, forward: conv_forward, which takes ConvArguments. To be launched schedule.launches times in
/// order, with first_unit = 0, units_per_launch() and so on. row_limit: null, or on the device: rows from there on are
/// zero. Grid: (ceil(out_rows / receivers_per_block), splits); with splits > 1, out has that many copies of (out_rows,
/// out.dim()), each the sum over a part of the edges.
KernelSource conv_forward_source(const Problem& problem, Scalar scalar, const DeviceLimits& limits,
                                 const ScheduleOptions& options = {});

/// The same for a problem of uvw paths alone. `adds`: to what another kernel has written.
KernelSource uvw_forward_source(const Problem& problem, Scalar scalar, bool adds, const DeviceLimits& limits,
                                const ScheduleOptions& options = {});

/// tensor_product_conv, backward: conv_backward, which takes ConvArguments. grad_x: (E, max_input_parts(problem,
/// schedule) * in1.dim()) when deterministic, else (M, in1.dim()), added to atomically. Gradients of edges of rows from
/// row_limit on are written as zero. Grid: (ceil(graph_rows / receivers_per_block), splits).
KernelSource conv_backward_source(const Problem& problem, Scalar scalar, const BackwardOutputs& outputs,
                                  const DeviceLimits& limits, const ScheduleOptions& options = {});

/// The same for a problem of uvw paths alone. `adds`: to the grad_x and grad_harmonics of another kernel, which has
/// also written the zeros of grad_harmonics and grad_weights.
KernelSource uvw_backward_source(const Problem& problem, Scalar scalar, const BackwardOutputs& outputs, bool adds,
                                 const DeviceLimits& limits, const ScheduleOptions& options = {});

/// A double backward kernel: the gradients arriving for grad_x, grad_harmonics and grad_weights of the backward pass
/// that there are, and which gradients it writes.
struct DoubleBackwardOutputs {
  bool from_x = true, from_harmonics = true, from_weights = true;
  bool grad_out = true;   ///< the gradient of the backward pass's grad_out
  BackwardOutputs edges;  ///< those of its x, harmonics and weights
};

/// tensor_product_conv, the derivative of its backward pass, in one pass over the edges: conv_double_backward, which
/// takes ConvArguments. from_x (M, in1.dim()), from_harmonics (E, in2.dim()), from_weights (E, weight_count): see
/// DoubleBackwardOutputs. out: as of conv_forward, with splits copies; the others as of conv_backward. Grid as of
/// conv_forward.
KernelSource conv_double_backward_source(const Problem& problem, Scalar scalar, const DoubleBackwardOutputs& outputs,
                                         const DeviceLimits& limits, const ScheduleOptions& options = {});

}  // namespace clebsch::cuda
