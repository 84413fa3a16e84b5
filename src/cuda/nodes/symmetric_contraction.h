#pragma once
// clebsch::symmetric_contraction on CUDA: launches of the generated kernels.
#include <cstdint>
#include <memory>

#include "core/problem/symmetric_problem.h"
#include "cuda/nodes/group_rows.h"
#include "cuda/nodes/symmetric_source.h"
#include "cuda/runtime/cubin_cache.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {

/// Operands, all device pointers; numbers are float or double as the kernels were made for.
struct SymmetricOperands {
  const void* x = nullptr;             ///< (nodes, D, C)
  const void* coefficients = nullptr;  ///< (type_count, K, C)
  const int32_t* types = nullptr;      ///< (nodes); of several types, rows of types out of range are zero
  const int32_t* row_limit = nullptr;  ///< one number: rows from there on are zero; null: all are computed
  int32_t nodes = 0, type_count = 0;
};

/// Kernels of one problem, dtype and device; made by `make`, safe to use from several threads. All calls are
/// asynchronous on the stream, without host synchronisation, and give the same bits in every run.
class SymmetricContraction {
 public:
  /// For the current device. Kernels are compiled and loaded when first needed.
  static std::shared_ptr<const SymmetricContraction> make(const std::shared_ptr<const SymmetricProblem>& problem,
                                                          Scalar scalar);

  /// Bytes of scratch memory a call needs.
  int64_t workspace(SymmetricPass pass, const SymmetricOperands& operands) const;
  /// out (nodes, W, C), every row written.
  void forward(const SymmetricOperands& operands, void* out, void* workspace, Stream stream) const;
  /// grad_x (nodes, D, C), every row written.
  void backward(const SymmetricOperands& operands, const void* grad_out, void* grad_x, void* workspace,
                Stream stream) const;
  /// The change of out (may be null) and grad_x along (tangent_x, tangent_coefficients), grad_out kept.
  void tangent(const SymmetricOperands& operands, const void* grad_out, const void* tangent_x,
               const void* tangent_coefficients, void* out, void* grad_x, void* workspace, Stream stream) const;

 private:
  struct Variant {
    SymmetricSchedule schedule;
    ListedKernel<SymmetricArguments> main;
    std::shared_ptr<const GroupRows> group_rows;
  };

  SymmetricContraction(std::shared_ptr<const SymmetricProblem> problem, Scalar scalar);
  const Variant& variant(SymmetricPass pass) const;
  /// Groups the rows, then launches the kernel of the arguments' pass; sets what they have of the operands.
  void launch(const SymmetricOperands& operands, SymmetricArguments arguments, void* workspace, Stream stream) const;

  std::shared_ptr<const SymmetricProblem> problem_;
  Scalar scalar_;
  DeviceLimits limits_;
  mutable Kept<SymmetricPass, Variant> variants_;
};

/// The plan whose machine code does not spill registers, if there is one: with fewer blocks a multiprocessor, then
/// fewer rows a warp, than planned.
struct CompiledSymmetric {
  SymmetricSchedule schedule;
  Cubin cubin, group_rows;
};
CompiledSymmetric compile_symmetric(const SymmetricProblem& problem, SymmetricPass pass, Scalar scalar,
                                    const DeviceLimits& limits, const CubinCache& cache = CubinCache::standard());

}  // namespace clebsch::cuda
