#pragma once
// What a device needs of a graph beyond rows and senders, made there: receivers and the transpose by sender.
#include <cstdint>
#include <memory>

#include "cuda/emit/scan.h"
#include "cuda/kernels/graph_transpose.h"

namespace clebsch::cuda {

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run.
class GraphTranspose {
 public:
  static std::shared_ptr<const GraphTranspose> make();
  /// Bytes of scratch memory a call needs.
  static int64_t workspace(const TransposeOperands& operands);
  void run(const TransposeOperands& operands, void* workspace, Stream stream) const;

 private:
  GraphTranspose();
  KernelOf<TransposeArguments> count_, place_, order_;
  std::shared_ptr<const Scan> scan_;
};

}  // namespace clebsch::cuda
