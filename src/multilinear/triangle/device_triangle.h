#pragma once
// The triangle multiplicative update on a CUDA device.
#include "cuda/plan/device_limits.h"
#include "cuda/runtime/cublas_library.h"
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

/// Which kernels of cuBLAS multiply planes of left, right and o, with operands of 16 bits. Its own choice for compute
/// capability 9.0 has two warpgroups on one tile of 256 x 128 or so, and a counter that a launch of its own clears.
/// With tiles of up to 128 x 160, one to a warpgroup, whole calls take 1 to 5% less time at every n from 256 to 2,048
/// (docs/notebook/triangle_contraction.md).
inline cuda::BlasTiles tiles_of_planes() {
  cuda::BlasTiles tiles;
  if (cuda::device_limits(cuda::current_device()).arch == 90) {
    tiles.most = 21000;
    tiles.counted = false;
  }
  return tiles;
}

}  // namespace clebsch::triangle
