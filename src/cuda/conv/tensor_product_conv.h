#pragma once
// clebsch::tensor_product_conv on CUDA: launches of the generated kernels.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/problem/problem.h"
#include "cuda/conv/conv_arguments.h"
#include "cuda/conv/conv_source.h"
#include "cuda/emit/reductions.h"
#include "cuda/emit/window_sums.h"
#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

/// The forward pass, or a derivative with its choice of outputs.
using ConvPass = std::variant<std::monostate, BackwardOutputs, DoubleBackwardOutputs>;

/// Paths of a problem that one generated kernel does.
struct ConvPart {
  std::shared_ptr<const Problem> problem;  ///< W and grad_weights are those of all parts
  bool uvw = false;
  bool adds = false;  ///< results are added to those of the part before
};
/// The uvu paths and the uvw paths of a problem, as far as there are such.
std::vector<ConvPart> conv_parts(const std::shared_ptr<const Problem>& problem);

/// Whether the derivative of the backward pass is one kernel. Else it is composed of first-order passes: for problems
/// with uvw paths, and for those so large that the compiler would take minutes (shorter ones are compiled in seconds).
bool fuses_double_backward(const Problem& problem, Scalar scalar);

/// Whether dX of a double backward pass may be sums of integers (BackwardOutputs::windows).
bool sums_in_windows(const BackwardOutputs& outputs, Scalar scalar, const ScheduleOptions& options);

/// What a pass of a part is launched from.
struct CompiledConv {
  Schedule schedule;
  std::string entry;  ///< point of `main`
  Cubin main, sums;   ///< `sums` holds sum_by_sender or sum_windows, and sum_parts
};
CompiledConv compile_conv(const ConvPart& part, Scalar scalar, const ConvPass& pass, const DeviceLimits& limits,
                          const ScheduleOptions& options, const CubinCache& cache);

/// Kernels of one problem, dtype and device; made by `make`, safe to use from several threads.
class TensorProductConv {
 public:
  /// For the current device. Kernels are planned, compiled and loaded when first needed. The environment variable
  /// CLEBSCH_CUDA_SCHEDULE ("units=4,receivers=1,blocks=3,prefetch=1") overrides the planner, for tuning.
  static std::shared_ptr<const TensorProductConv> make(const std::shared_ptr<const Problem>& problem, Scalar scalar);

  /// Bytes of scratch memory a call needs.
  int64_t forward_workspace(const ConvOperands& operands, int64_t out_rows) const;
  int64_t backward_workspace(const ConvOperands& operands, const BackwardOutputs& wanted) const;

  /// out (out_rows, out.dim()), every row written. Asynchronous on the stream, no host synchronisation; bitwise the
  /// same from run to run.
  void forward(const ConvOperands& operands, int64_t out_rows, void* out, void* workspace, Stream stream) const;
  /// grad_out (>= graph_rows, out.dim()). Overwrites grad_x (nodes, in1.dim()), grad_harmonics (E, in2.dim()),
  /// grad_weights (E, weight_count) as far as `wanted`; rows of edges beyond row_ptr[graph_rows] are not touched.
  /// wanted.deterministic needs the transpose and is bitwise the same from run to run.
  void backward(const ConvOperands& operands, const BackwardOutputs& wanted, const void* grad_out, void* grad_x,
                void* grad_harmonics, void* grad_weights, void* workspace, Stream stream) const;

  /// The gradients arriving for the backward pass's grad_x (nodes, in1.dim()), grad_harmonics (E, in2.dim()) and
  /// grad_weights (E, weight_count), as far as `wanted`; grad_out (out_rows, out.dim()) is that pass's own argument.
  struct Incoming {
    const void *x = nullptr, *harmonics = nullptr, *weights = nullptr, *grad_out = nullptr;
  };
  /// Where the derivatives of grad_out (out_rows, out.dim()), x, harmonics and weights go.
  struct Results {
    void *grad_out = nullptr, *x = nullptr, *harmonics = nullptr, *weights = nullptr;
  };
  int64_t double_backward_workspace(const ConvOperands& operands, int64_t out_rows,
                                    const DoubleBackwardOutputs& wanted) const;
  /// False where it has to be made of the other passes, see fuses_double_backward.
  bool has_double_backward() const { return fuses_double_backward(*problem_, scalar_); }
  /// The derivative of the backward pass, see conv_double_backward_source; writes what is `wanted` as `backward` does.
  void double_backward(const ConvOperands& operands, int64_t out_rows, const DoubleBackwardOutputs& wanted,
                       const Incoming& incoming, const Results& results, void* workspace, Stream stream) const;

 private:
  /// A direction with its choice of outputs: the plan and the loaded kernels.
  struct Variant {
    Schedule schedule;
    ListedKernel<ConvArguments> main;
    ListedKernel<SumBySenderArguments> sum_by_sender;
    ListedKernel<SumPartsArguments> sum_parts;
    ListedKernel<SumWindowsArguments> sum_windows;  ///< in place of sum_by_sender
  };

  TensorProductConv(std::shared_ptr<const Problem> problem, Scalar scalar, ScheduleOptions options);
  /// Index 0 is the forward pass, 1 .. 15 the backward pass with bits x, harmonics, weights, deterministic; from 16 on
  /// the double backward pass, those bits and then grad_out, from_x, from_harmonics, from_weights, windows.
  const Variant& variant(int index, size_t part) const;
  /// The launches over which the units of a schedule are spread.
  void launch_units(const Variant& kernels, int64_t rows, int64_t splits, ConvArguments arguments, Stream stream) const;
  /// The choice of sums of dX: integers in fp32 where receivers have many edges.
  DoubleBackwardOutputs with_sums(DoubleBackwardOutputs wanted, const ConvOperands& operands) const;
  /// Rows (E, parts * in1.dim()) of a deterministic grad_x to their senders.
  void sum_by_sender(const Variant& kernels, const ConvOperands& operands, const void* rows, void* grad_x,
                     Stream stream) const;
  void sum_parts(const Variant& kernels, const void* parts, int64_t splits, int64_t out_rows, void* out,
                 Stream stream) const;

  std::shared_ptr<const Problem> problem_;
  std::vector<ConvPart> parts_;
  Scalar scalar_;
  ScheduleOptions options_;
  DeviceLimits limits_;
  mutable Kept<std::pair<int, size_t>, Variant> variants_;  ///< by index and part
};

}  // namespace clebsch::cuda
