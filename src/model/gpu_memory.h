#pragma once
// Rows in a GPU's memory, and their way through pinned memory of the host.
#include <memory>

#include "model/row_memory.h"

namespace clebsch {

/// The memory of one GPU, whatever device the calling thread has chosen. Streams are cudaStream_t of that device.
class GpuMemory : public RowMemory {
 public:
  /// `device`: its number among the visible GPUs. Throws Error where there is no driver, no such device, or no CUDA
  /// part in this build.
  static std::unique_ptr<GpuMemory> make(int device);

  /// Memory of the host that copies reach without a detour, zeroed.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;
  /// Asynchronous, in the order of the stream: `host` is pinned.
  virtual void to_host(void* host, const void* from, std::size_t bytes, void* stream) = 0;
  virtual void to_device(void* to, const void* host, std::size_t bytes, void* stream) = 0;

  /// Notes what is on the stream now as mark `number` (0, 1, ...).
  virtual void mark(int number, void* stream) = 0;
  /// The host waits for what mark `number` noted last; not at all when it has noted nothing.
  virtual void wait(int number) = 0;
};

}  // namespace clebsch
