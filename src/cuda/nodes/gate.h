#pragma once
// clebsch::gate on CUDA.
#include <memory>

#include "core/problem/node_problem.h"
#include "cuda/emit/source_writer.h"
#include "cuda/nodes/gate_source.h"

namespace clebsch::cuda {

/// Kernels of one problem, dtype and device, compiled and loaded by `make`. Calls are asynchronous on the stream.
class Gate {
 public:
  /// For the current device.
  static std::shared_ptr<const Gate> make(const std::shared_ptr<const GateProblem>& problem, Scalar scalar);

  /// x (nodes, in.dim()) -> out (nodes, out.dim()); device pointers. row_limit: one number, rows from there on are
  /// written as zero; null: all are computed.
  void forward(const void* x, const int32_t* row_limit, int32_t nodes, void* out, Stream stream) const;
  /// grad_x (nodes, in.dim()), every row written.
  void backward(const void* x, const void* grad_out, const int32_t* row_limit, int32_t nodes, void* grad_x,
                Stream stream) const;

 private:
  Gate(std::shared_ptr<const GateProblem> problem, Scalar scalar);

  std::shared_ptr<const GateProblem> problem_;
  int64_t items_;
  ListedKernel<GateArguments> forward_, backward_;
};

}  // namespace clebsch::cuda
