#pragma once
// Rows of x as they are read, and normed in registers, for all kernels that do so. Compiled with what fused.cuh says.
#include "multilinear/triangle/kernels/fused.cuh"

__device__ __forceinline__ float low_of_x(unsigned pair) {
#if CLEBSCH_X == 2
  const unsigned bits = pair & 0xffffu;
  float value;
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits)));
  return value;
#else
  return __uint_as_float(pair << 16);
#endif
}
__device__ __forceinline__ float high_of_x(unsigned pair) {
#if CLEBSCH_X == 2
  return low_of_x(pair >> 16);
#else
  return __uint_as_float(pair & 0xffff0000u);
#endif
}

/// Eight numbers of x, from an element that is a multiple of 8, as they are read.
struct Eight {
#if CLEBSCH_X == 1
  float4 low, high;
#else
  uint4 all;
#endif

  __device__ __forceinline__ void load(const void* x, long long at) {
#if CLEBSCH_X == 1
    const float4* from = reinterpret_cast<const float4*>(static_cast<const float*>(x) + at);
    low = __ldg(from);
    high = __ldg(from + 1);
#else
    all = __ldg(reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(x) + at));
#endif
  }
  /// From shared memory.
  __device__ __forceinline__ void take(const void* from) {
#if CLEBSCH_X == 1
    low = static_cast<const float4*>(from)[0];
    high = static_cast<const float4*>(from)[1];
#else
    all = *static_cast<const uint4*>(from);
#endif
  }
  /// As get(), by other instructions, with selectors that the compiler does not know: it would keep what get()
  /// unpacked, which takes twice as many registers as what is packed.
  __device__ __forceinline__ void get_again(float (&v)[8], const uint2& selectors) const {
#if CLEBSCH_X == 3
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      v[2 * r] = chosen(part_of(all, r), selectors.x);
      v[2 * r + 1] = chosen(part_of(all, r), selectors.y);
    }
#else
    get(v);
#endif
  }
  static __device__ __forceinline__ uint2 selectors(const FusedArguments& a) {
    uint2 both;
    both.x = 0x1044u + (static_cast<unsigned>(a.rows) >> 31);  // never negative
    both.y = 0x3244u + (static_cast<unsigned>(a.rows) >> 31);
    return both;
  }
  static __device__ __forceinline__ float chosen(unsigned pair, unsigned selector) {
    unsigned word;
    asm volatile("prmt.b32 %0, %1, 0, %2;" : "=r"(word) : "r"(pair), "r"(selector));
    return __uint_as_float(word);
  }
  __device__ __forceinline__ void get(float (&v)[8]) const {
#if CLEBSCH_X == 1
    v[0] = low.x;
    v[1] = low.y;
    v[2] = low.z;
    v[3] = low.w;
    v[4] = high.x;
    v[5] = high.y;
    v[6] = high.z;
    v[7] = high.w;
#else
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      v[2 * r] = low_of_x(part_of(all, r));
      v[2 * r + 1] = high_of_x(part_of(all, r));
    }
#endif
  }
};

__device__ __forceinline__ void load_eight(float (&v)[8], const void* x, long long at) {
  Eight eight;
  eight.load(x, at);
  eight.get(v);
}

/// Of a number that is no subnormal one; rsqrtf has five instructions more for those.
__device__ __forceinline__ float inverse_root(float x) {
  float y;
  asm volatile("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Rows of d numbers, each over kLanes adjacent lanes, to (x - mean) / deviation: mean and variance one after the
/// other, since E[x^2] - mean^2 cancels where a row has heavy tails. Units from `units` on are not there.
template <int kUnits, int kLanes>
__device__ __forceinline__ void normalise(float (&v)[kUnits][8], int units, float eps) {
  float sum = 0.0f;
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += v[u][e];
  }
#pragma unroll
  for (int bits = kLanes / 2; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
  const float mean = sum * (1.0f / kD);
  float square = 0.0f;
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      v[u][e] = u < units ? v[u][e] - mean : 0.0f;
      square += v[u][e] * v[u][e];
    }
  }
#pragma unroll
  for (int bits = kLanes / 2; bits > 0; bits /= 2) square += __shfl_xor_sync(0xffffffffu, square, bits);
  const float scale = rsqrtf(square * (1.0f / kD) + eps);
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
#pragma unroll
    for (int e = 0; e < 8; ++e) v[u][e] *= scale;
  }
}

/// c (16, 8) += a (16, 16) times ones, for sums of numbers of x as they are, two a register: those in a[0] and a[2] of
/// a quad's lanes are added to c[0] of all four, those in a[1] and a[3] to c[2].
__device__ __forceinline__ void add_numbers_of_x(float (&c)[4], const uint4& numbers) {
  const unsigned a[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
#if CLEBSCH_X == 2
  const unsigned b[2] = {0x3c003c00u, 0x3c003c00u};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  const unsigned b[2] = {0x3f803f80u, 0x3f803f80u};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// Rows, each over kLanes adjacent lanes, of which the sum is known, to (x - mean) / deviation.
template <int kUnits, int kLanes>
__device__ __forceinline__ void normalise_summed(float (&v)[kUnits][8], float sum, float eps) {
  const float mean = sum * (1.0f / kD);
  float squares[4] = {0.0f, 0.0f, 0.0f, 0.0f};  // four chains: one would wait for itself
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      v[u][e] -= mean;
      squares[e % 4] += v[u][e] * v[u][e];
    }
  }
  float square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
#pragma unroll
  for (int bits = kLanes / 2; bits > 0; bits /= 2) square += __shfl_xor_sync(0xffffffffu, square, bits);
  const float scale = inverse_root(square * (1.0f / kD) + eps);
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
#pragma unroll
    for (int e = 0; e < 8; ++e) v[u][e] *= scale;
  }
}

/// Asks for a tile's rows of x, which are adjacent, to be in the L2 cache when they are read.
__device__ __forceinline__ void ask_for_rows(const FusedArguments& a, const Tile& tile) {
  constexpr int kLine = 128, kRowBytes = kD * (CLEBSCH_X == 1 ? 4 : 2);
  const long long first = tile.row_of_tile(a, 0);
  const char* from = static_cast<const char*>(a.x) + first * kRowBytes;
  const int bytes = static_cast<int>(tile.row_of_tile(a, kTileRows - 1) - first + 1) * kRowBytes;
#pragma unroll 2
  for (int at = static_cast<int>(threadIdx.x % 32) * kLine; at < bytes; at += 32 * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
  }
}
