#pragma once
// clebsch::interaction on CUDA: launches of the generated kernels.
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/problem/problem.h"
#include "cuda/interaction/interaction_source.h"
#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Operands of an interaction, all device pointers; numbers are float or double as the kernels were made for. Edges are
/// in CSR order by receiver. Sizes are capacities: the true edge count is row_ptr[graph_rows], what lies beyond is not
/// read.
struct InteractionOperands {
  /// One radial function more, summed by receiver: for kernels with a density.
  struct Density {
    const void* table = nullptr;     ///< (tables, pieces + 1, kTableOrder, 1), aligned to two numbers
    const int32_t* index = nullptr;  ///< (type_count, type_count), as table_index
    int32_t tables = 0, pieces = 0;
    void* sum = nullptr;         ///< forward: (out_rows), every row written
    const void* grad = nullptr;  ///< backward: dE/d sum, (>= graph_rows)
  };
  const void* x = nullptr;           ///< (nodes, in1.dim()), channel fastest
  const double* edge_vec = nullptr;  ///< (E,3) Angstrom
  const int32_t* senders = nullptr;  ///< (E), below nodes
  const int32_t* types = nullptr;    ///< (nodes), below type_count
  /// (tables, pieces + 1, kTableOrder, weight_count), core/radial/radial_table.h; for kernels with splines (tables,
  /// spline_rows(pieces), 1, weight_count), core/radial/radial_spline.h
  const void* table = nullptr;
  const int32_t* table_index = nullptr;  ///< (type_count, type_count) [centre][neighbour], -1: none was built
  const double* cutoffs = nullptr;       ///< (type_count, type_count), Angstrom
  int32_t type_count = 0, tables = 0, pieces = 0;
  const int32_t* row_ptr = nullptr;    ///< (graph_rows + 1)
  const int32_t* col_ptr = nullptr;    ///< (nodes + 1), for a deterministic backward
  const int32_t* col_edge = nullptr;   ///< (E)
  const int32_t* row_limit = nullptr;  ///< one number: rows from there on are zero; null: all of graph_rows
  int32_t graph_rows = 0, nodes = 0;
  int64_t edges = 0;  ///< capacity E
  Density density;
};

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
  int64_t backward_workspace(const InteractionOperands& operands, const InteractionOutputs& wanted) const;

  /// out (out_rows, out.dim()), every row written. Asynchronous on the stream, no host synchronisation; bitwise the
  /// same from run to run.
  void forward(const InteractionOperands& operands, int64_t out_rows, void* out, void* workspace, Stream stream) const;
  /// grad_out (>= graph_rows, out.dim()). Overwrites grad_x (nodes, in1.dim()) and grad_edge_vec (E,3) as far as
  /// `wanted`; vectors beyond row_ptr[graph_rows] are not touched. grad_edge_vec is bitwise the same from run to run,
  /// grad_x if wanted.deterministic, which needs the transpose.
  void backward(const InteractionOperands& operands, const InteractionOutputs& wanted, const void* grad_out,
                void* grad_x, double* grad_edge_vec, void* workspace, Stream stream) const;

 private:
  struct Variant {
    Schedule schedule;
    Kernel main, sum_slab, sum_parts;
  };

  Interaction(std::shared_ptr<const Problem> problem, Scalar scalar, ScheduleOptions options, bool density);
  /// Index 0 is the forward pass, 1 .. 7 the backward pass with bits x, edge_vec, deterministic.
  const Variant& variant(int index) const;
  /// Blocks that share one receiver, so that few or long receivers still fill the device.
  int64_t splits(const Schedule& schedule, int64_t rows, int64_t edges) const;
  /// Edges that a deterministic backward handles at a time, and bytes that it keeps of each: its rows of dX.
  struct Slab {
    int64_t edges = 1, edge_bytes = 0;
  };
  Slab slab(const Schedule& schedule, const InteractionOperands& operands) const;
  void check(const InteractionOperands& operands) const;

  std::shared_ptr<const Problem> problem_;
  Scalar scalar_;
  ScheduleOptions options_;
  bool density_;
  DeviceLimits limits_;
  mutable std::mutex mutex_;
  mutable std::array<std::unique_ptr<const Variant>, 8> variants_;
};

}  // namespace clebsch::cuda
