#pragma once
// Limits of the architectures that kernels can be compiled for without a device at hand.
#include <vector>

#include "cuda/schedule.h"

namespace clebsch::cuda {

/// Compute capabilities with known limits, ascending: 75 (T4), 80 (A100), 86, 87, 89 (Ada), 90 (H100, H200), 100
/// (B200), 103 (B300), 120 and 121 (Blackwell workstations).
const std::vector<int>& known_architectures();

/// Limits that a device of this compute capability reports: what enters a kernel's source is the same as on the device
/// itself. Multiprocessors differ between devices of one architecture and never enter a source; here they are the
/// default. Throws Error listing the known ones. Source: CUDA programming guide, "Compute Capabilities".
DeviceLimits limits_of_architecture(int arch);

}  // namespace clebsch::cuda
