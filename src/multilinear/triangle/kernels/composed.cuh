#pragma once
// Numbers of the composed kernels. Compiled with CLEBSCH_NUMBER (of x, out and grad), CLEBSCH_PRECISION, CLEBSCH_MASK,
// CLEBSCH_D, CLEBSCH_HIDDEN, CLEBSCH_OUT and CLEBSCH_GATE_BEFORE. Every width is a multiple of 16; a thread takes eight
// adjacent columns at a time.
#include "cuda/kernels/half_bits.cuh"
#include "multilinear/triangle/kernels/composed.h"

// For tools that compile a file as it stands; device_composed.cpp says what a problem has.
#ifndef CLEBSCH_NUMBER
#define CLEBSCH_NUMBER 3
#define CLEBSCH_PRECISION 5
#define CLEBSCH_MASK 2
#define CLEBSCH_D 128
#define CLEBSCH_HIDDEN 128
#define CLEBSCH_OUT 128
#define CLEBSCH_GATE_BEFORE 0
#endif

using namespace clebsch::triangle;

constexpr int kD = CLEBSCH_D, kHidden = CLEBSCH_HIDDEN, kOut = CLEBSCH_OUT;
constexpr bool kGateBefore = CLEBSCH_GATE_BEFORE != 0;
constexpr int kGate = kGateBefore ? kHidden : kOut;
constexpr int kPrecision = CLEBSCH_PRECISION;
constexpr int kThreads = kComposedThreads;
/// Rows of columns, one a thread: the largest power of two that is not more than the columns' vectors, at most a warp.
CLEBSCH_BOTH constexpr int lanes_of(int columns, int lanes = 32) {
  return lanes == 1 || lanes * 8 <= columns ? lanes : lanes_of(columns, lanes / 2);
}

struct Half {
  unsigned short bits;
};
struct Brain {
  unsigned short bits;
};

template <int kNumber>
struct NumberOf;
template <>
struct NumberOf<kFloat64> {
  using type = double;
};
template <>
struct NumberOf<kFloat32> {
  using type = float;
};
template <>
struct NumberOf<kFloat16> {
  using type = Half;
};
template <>
struct NumberOf<kBfloat16> {
  using type = Brain;
};

using number = NumberOf<CLEBSCH_NUMBER>::type;
using operand = NumberOf<operand_number(kPrecision)>::type;
#if CLEBSCH_PRECISION == 0
using real = double;
#else
using real = float;
#endif

/// Two numbers to the nearest, the first in the low bits.
__device__ __forceinline__ unsigned pack(float x, float y, Half) {
  unsigned pair;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  pair = float_to_half(x) | float_to_half(y) << 16;
#else
  asm volatile("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(x), "f"(y));
#endif
  return pair;
}
__device__ __forceinline__ unsigned pack(float x, float y, Brain) {
  unsigned pair;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  pair = float_to_bfloat(x) | float_to_bfloat(y) << 16;
#else
  asm volatile("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(x), "f"(y));
#endif
  return pair;
}

__device__ __forceinline__ real to_real(double x) { return static_cast<real>(x); }
__device__ __forceinline__ real to_real(float x) { return static_cast<real>(x); }
__device__ __forceinline__ real to_real(Half x) {
  float value;
  const unsigned short bits = x.bits;
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return static_cast<real>(value);
}
__device__ __forceinline__ real to_real(Brain x) {
  return static_cast<real>(__uint_as_float(static_cast<unsigned>(x.bits) << 16));
}

__device__ __forceinline__ void from_real(double& to, real x) { to = static_cast<double>(x); }
__device__ __forceinline__ void from_real(float& to, real x) { to = static_cast<float>(x); }
__device__ __forceinline__ void from_real(Half& to, real x) {
  to.bits = static_cast<unsigned short>(pack(static_cast<float>(x), 0.0f, Half{}));
}
__device__ __forceinline__ void from_real(Brain& to, real x) {
  to.bits = static_cast<unsigned short>(pack(static_cast<float>(x), 0.0f, Brain{}));
}

/// The nearest to x that an operand has and that is finite; NaN stays. For gradients that zeros are multiplied by:
/// those of padded rows of o, which are zeros themselves, are large, since 1 / deviation is.
__device__ __forceinline__ real nearest_finite(real x) {
  if constexpr (kPrecision == kHalf) {
    constexpr real kMost = 65504;
    x = x > kMost ? kMost : x;
    x = x < -kMost ? -kMost : x;
  }
  return x;
}

/// Whether a row of this mean and 1 / deviation can be normalised: all of it is finite and, without an eps, not all the
/// same.
__device__ __forceinline__ bool has_norm(real mean, real inverse) {
  return inverse > 0 && inverse - inverse == 0 && mean - mean == 0;
}

/// Number `at` of a tensor of a type that is known when the kernel runs, `otherwise` where there is no tensor.
__device__ __forceinline__ real number_at(const void* tensor, int type, long long at, real otherwise) {
  if (!tensor) return otherwise;
  if (type == kFloat64) return to_real(static_cast<const double*>(tensor)[at]);
  if (type == kFloat32) return to_real(static_cast<const float*>(tensor)[at]);
  if (type == kFloat16) return to_real(static_cast<const Half*>(tensor)[at]);
  return to_real(static_cast<const Brain*>(tensor)[at]);
}
__device__ __forceinline__ void set_number(void* tensor, int type, long long at, real x) {
  if (type == kFloat64) {
    from_real(static_cast<double*>(tensor)[at], x);
  } else if (type == kFloat32) {
    from_real(static_cast<float*>(tensor)[at], x);
  } else if (type == kFloat16) {
    from_real(static_cast<Half*>(tensor)[at], x);
  } else {
    from_real(static_cast<Brain*>(tensor)[at], x);
  }
}

// Eight adjacent numbers, of which the first is aligned to 16 bytes.
__device__ __forceinline__ void load8(const double* from, real (&x)[8]) {
#pragma unroll
  for (int e = 0; e < 8; e += 2) {
    const double2 pair = *reinterpret_cast<const double2*>(from + e);
    x[e] = static_cast<real>(pair.x);
    x[e + 1] = static_cast<real>(pair.y);
  }
}
__device__ __forceinline__ void load8(const float* from, real (&x)[8]) {
#pragma unroll
  for (int e = 0; e < 8; e += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + e);
    x[e] = static_cast<real>(four.x);
    x[e + 1] = static_cast<real>(four.y);
    x[e + 2] = static_cast<real>(four.z);
    x[e + 3] = static_cast<real>(four.w);
  }
}
template <typename T>
__device__ __forceinline__ void load8(const T* from, real (&x)[8]) {
  const uint4 all = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    x[2 * e] = to_real(T{static_cast<unsigned short>(words[e] & 0xffffu)});
    x[2 * e + 1] = to_real(T{static_cast<unsigned short>(words[e] >> 16)});
  }
}

__device__ __forceinline__ void store8(double* to, const real (&x)[8]) {
#pragma unroll
  for (int e = 0; e < 8; e += 2) {
    double2 pair;
    pair.x = static_cast<double>(x[e]);
    pair.y = static_cast<double>(x[e + 1]);
    *reinterpret_cast<double2*>(to + e) = pair;
  }
}
__device__ __forceinline__ void store8(float* to, const real (&x)[8]) {
#pragma unroll
  for (int e = 0; e < 8; e += 4) {
    float4 four;
    four.x = static_cast<float>(x[e]);
    four.y = static_cast<float>(x[e + 1]);
    four.z = static_cast<float>(x[e + 2]);
    four.w = static_cast<float>(x[e + 3]);
    *reinterpret_cast<float4*>(to + e) = four;
  }
}
template <typename T>
__device__ __forceinline__ void store8(T* to, const real (&x)[8]) {
  uint4 all;
  all.x = pack(static_cast<float>(x[0]), static_cast<float>(x[1]), T{});
  all.y = pack(static_cast<float>(x[2]), static_cast<float>(x[3]), T{});
  all.z = pack(static_cast<float>(x[4]), static_cast<float>(x[5]), T{});
  all.w = pack(static_cast<float>(x[6]), static_cast<float>(x[7]), T{});
  *reinterpret_cast<uint4*>(to) = all;
}

/// A float to the nearest that TF32 has, ties away from zero.
__device__ __forceinline__ float round_to_tf32(float x) {
  const unsigned bits = __float_as_uint(x);
  return (bits & 0x7f800000u) == 0x7f800000u ? x : __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}

/// Eight adjacent numbers of an operand; kTf32x3: as two terms.
__device__ __forceinline__ void store_operand(const Operand& to, long long at, const real (&x)[8]) {
  if constexpr (kPrecision == kTf32x3) {
    real high[8], low[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      high[e] = round_to_tf32(static_cast<float>(x[e]));
      low[e] = round_to_tf32(static_cast<float>(x[e]) - static_cast<float>(high[e]));
    }
    store8(static_cast<operand*>(to.high) + at, high);
    store8(static_cast<operand*>(to.low) + at, low);
  } else {
    store8(static_cast<operand*>(to.high) + at, x);
  }
}
__device__ __forceinline__ void store_operand(const Operand& to, long long at, real x) {
  if constexpr (kPrecision == kTf32x3) {
    const float high = round_to_tf32(static_cast<float>(x));
    static_cast<float*>(to.high)[at] = high;
    static_cast<float*>(to.low)[at] = round_to_tf32(static_cast<float>(x) - high);
  } else {
    from_real(static_cast<operand*>(to.high)[at], x);
  }
}

__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ real sigmoid(real x) { return real(1) / (real(1) + exponential(-x)); }

/// The sum over `kLanes` adjacent lanes, in all of them.
template <int kLanes>
__device__ __forceinline__ real sum_of_lanes(real x) {
#pragma unroll
  for (int bits = 1; bits < kLanes; bits *= 2) x += __shfl_xor_sync(0xffffffffu, x, bits);
  return x;
}

/// What a row's entry of the mask is; 1 without a mask.
__device__ __forceinline__ real mask_at(const void* mask, long long row) {
#if CLEBSCH_MASK == 1
  return static_cast<const unsigned char*>(mask)[row] ? real(1) : real(0);
#elif CLEBSCH_MASK == 2
  return static_cast<const real*>(mask)[row];
#else
  return real(1);
#endif
}

/// Sums over a block's rows: thread = row group * kLanes + lane has those of the columns 8 (lane + kLanes v) .. + 7 of
/// `kColumns` in sums[v]. All threads call it; `shared` holds kThreads * 8 numbers. The slot's columns begin at
/// `first`.
template <int kColumns, int kLanes>
__device__ __forceinline__ void add_columns(const ColumnSums& to, int width, int first,
                                            const real (&sums)[(kColumns / 8 + kLanes - 1) / kLanes][8], real* shared) {
  if (!to.slots) return;
  constexpr int kVectors = (kColumns / 8 + kLanes - 1) / kLanes, kGroups = kThreads / kLanes;
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  real* slot = static_cast<real*>(to.slots) + static_cast<long long>(blockIdx.x) * width + first;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 8; ++e) shared[(group * kLanes + lane) * 8 + e] = sums[v][e];
    __syncthreads();
    for (int at = threadIdx.x; at < kLanes * 8; at += kThreads) {
      const int column = 8 * kLanes * v + at;
      if (column >= kColumns) continue;
      real sum = 0;
      for (int g = 0; g < kGroups; ++g) sum += shared[g * kLanes * 8 + at];
      slot[column] = to.first ? sum : slot[column] + sum;
    }
  }
  __syncthreads();
}
