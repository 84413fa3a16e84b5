#pragma once
// Transfers between a device and pinned memory of the host.
#include <ATen/core/Tensor.h>

namespace clebsch {

/// Starts a copy of all of `from` to `to`, tensors of the same size and dtype of which one lies on a GPU and the other
/// in pinned memory, on torch's current stream of that GPU; between tensors of the CPU it copies. Without torch's
/// checks and marks, which take longer than the driver's call: whoever frees pinned memory waits for the stream first.
/// It can be recorded.
void start_copy(const at::Tensor& to, const at::Tensor& from);

}  // namespace clebsch
