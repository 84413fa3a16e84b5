#pragma once
// torch.classes.clebsch.Progress: how far a call of the library is, for Python, whose functions C++ does not call. The
// call writes in its own thread, while another thread of Python reads and may cancel.
#include <torch/custom_class.h>

#include <atomic>
#include <mutex>
#include <string>
#include <tuple>

#include "core/errors.h"
#include "core/progress.h"

namespace clebsch {

class PythonProgress : public torch::CustomClassHolder {
 public:
  /// What the call is given. It throws Error once cancel() was called.
  static Progress writer(const c10::optional<c10::intrusive_ptr<PythonProgress>>& to) {
    if (!to) return {};
    return [progress = *to](const std::string& what, std::size_t done, std::size_t total) {
      require(!progress->cancelled_, "{}: cancelled after {} of {}", what, done, total);
      const std::lock_guard<std::mutex> lock(progress->mutex_);
      progress->what_ = what;
      progress->done_ = static_cast<int64_t>(done);
      progress->total_ = static_cast<int64_t>(total);
    };
  }

  /// (what, done, total) as last written; total is 0 before anything was.
  std::tuple<std::string, int64_t, int64_t> state() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {what_, done_, total_};
  }

  void cancel() { cancelled_ = true; }

 private:
  mutable std::mutex mutex_;
  std::string what_;
  int64_t done_ = 0, total_ = 0;
  std::atomic<bool> cancelled_{false};
};

}  // namespace clebsch
