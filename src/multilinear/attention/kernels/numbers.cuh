#pragma once
// Numbers of q, k and v, by CLEBSCH_NUMBER: 0 double, 1 float, 2 IEEE half, 3 bfloat16; the latter two as bits, since
// NVRTC has no headers for them here.
#include "cuda/kernels/half_bits.cuh"

// For tools that compile a file as it stands; device_spherical.cpp says what a problem has.
#ifndef CLEBSCH_NUMBER
#define CLEBSCH_NUMBER 2
#define CLEBSCH_D 64
#define CLEBSCH_DV 64
#endif

#if CLEBSCH_NUMBER == 0
using number = double;
using real = double;
#elif CLEBSCH_NUMBER == 1
using number = float;
using real = float;
#else
using number = unsigned short;
using real = float;
#endif

/// A 16-bit number, by the device's own instruction.
__device__ __forceinline__ float unpack(unsigned bits) {
#if CLEBSCH_NUMBER == 2
  float value;
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits)));
  return value;
#else
  return __uint_as_float(bits << 16);
#endif
}

#if CLEBSCH_NUMBER >= 2
__device__ __forceinline__ unsigned float_to_bits(float x) {
#if CLEBSCH_NUMBER == 2
  return float_to_half(x);
#else
  return float_to_bfloat(x);
#endif
}
__device__ __forceinline__ double to_double(number x) { return static_cast<double>(unpack(x)); }
/// The number's bits as those of a double, by integer instructions alone: the number times 1 / kRawScale.
#if CLEBSCH_NUMBER == 2
constexpr double kRawScale = 0x1p1008;
#else
constexpr double kRawScale = 0x1p896;
#endif
__device__ __forceinline__ double raw_double(number x) {
  constexpr unsigned kInfinity = CLEBSCH_NUMBER == 2 ? 0x7c00u : 0x7f80u, kShift = CLEBSCH_NUMBER == 2 ? 10 : 13;
  const unsigned size = x & 0x7fffu, sign = (x & 0x8000u) << 16;
  const unsigned high = sign | size << kShift | (size >= kInfinity ? 0x7ff00000u : 0u);
  return __longlong_as_double(static_cast<long long>(static_cast<unsigned long long>(high) << 32));
}
__device__ __forceinline__ double to_double(double x) { return x; }
__device__ __forceinline__ number to_number(double x) {
  return static_cast<number>(float_to_bits(static_cast<float>(x)));
}
#else
__device__ __forceinline__ double to_double(float x) { return static_cast<double>(x); }
__device__ __forceinline__ double to_double(double x) { return x; }
constexpr double kRawScale = 1.0;
__device__ __forceinline__ double raw_double(number x) { return to_double(x); }
__device__ __forceinline__ number to_number(double x) { return static_cast<number>(x); }
#endif
