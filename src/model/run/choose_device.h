#pragma once
// Where a model runs: the text of LoadOptions::device, and torch's CUDA part, which is loaded only when it is needed.
#include <c10/core/Device.h>

#include <string>

namespace clebsch {

struct RunDevice {
  c10::Device device{c10::kCPU};
  bool padded = false;  ///< the arrays of a device, padded to capacities; always so on a GPU
};

/// "cpu"; "cuda", "cuda:N"; "auto": a GPU when there is a usable one and the model runs on it, else the CPU ("auto:N":
/// that GPU); "cpu:padded": the CPU through the buffers of a GPU, for tests. `refusal`: why the model does not run on a
/// GPU as it is loaded, "" when it does. Loads torch's CUDA part where needed. Throws Error that says why there is no
/// such device.
RunDevice choose_device(const std::string& text, const std::string& refusal);

}  // namespace clebsch
