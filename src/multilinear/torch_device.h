#pragma once
// What the ops of torch here share: texts of errors, and torch's stream and memory of a device. libtorch_cuda is not
// linked.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>

#include "core/errors.h"
#include "multilinear/device_memory.h"

namespace clebsch {

/// "(2, 3)"
inline std::string sizes_of(const at::Tensor& tensor) { return fmt::format("({})", joined(tensor.sizes(), ", ")); }

/// The stream (a CUstream) that torch uses on the device.
inline void* current_stream(at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
}

/// From torch's allocator, so that its cache and its limits hold.
inline Allocate allocator(at::Device device) {
  return [device](std::size_t bytes) {
    const at::Tensor memory = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte).device(device));
    return Memory(memory.mutable_data_ptr(), [memory](void*) {});
  };
}

}  // namespace clebsch
