#pragma once
// The CUDA driver, opened at run time. Everything here works on the calling thread's current device and context.
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda/plan/device_limits.h"

namespace clebsch::cuda {

/// A CUstream; null is the legacy default stream.
using Stream = void*;

/// True when libcuda can be opened and sees a device; `reason` (may be null) says why not.
bool driver_available(std::string* reason = nullptr);
/// The current device's ordinal; makes its primary context current when the thread has none.
int current_device();
/// Limits of a device, queried once. Throws Error when there is no such device.
const DeviceLimits& device_limits(int device);
/// What a device is called, e.g. "NVIDIA H200". Throws Error when there is no such device.
std::string device_name(int device);
/// The identity of a device, unlike that of any other device on any host: "GPU-" and its UUID (for a MIG slice the
/// slice's). Throws Error when there is no such device.
std::string device_uuid(int device);
/// Sets bytes to zero, asynchronously.
void zero_async(void* target, size_t bytes, Stream stream);

/// Throws Error with what failed and the driver's message for it, unless `result` (a CUresult) is 0.
void check_driver(int result, const char* what);

/// A kernel of a loaded module; the module stays loaded as long as the process lives.
class Kernel {
 public:
  Kernel() = default;
  /// `arguments`: addresses of the arguments in order. Does nothing for an empty grid. Throws Error when the launch is
  /// refused (later faults show up at the caller's next synchronisation, as always).
  void launch(int64_t grid_x, int64_t grid_y, int threads, Stream stream, std::vector<void*> arguments) const;
  /// Launches from now on give a block so much memory of the kernel's `extern __shared__` array, at most
  /// DeviceLimits::dynamic_shared_per_block. Throws Error when the device has less.
  void take_shared_memory(unsigned bytes);

 private:
  friend std::vector<Kernel> load_module(const std::vector<char>& code, const std::vector<std::string>& names);
  std::string name_;
  void* function_ = nullptr;
  unsigned shared_ = 0;
  bool early_ = false;  ///< see kernels/early_start.cuh
};

/// A kernel that takes one struct, which its source and its launcher include from the same header (src/cuda/kernels).
template <typename Arguments>
class KernelOf {
 public:
  KernelOf() = default;
  KernelOf(Kernel kernel) : kernel_(std::move(kernel)) {}
  void take_shared_memory(unsigned bytes) { kernel_.take_shared_memory(bytes); }
  void launch(int64_t grid_x, int threads, Stream stream, const Arguments& arguments) const {
    launch(grid_x, 1, threads, stream, arguments);
  }
  void launch(int64_t grid_x, int64_t grid_y, int threads, Stream stream, const Arguments& arguments) const {
    static_assert(std::is_trivially_copyable_v<Arguments>, "a kernel gets a copy of the bytes");
    kernel_.launch(grid_x, grid_y, threads, stream, {const_cast<Arguments*>(&arguments)});
  }

 private:
  Kernel kernel_;
};

/// What a block of a kernel can have of a device's shared memory once it asks for it (take_shared_memory), bytes.
int most_shared_per_block(const DeviceLimits& limits);

/// Loads machine code into the current context and finds its entry points. Throws Error with the driver's message.
std::vector<Kernel> load_module(const std::vector<char>& code, const std::vector<std::string>& names);

}  // namespace clebsch::cuda
