#pragma once
// Which clebsch ops a run of a model calls, and with which problems: what its GPU kernels follow from.
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cuda/runtime/kernel_table.h"

namespace clebsch {

/// Records every call of an op of this library that the constructing thread makes, each once, until it is destroyed.
/// Backward passes on the CPU run in the calling thread, so derivatives are seen with the gradients they are asked for.
/// One at a time in a thread.
class OpRecorder {
 public:
  OpRecorder();
  ~OpRecorder();
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;

  const std::vector<cuda::OpCall>& calls() const { return calls_; }

  /// Problem and x of an interaction of layer 0.
  struct FirstInput {
    std::string problem;
    at::Tensor x;
  };
  /// Of every such call, in order.
  const std::vector<FirstInput>& first_inputs() const { return first_inputs_; }

 private:
  friend struct RecordedOps;
  std::vector<cuda::OpCall> calls_;
  std::vector<FirstInput> first_inputs_;
  uint64_t handle_;
};

}  // namespace clebsch
