#pragma once
// What holds for the calling thread while it works on a model's device.
#include <c10/core/AutogradState.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>
#ifdef CLEBSCH_HAS_CUDA
#include "cuda/runtime/stream_recording.h"
#endif

namespace clebsch {

/// While it lives, the device and the stream are current, and the work bears with a recording that another thread has
/// under way: in CUDA's global capture mode that thread would forbid this one to allocate, to free and to query events.
/// The driver's permission counts for one thread alone, so backward passes run in this one too, not in torch's.
class DeviceScope {
 public:
  DeviceScope(c10::Device device, const std::optional<c10::Stream>& stream)
      : device_(device), stream_(stream), autograd_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
#ifdef CLEBSCH_HAS_CUDA
    if (!device.is_cpu()) beside_.emplace();
#endif
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~DeviceScope() { c10::AutogradState::get_tls_state().set_multithreading_enabled(autograd_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::DeviceGuard device_;
  c10::OptionalStreamGuard stream_;
  bool autograd_;  ///< whether the caller's backward passes use torch's threads
#ifdef CLEBSCH_HAS_CUDA
  std::optional<cuda::BesideRecordings> beside_;
#endif
};

}  // namespace clebsch
