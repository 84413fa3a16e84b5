#pragma once
// Exceptions in parallel regions, which they must not leave: OpenMP would end the process without a word of the cause.
#include <atomic>
#include <exception>
#include <mutex>

namespace clebsch {

/// Keeps the first exception that work threw in any thread of a team, for the thread that comes out of the region.
class TeamError {
 public:
  /// Does the work unless some has failed before.
  template <typename Work>
  void run(const Work& work) {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      work();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }
  /// Behind the region: throws what was kept.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace clebsch
