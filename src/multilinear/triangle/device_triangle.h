#pragma once
// The triangle multiplicative update on a CUDA device.
#include "cuda/runtime/driver.h"
#include "multilinear/device_memory.h"
#include "multilinear/triangle/arguments.h"

namespace clebsch::triangle {

/// Tensors are on the current device, aligned to 16 bytes at least; widths are multiples of 16.
using DeviceArguments = Arguments;

/// x, mask and weights to out, and to left, right and o where `keep` is set. Asynchronous on the stream:
/// the host never waits, and every address is fixed, so a CUDA graph can hold it. The same bits in every run.
void device_forward(const DeviceArguments& arguments, const Allocate& allocate, cuda::Stream stream);
/// x, mask, weights, grad and what the forward pass kept to the gradients. Likewise; no atomic sums of numbers.
void device_backward(const DeviceArguments& arguments, const Allocate& allocate, cuda::Stream stream);

}  // namespace clebsch::triangle
