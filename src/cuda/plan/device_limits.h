#pragma once
// What the planner and the launchers know of a device, and the limits of the architectures that kernels can be compiled
// for without a device at hand.
#include <vector>

namespace clebsch::cuda {

/// What the planner knows of a device. Defaults: a Hopper GPU.
struct DeviceLimits {
  int arch = 90;  ///< compute capability, 10 * major + minor
  int multiprocessors = 132;
  int registers_per_multiprocessor = 65536;
  int warps_per_multiprocessor = 64;
  int shared_per_block = 49152;           ///< without opting in to more, bytes
  int dynamic_shared_per_block = 232448;  ///< with opting in
  int shared_per_multiprocessor = 233472;
};

/// Compute capabilities with known limits, ascending: 75 (T4), 80 (A100), 86, 87, 89 (Ada), 90 (H100, H200), 100
/// (B200), 103 (B300), 120 and 121 (Blackwell workstations).
const std::vector<int>& known_architectures();

/// Limits that a device of this compute capability reports: what enters a kernel's source is the same as on the device
/// itself. Multiprocessors differ between devices of one architecture and never enter a source; here they are the
/// default. Throws Error listing the known ones. Source: CUDA programming guide, "Compute Capabilities".
DeviceLimits limits_of_architecture(int arch);

}  // namespace clebsch::cuda
