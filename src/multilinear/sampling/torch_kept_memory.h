#pragma once
// Memory of torch's that an object keeps from call to call, whatever streams the calls are on.
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/runtime/stream_order.h"
#include "multilinear/torch_device.h"

namespace clebsch {

/// Every call asks for its stream here. What is kept is written again from call to call, so a call on another stream
/// than the last comes after it. And torch hands memory that is freed to the stream that it was allocated on without
/// asking who else uses it, so it is told of every other stream that does.
class KeptMemory {
 public:
  explicit KeptMemory(at::Device device) : device_(device), kept_(std::make_shared<std::vector<Weak>>()) {}

  /// As allocator(); what it gives is told of, as long as it is held.
  Allocate allocate() const {
    return [device = device_, kept = kept_](std::size_t bytes) {
      const at::Tensor memory = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte).device(device));
      note(*kept, memory);
      return Memory(memory.mutable_data_ptr(), [memory](void*) {});
    };
  }

  /// The same of a tensor of the caller's that is held and read in calls.
  void keep(const at::Tensor& tensor) {
    note(*kept_, tensor);
    const c10::impl::VirtualGuardImpl guard(device_.type());
    tensor.record_stream(guard.getStream(device_));
  }

  /// torch's current stream (a CUstream), for a call that begins.
  void* stream() {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    const c10::Stream now = guard.getStream(device_);
    void* const handle = guard.getStreamNativeHandle(now);
    if (last_ && *last_ != now) {
      void* const before = guard.getStreamNativeHandle(*last_);
      // A recording cannot wait for what is outside of it; torch.cuda.graph waits for the device before one begins.
      if (!cuda::is_capturing(before) && !cuda::is_capturing(handle)) order_.put(before, handle);
      for (const Weak& one : *kept_) {
        if (auto held = one.lock()) at::Tensor(std::move(held)).record_stream(now);
      }
    }
    last_ = now;
    return handle;
  }

 private:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  static void note(std::vector<Weak>& all, const at::Tensor& tensor) {
    all.erase(std::remove_if(all.begin(), all.end(), [](const Weak& one) { return one.expired(); }), all.end());
    all.emplace_back(tensor.getIntrusivePtr());
  }

  at::Device device_;
  std::shared_ptr<std::vector<Weak>> kept_;
  std::optional<c10::Stream> last_;
  cuda::StreamOrder order_;
};

}  // namespace clebsch
