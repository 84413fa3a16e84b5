#pragma once
// What one call into torch sets and restores: threads, gradients, the graph executor. Nothing of it outlives the call.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

namespace clebsch {

/// torch's thread count for a call; 0 leaves it. OpenMP's count for the calling thread follows it, as at:: sets both.
class ThreadGuard {
 public:
  explicit ThreadGuard(int threads) : before_(at::get_num_threads()), changed_(threads > 0 && threads != before_) {
    if (changed_) at::set_num_threads(threads);
  }
  ~ThreadGuard() {
    if (changed_) at::set_num_threads(before_);
  }
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;

 private:
  int before_;
  bool changed_;
};

/// Runs TorchScript without profiling and re-specialisation, which would make steps with new shapes slow. The switch is
/// torch's thread-local one; the process-wide executor modes stay as they are.
struct RunGuard {
  RunGuard(int threads, bool gradients) : threads_(threads), optimize_(false), gradients_(gradients) {}

 private:
  ThreadGuard threads_;
  torch::jit::GraphOptimizerEnabledGuard optimize_;
  at::AutoGradMode gradients_;
};

}  // namespace clebsch
