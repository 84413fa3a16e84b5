#pragma once
// Numbers of 16 bits, IEEE half and bfloat16, by their bits: for devices without instructions for them, and
// for the emulator. NVRTC has no headers for such types.

__device__ __forceinline__ float half_to_float(unsigned bits) {
  const unsigned size = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
  const float plain = __uint_as_float(size << 13) * __uint_as_float(0x77800000u);  // 2^112
  return __uint_as_float(sign | (size >= 0x7c00u ? 0x7f800000u | size << 13 : __float_as_uint(plain)));
}

/// To the nearest, ties to even.
__device__ __forceinline__ unsigned float_to_half(float x) {
  const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return sign | 0x7e00u;
  if (size >= 0x477ff000u) return sign | 0x7c00u;
  if (size < 0x38800000u) {  // subnormal: the unit of 0.5 is that of such a half
    return sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u);
  }
  return sign | (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13;
}

__device__ __forceinline__ unsigned float_to_bfloat(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
