#pragma once
// Memory of a device and pinned memory of the host, copies between them, and marks on a stream that the host can wait
// for: for what lies outside of torch's tensors.
#include <cstddef>

#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// The calling thread works on a device, as long as this lives; the context is the primary one, as that of torch and of
/// the CUDA runtime. Throws Error when there is no such device.
class DeviceTurn {
 public:
  explicit DeviceTurn(int device);
  ~DeviceTurn();
  DeviceTurn(const DeviceTurn&) = delete;
  DeviceTurn& operator=(const DeviceTurn&) = delete;
};

/// On the current device. Throw Error, when there is no memory left as well. Freeing null does nothing.
void* allocate_device(std::size_t bytes);
void free_device(void* memory) noexcept;
void* allocate_pinned(std::size_t bytes);
void free_pinned(void* memory) noexcept;

/// Asynchronous, in the order of the stream; the host's memory is pinned.
void copy_to_host_async(void* to, const void* from, std::size_t bytes, Stream stream);
void copy_to_device_async(void* to, const void* from, std::size_t bytes, Stream stream);
/// From any memory of the host, once the device has done all that it was given; done when it returns.
void copy_to_device(void* to, const void* from, std::size_t bytes);

/// A place in the work of a stream. Belongs to the device that is current when it first notes one.
class StreamMark {
 public:
  StreamMark() = default;
  ~StreamMark();
  StreamMark(StreamMark&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;

  /// Notes what is on the stream now.
  void note(Stream stream);
  /// Whether all of it has ended; true when nothing was noted. Throws Error for a fault of the device.
  bool reached() const;
  /// The host waits for it. Not at all when nothing was noted.
  void wait() const;

 private:
  void* event_ = nullptr;
};

}  // namespace clebsch::cuda
