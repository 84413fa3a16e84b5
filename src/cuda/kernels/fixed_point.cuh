#pragma once
// The quantum of fixed-point sums from the bits of the largest number.
#include "cuda/kernels/fixed_point.h"

/// Quanta in one: a power of two. `largest`: bits of the largest number; one that is not finite makes every sum a NaN.
__device__ __forceinline__ float quanta_in_one(unsigned largest) {
  const int exponent = static_cast<int>(largest >> 23);
  return __uint_as_float(static_cast<unsigned>(max(1, min(240, 254 + clebsch::cuda::kLargestExponent - exponent)))
                         << 23);
}

/// Its inverse, which may be smaller than the smallest normal float.
__device__ __forceinline__ double one_quantum(unsigned largest) {
  return 1.0 / static_cast<double>(quanta_in_one(largest));
}
