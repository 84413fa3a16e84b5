#pragma once
// How many blocks of a compiled kernel a multiprocessor holds: the theoretical occupancy, without a device.
#include "cuda/plan/device_limits.h"

namespace clebsch::cuda {

/// What one launch of a kernel takes.
struct BlockUse {
  int threads = 0;       ///< a block
  int registers = 0;     ///< a thread
  int shared_bytes = 0;  ///< a block
};

/// Blocks that one multiprocessor holds at a time; 0 when not even one fits. Registers are dealt out to warps in pieces
/// of 256 from four equal parts of the register file, shared memory in pieces of 128 bytes (256 on 7.5) with 1 KB a
/// block for the system from 8.0 on. Throws Error for an architecture that is not known or no threads. Source: CUDA C++
/// programming guide, "Compute Capabilities"; NVIDIA's cuda_occupancy.h.
int resident_blocks(const DeviceLimits& limits, const BlockUse& use);
/// Warps of these blocks over the warps that a multiprocessor can hold, 0 to 1.
double occupancy(const DeviceLimits& limits, const BlockUse& use);

}  // namespace clebsch::cuda
