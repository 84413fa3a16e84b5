#pragma once
// The backward pass with 16-bit operands in two kernels: from the gradient of out to that of o, and, after two products
// a plane, from those of left and right to that of x. docs/developers/triangle.md describes the kernels.
#include <string>
#include <vector>

#include "multilinear/triangle/composed_pass.h"

namespace clebsch::triangle {

/// Whether the kernels take a problem on a device: 16-bit precision, d and hidden 64 or 128, out a multiple of 32, n a
/// multiple of 8, the gate after the projection, and shared memory for all weights (Hopper's, not Ampere's).
bool takes_fused_gradients(const DeviceArguments& given, const cuda::DeviceLimits& limits);

/// As device_backward, for a problem that they take.
void fused_backward(const DeviceArguments& given, const Allocate& allocate, cuda::Stream stream);

/// Names of the CUDA files, which are compiled as composed_source says; those for warpgroups take out as multiples of
/// 64, those for three of them d, hidden and out of 128.
std::vector<std::string> gradient_sources(bool warpgroups, bool three = false);

}  // namespace clebsch::triangle
