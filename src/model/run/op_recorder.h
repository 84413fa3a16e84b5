#pragma once
// Which clebsch ops a run of a model calls, and with which problems: what its GPU kernels follow from.
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

 private:
  std::vector<cuda::OpCall> calls_;
  uint64_t handle_;
};

}  // namespace clebsch
