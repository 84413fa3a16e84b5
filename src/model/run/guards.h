#pragma once
// What one call into torch sets and restores: threads, gradients, autocast, the graph executor. Nothing of it outlives
// the call.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <optional>

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

/// Leaves the caller's inference mode, in which torch records nothing to differentiate: forces would be zero.
class NormalModeGuard {
 public:
  NormalModeGuard() {
    if (c10::InferenceMode::is_enabled()) mode_.emplace(false);
  }

 private:
  std::optional<c10::InferenceMode> mode_;
};

/// Runs TorchScript without profiling and re-specialisation, which would make steps with new shapes slow, and without
/// autocast and inference mode, in which a caller's code may be wrapped: a model computes in the dtype it was loaded
/// with and has forces. The switches are torch's thread-local ones, which a backward pass in another thread takes over;
/// what is process-wide stays as it is.
struct RunGuard {
  RunGuard(int threads, bool gradients)
      : threads_(threads), optimize_(false), autocast_(c10::autocast_dispatch_keyset), gradients_(gradients) {}

 private:
  ThreadGuard threads_;
  torch::jit::GraphOptimizerEnabledGuard optimize_;
  NormalModeGuard mode_;
  c10::impl::ExcludeDispatchKeyGuard autocast_;
  at::AutoGradMode gradients_;
};

}  // namespace clebsch
