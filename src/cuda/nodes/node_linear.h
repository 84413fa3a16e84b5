#pragma once
// clebsch::linear and clebsch::species_linear on CUDA.
#include <cstdint>
#include <memory>
#include <tuple>

#include "core/problem/node_problem.h"
#include "cuda/kernels/node_linear.h"
#include "cuda/nodes/group_rows.h"
#include "cuda/nodes/node_linear_source.h"
#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

/// Operands, device pointers; numbers are float or double as the kernels were made for.
struct LinearOperands {
  const void* x = nullptr;             ///< (nodes, in.dim()), or out.dim() when transposed
  const void* weight = nullptr;        ///< (type_count, weight_count)
  const int32_t* types = nullptr;      ///< (nodes), null with one weight for all; out of range: the row is zero
  const int32_t* row_limit = nullptr;  ///< one number: rows from there on are zero; null: all are computed
  int32_t nodes = 0, type_count = 1;
  bool grouped = false;  ///< the workspace holds the rows by type already, from a run with the same group_rows()
};

/// Kernels of one problem, dtype and device; made by `make`, safe to use from several threads. Calls are asynchronous
/// on the stream and give the same bits in every run.
class NodeLinear {
 public:
  /// For the current device. Kernels are compiled and loaded when first needed.
  static std::shared_ptr<const NodeLinear> make(const std::shared_ptr<const LinearProblem>& problem, Scalar scalar);

  /// Bytes of scratch memory a call needs; depends on counts alone.
  int64_t workspace(const LinearOperands& operands, bool transposed) const;
  /// Rows of a group by type in the workspace, 0 where rows are not grouped. A run with the same types, limit and
  /// number of nodes, and as many rows a group, may take the groups of this one over (LinearOperands::grouped).
  int group_rows(const LinearOperands& operands, bool transposed) const;
  /// out (nodes, out.dim()) = x W, or (nodes, in.dim()) = x W^T when transposed. Every row is written.
  void run(const LinearOperands& operands, bool transposed, void* out, void* workspace, Stream stream) const;

 private:
  struct Variant {
    LinearTiling tiling;
    int column_tiles;
    KernelOf<NodeLinearArguments> main;
    KernelOf<NodeLinearWalk> walk;  ///< the same kernel, where the tiling walks
    KernelOf<NodeLinearKept> kept;  ///< or keeps its weights
    std::shared_ptr<const GroupRows> group_rows;
  };

  NodeLinear(std::shared_ptr<const LinearProblem> problem, Scalar scalar);
  /// Of linear_size() for this many nodes; `aligned`: operands are, as tensor cores need them.
  const Variant& variant(int32_t nodes, bool transposed, bool aligned) const;
  int64_t groups(const LinearOperands& operands, const Variant& kernels) const;
  /// How blocks that walk share the column tiles (linear_walk_parts).
  struct WalkParts {
    NodeLinearWalk lists;
    int count = 0;
  };
  std::shared_ptr<const WalkParts> walk_parts(int64_t groups, bool transposed, const LinearTiling& tiling) const;

  /// How blocks that keep weights share the rows (kept_parts).
  struct KeptLists {
    NodeLinearKept lists;
    int count = 0;
  };
  std::shared_ptr<const KeptLists> kept_lists(int64_t halves, bool transposed) const;

  std::shared_ptr<const LinearProblem> problem_;
  Scalar scalar_;
  DeviceLimits limits_;
  bool tensor_[2];  ///< narrow and wide tiles: on tensor cores where operands are aligned
  bool walks_[2];   ///< by transposed: wide tiles walk where operands are aligned
  int few_;         ///< linear_options()
  int least_kept_;  ///< nodes
  /// By transposed, where wide tiles walk: the tiles whose weights blocks keep instead; empty: they walk.
  std::vector<KeptTile> kept_[2];
  mutable Kept<std::tuple<bool, LinearSize, bool>, Variant> variants_;  ///< by transposed, size, tensor
  mutable Kept<std::tuple<int64_t, bool>, WalkParts> walk_parts_;       ///< by groups, transposed
  mutable Kept<std::tuple<int64_t, bool>, KeptLists> kept_lists_;       ///< by halves, transposed
};

/// What the environment variable CLEBSCH_CUDA_LINEAR says, for tuning, as "tensor=0,few=2".
struct LinearOptions {
  int tensor = -1;  ///< 1: all maps in fp32 on tensor cores, 0: none, -1: those with wide tiles
  /// Tiles for few nodes are taken where there would be at most so many narrow ones a multiprocessor; 0: never.
  int few = 1;
  /// 0: of wide tiles on tensor cores a block computes one; 1: where they can, blocks walk through several.
  int walk = 1;
  /// Whether blocks that could walk keep weights instead, on compute capability 9.0; 0: none, 1: all that have room for
  /// them, -1: where that is faster (kept_pays), from kManyNodes nodes on.
  int wgmma = -1;
};
/// Throws Error for another text of the variable.
LinearOptions linear_options();

/// Whether maps of this dtype run on tensor cores there, as three products of tf32 for one of fp32: with wide tiles,
/// which many nodes take, unless linear_options() says otherwise. Narrow ones are as fast without
/// (docs/notebook/pace.md).
bool linear_on_tensor_cores(Scalar scalar, const DeviceLimits& limits, bool wide);

/// From so many nodes on a block that walks, or keeps weights, is enough for each multiprocessor.
constexpr int32_t kManyNodes = 2048;
/// The tiling for this many nodes on a device of so many multiprocessors; can_walk: whether blocks of its wide tiles
/// do; few: LinearOptions::few.
LinearSize linear_size(const LinearProblem& problem, bool transposed, Scalar scalar, int32_t nodes, int multiprocessors,
                       bool can_walk, int few);

/// Machine code of one tiling, through the cache. Throws Error when it does not compile.
struct CompiledLinear {
  LinearTiling tiling;
  Cubin cubin, group_rows;
};
CompiledLinear compile_linear(const LinearProblem& problem, bool transposed, Scalar scalar, LinearSize size,
                              bool tensor, const DeviceLimits& limits,
                              const CubinCache& cache = CubinCache::standard());

}  // namespace clebsch::cuda
