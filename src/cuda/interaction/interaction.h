#pragma once
// clebsch::interaction on CUDA: launches of the generated kernels.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/problem/problem.h"
#include "cuda/emit/reductions.h"
#include "cuda/interaction/interaction_arguments.h"
#include "cuda/interaction/interaction_source.h"
#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

/// A planned and compiled kernel with the sums that are launched beside it.
struct CompiledInteraction {
  Schedule schedule;
  std::string entry;  ///< name of the main kernel
  Cubin main, sums;
};

/// Plans and compiles the forward pass, or with `wanted` the backward pass that gives these; no device is needed. The
/// only place where an interaction's sources are chosen. `density`: as InteractionOperands::density says; a backward
/// pass without edge_vec has no use for it. Throws Error with the compiler's log.
CompiledInteraction compile_interaction(const Problem& problem, Scalar scalar,
                                        const std::optional<InteractionOutputs>& wanted, const DeviceLimits& limits,
                                        const ScheduleOptions& options, const CubinCache& cache, bool density = false);

/// Whether kernels read so many tables as splines: whoever makes tables for a GPU asks. With several tables few edges
/// share a piece, and reading tables bounds the kernels; with one, the pieces' own polynomials are faster. In fp64
/// arithmetic is what bounds them, and pieces make them agree with the CPU to the last digits.
/// CLEBSCH_CUDA_INTERACTION (spline=0, spline=1) decides for any number and dtype. Never for a density, whose one
/// column a thread evaluates by itself.
bool interaction_splines(int64_t tables, const RadialDescription& radial, Scalar scalar);

/// Kernels of one problem, dtype and device; made by `make`, safe to use from several threads.
/// An edge whose type pair has no table, or whose vector is not finite, makes its receiver's sum not a number.
class Interaction {
 public:
  /// For the current device. Kernels are planned, compiled and loaded when first needed. The environment variable
  /// CLEBSCH_CUDA_INTERACTION (see schedule_options) overrides the planner, for tuning. `splines`: they read tables as
  /// splines (never the density's). `density`: they sum one. Throws Error when the problem has no radial part or a path
  /// that is not uvu.
  static std::shared_ptr<const Interaction> make(const std::shared_ptr<const Problem>& problem, Scalar scalar,
                                                 bool splines, bool density = false);

  /// Whether the kernels read tables as splines.
  bool splines() const { return options_.spline > 0; }

  /// Bytes of scratch memory a call needs; depends on capacities alone.
  int64_t forward_workspace(const InteractionOperands& operands, int64_t out_rows) const;
  int64_t backward_workspace(const InteractionOperands& operands, const InteractionOutputs& outputs) const;

  /// out (out_rows, out.dim()), every row written. Asynchronous on the stream, no host synchronisation; bitwise the
  /// same from run to run.
  void forward(const InteractionOperands& operands, int64_t out_rows, void* out, void* workspace, Stream stream) const;
  /// grad_out (>= graph_rows, out.dim()). Overwrites grad_x (nodes, in1.dim()) and grad_edge_vec (E,3) as far as
  /// `outputs`; vectors beyond row_ptr[graph_rows] are not touched. grad_edge_vec is bitwise the same from run to run,
  /// grad_x if outputs.deterministic, which needs the transpose: in fp32 by sums of integers, or by slabs for so many
  /// nodes that their sums would take more memory. outputs.fixed_point
  /// and turned are not read.
  void backward(const InteractionOperands& operands, const InteractionOutputs& outputs, const void* grad_out,
                void* grad_x, double* grad_edge_vec, void* workspace, Stream stream) const;

 private:
  struct Variant {
    Schedule schedule;
    ListedKernel<InteractionArguments> main;
    ListedKernel<SumSlabArguments> sum_slab;
    ListedKernel<SumPartsArguments> sum_parts;
  };

  Interaction(std::shared_ptr<const Problem> problem, Scalar scalar, ScheduleOptions options, bool density);
  /// Index 0 is the forward pass, others the backward pass with bits x, edge_vec, deterministic, fixed_point, turned.
  const Variant& variant(int index) const;
  /// Edges that a deterministic backward handles at a time, and bytes that it keeps of each: its rows of dX.
  struct Slab {
    int64_t edges = 1, edge_bytes = 0;
  };
  Slab slab(const Schedule& schedule, const InteractionOperands& operands) const;
  void check(const InteractionOperands& operands) const;
  /// Whether the backward pass goes by sender.
  bool turns(const InteractionOperands& operands, const InteractionOutputs& outputs) const;
  void backward_by_sender(const InteractionOperands& operands, const void* grad_out, void* grad_x,
                          double* grad_edge_vec, Stream stream) const;
  /// How forward splits receivers: all `out_rows` are whole where there is nothing to split.
  ReceiverParts parts_of(const Schedule& schedule, const InteractionOperands& operands, int64_t out_rows) const;
  /// The launches over which the units of a schedule are spread.
  void launch_units(const Variant& kernels, int64_t rows, int64_t splits, InteractionArguments arguments,
                    Stream stream) const;

  std::shared_ptr<const Problem> problem_;
  Scalar scalar_;
  ScheduleOptions options_;
  bool density_;
  DeviceLimits limits_;
  mutable Kept<int, Variant> variants_;
};

}  // namespace clebsch::cuda
