#pragma once
// What the 32 lanes of a warp do together.

/// The sum over the warp's lanes, in all of them; always in the same order.
__device__ __forceinline__ double warp_sum(double value) {
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  return value;
}
