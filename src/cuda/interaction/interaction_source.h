#pragma once
// The generator of clebsch::interaction: a problem with a radial part becomes the CUDA source of fused kernels.
#include "cuda/runtime/kernel_source.h"

namespace clebsch::cuda {

/// Which gradients a backward kernel writes, and how dX is summed.
struct InteractionOutputs {
  bool x = true, edge_vec = true;
  /// true: the same bits in every run; false: atomic additions in the order that comes.
  bool deterministic = false;
  /// With deterministic, in fp32: dX is counted in quanta by atomic additions of integers (kernels/fixed_point.h).
  /// Without: dX of every edge goes to memory, to be summed by sender in edge order.
  bool fixed_point = false;
  /// dX of every edge goes to memory.
  bool by_edge() const { return deterministic && !fixed_point && !turned; }
  /// Both gradients, each row a sender that walks its edges of the transpose: dX is then a sum in registers, in the
  /// same order in every run, and nothing is added in memory.
  bool turned = false;
};

/// interaction, forward: interaction_forward, which takes InteractionArguments. To be launched schedule.launches times
/// in order with first_unit = 0, units_per_launch() and so on. Grid: (ceil(out_rows / receivers_per_block), splits);
/// with splits > 1, out has that many copies of (out_rows, out.dim()), each the sum over a part of the edges. Rows from
/// min(*row_limit, graph_rows) on are zero. Tables must be C2 and zero at the cutoff, as build_radial_table makes them:
/// of a row the first three coefficients are read, the other three follow from the next row. With `density`:
/// interaction_density_forward; density has a copy of (out_rows) for each split.
KernelSource interaction_forward_source(const Problem& problem, Scalar scalar, const DeviceLimits& limits,
                                        const ScheduleOptions& options = {}, bool density = false);

/// interaction, backward: interaction_backward, which takes InteractionArguments, for edges [edge_begin, edge_end)
/// alone. grad_x: (edge_end - edge_begin, max_input_parts(problem, schedule) * in1.dim()) when outputs.by_edge(), else
/// (M, in1.dim()), added to atomically, with fixed_point as 64-bit integers. Gradients of edges of rows from row_limit
/// on, and of edges beyond their cutoff, are written as zero. Grid: (ceil(graph_rows / receivers_per_block), splits).
/// With `density`, which needs outputs.edge_vec: interaction_density_backward.
/// With outputs.turned: interaction_turned, of the turned problem (below): row_ptr is col_ptr, senders are receivers,
/// graph_rows are nodes, x and grad_out change places. grad_x (nodes, in1.dim()), every row written.
KernelSource interaction_backward_source(const Problem& problem, Scalar scalar, const InteractionOutputs& outputs,
                                         const DeviceLimits& limits, const ScheduleOptions& options = {},
                                         bool density = false);

/// The problem whose output is dX of `problem` where its input is dE/d out: paths in the same order with in1 and out
/// exchanged, so that both have the same W.
Problem turned_problem(const Problem& problem);

}  // namespace clebsch::cuda
