#pragma once
// What the 32 lanes of a warp do together.

/// The sum over the warp's lanes, in all of them; always in the same order.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  return value;
}

/// The sum over the lanes up to this one, its own value included.
__device__ __forceinline__ int warp_sum_upto(int value) {
  for (int by = 1; by < 32; by *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, value, by);
    if (static_cast<int>(threadIdx.x % 32) >= by) value += other;
  }
  return value;
}
