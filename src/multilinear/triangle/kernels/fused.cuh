#pragma once
// Parts of the fused kernels. Compiled with CLEBSCH_NUMBER (operands: 2 IEEE half, 3 bfloat16), CLEBSCH_X (x and out: 1
// float, 2, 3), CLEBSCH_D, CLEBSCH_H, CLEBSCH_OUT, multiples of 32, CLEBSCH_BEFORE (gate before the projection),
// CLEBSCH_STORED (project_wide.cu stores the gate; else output.cu computes it again), CLEBSCH_RESIDENT (weights are in
// shared memory), CLEBSCH_WARPS (of a block), CLEBSCH_ROW_WARPS (of them over rows, project_wide.cu), CLEBSCH_MASK
// (kNoMask ...), CLEBSCH_WARPGROUPS, CLEBSCH_OUT_WARPGROUPS (which kernels are those for warpgroups),
// CLEBSCH_OVERLAPPED (the first kernel is project_overlapped.cu), CLEBSCH_PADDED (lines of left, right and o are longer
// than n).
//
// Places of operands: a lane (g = lane / 4, t = lane % 4) reads 8 adjacent columns 32 c + 8 t .. + 7 of a row at once.
// So step s of 16 inner places takes columns from q = 32 (s / 2) + 8 t + 4 (s % 2): places 2 t and 2 t + 1 are q and
// q + 1, places 2 t + 8 and 2 t + 9 are q + 2 and q + 3.
#ifndef CLEBSCH_NUMBER
#define CLEBSCH_NUMBER 3
#endif
#ifndef CLEBSCH_H
// For tools that compile a file as it stands; device_fused.cpp says what a problem has.
#undef CLEBSCH_D
#undef CLEBSCH_DV
#define CLEBSCH_D 128
#define CLEBSCH_DV 128
#define CLEBSCH_X 3
#define CLEBSCH_H 128
#define CLEBSCH_OUT 128
#define CLEBSCH_BEFORE 0
#define CLEBSCH_STORED 0
#define CLEBSCH_RESIDENT 1
#define CLEBSCH_WARPS 16
#define CLEBSCH_ROW_WARPS 4
#define CLEBSCH_MASK 1
#define CLEBSCH_PADDED 0
#define CLEBSCH_HIGH 1
#define CLEBSCH_WARPGROUPS 0
#define CLEBSCH_OUT_WARPGROUPS 0
#define CLEBSCH_OVERLAPPED 0
#define CLEBSCH_STAGES 16
#define CLEBSCH_BUFFERS 2
#define CLEBSCH_SLOTS 2
#define CLEBSCH_NORMERS 8
#endif
#include "multilinear/attention/kernels/half_tiles.cuh"
#include "multilinear/triangle/kernels/fused.h"

using namespace clebsch::triangle;

constexpr int kD = CLEBSCH_D, kH = CLEBSCH_H, kOut = CLEBSCH_OUT, kSteps = kD / 16;
constexpr bool kBefore = CLEBSCH_BEFORE, kStored = CLEBSCH_STORED, kResident = CLEBSCH_RESIDENT;
constexpr int kMask = CLEBSCH_MASK;
constexpr bool kPadded = CLEBSCH_PADDED, kKeeps = kMask != kNoMask || kPadded;
constexpr int kGate = kBefore ? kH : kOut;  // the gate's width
/// Groups of 16 channels of left and right, then groups of 32 of the gate; in whole sets.
constexpr int kPairGroups = kH / 8, kGroups = kPairGroups + (kStored ? kGate / 32 : 0);
constexpr int kSets = (kGroups + kGroupsOfSet - 1) / kGroupsOfSet;
constexpr bool kWarpgroups = CLEBSCH_WARPGROUPS, kOutWarpgroups = CLEBSCH_OUT_WARPGROUPS;
constexpr bool kOverlapped = CLEBSCH_OVERLAPPED;
/// p_out is halved: y sigmoid(2 z) = y / 2 + y / 2 tanh(z).
constexpr bool kHalved = kOutWarpgroups && !kStored && !kBefore;

// Kernels for warpgroups are launched early (early_start.cuh), and wait when they need what the one before them wrote.
#if CLEBSCH_WARPGROUPS || CLEBSCH_OUT_WARPGROUPS
/// The kernel after this one may begin.
__device__ __forceinline__ void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// What the kernel before this one wrote is there, and it reads no more.
__device__ __forceinline__ void await_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
__device__ __forceinline__ void let_next_begin() {}
__device__ __forceinline__ void await_kernel_before() {}
#endif

/// Two numbers of out.
__device__ __forceinline__ unsigned pack_out(float x, float y) {
  unsigned pair;
#if CLEBSCH_X == 2
  asm volatile("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(x), "f"(y));
#else
  asm volatile("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(x), "f"(y));
#endif
  return pair;
}

__device__ __forceinline__ uint4 vector_of(const unsigned (&parts)[4]) {
  uint4 all;
  all.x = parts[0];
  all.y = parts[1];
  all.z = parts[2];
  all.w = parts[3];
  return all;
}

/// The column of a place (0 to 7) of a tile of sums that are stored by rows: a lane has eight adjacent columns of four
/// tiles, of numbers of 32 bits (kWide) four of two.
template <bool kWide>
__device__ __forceinline__ int column_of_out(int tile, int place) {
  if (kWide) return 16 * (tile / 2) + 4 * (place / 2) + 2 * (tile % 2) + place % 2;
  return 32 * (tile / 4) + 8 * (place / 2) + 2 * (tile % 4) + place % 2;
}

/// Of half the argument: sigmoid(2 x) = 0.5 + 0.5 tanh(x). Prepared gate weights are halved.
__device__ __forceinline__ float tanh_near(float x) {
  float y;
  asm volatile("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Rows of a batch are counted with those that fill a line up to the pitch: m is row m / pitch of lines, column m %
/// pitch. This is the row of x, or of the last column of the line, or of the last line.
__device__ __forceinline__ long long row_of_x(const FusedArguments& a, int batch, int m) {
  m = min(m, a.rows - 1);
  if (kPadded) {
    const int line = m / static_cast<int>(a.pitch), n = static_cast<int>(a.shape.n);
    m = line * n + min(m - line * static_cast<int>(a.pitch), n - 1);
  }
  return static_cast<long long>(batch) * a.square + m;
}

/// Whether a row is one of x.
__device__ __forceinline__ bool is_row(const FusedArguments& a, int m) {
  return m < a.rows && (!kPadded || m % static_cast<int>(a.pitch) < static_cast<int>(a.shape.n));
}

/// What the mask makes of a row of x; 0 for rows that are none, so that sums may run over whole lines.
__device__ __forceinline__ float mask_of(const FusedArguments& a, int batch, int m) {
  if (kPadded && !is_row(a, m)) return 0.0f;
  if (kMask == kNoMask) return 1.0f;
  const long long row = row_of_x(a, batch, m);
  if (kMask == kNumberMask) return __ldg(static_cast<const float*>(a.mask) + row);
  return __ldg(static_cast<const unsigned char*>(a.mask) + row) != 0 ? 1.0f : 0.0f;
}

/// The mask's entry of a row as it is read, 0 for rows that are none: a load that is not waited for where it is. And
/// what it makes of the row, as mask_of.
__device__ __forceinline__ unsigned bits_of_mask(const FusedArguments& a, int batch, int m) {
  if (kPadded && !is_row(a, m)) return 0;
  if (kMask == kNoMask) return 1;
  const long long row = row_of_x(a, batch, m);
  if (kMask == kNumberMask) return __ldg(static_cast<const unsigned*>(a.mask) + row);
  return __ldg(static_cast<const unsigned char*>(a.mask) + row);
}
__device__ __forceinline__ float mask_of_bits(unsigned bits) {
  return kMask == kNumberMask ? __uint_as_float(bits) : bits != 0 ? 1.0f : 0.0f;
}

/// A tile of 32 rows of a batch, of which lane t has 8 rows from m on in operands that lie by channel.
struct Tile {
  int batch = 0, m = 0;
  unsigned flags = 0;  ///< bit r: the mask keeps row m + r

  __device__ __forceinline__ Tile(const FusedArguments& a, long long tile) {
    const int tiles = (a.rows + kTileRows - 1) / kTileRows;
    batch = static_cast<int>(tile / tiles);
    m = static_cast<int>(tile - static_cast<long long>(batch) * tiles) * kTileRows + 8 * (threadIdx.x % 4);
  }
  static __device__ __forceinline__ long long count(const FusedArguments& a) {
    return a.shape.batch * ((a.rows + kTileRows - 1) / kTileRows);
  }
  __device__ __forceinline__ int first() const { return m - 8 * static_cast<int>(threadIdx.x % 4); }
  /// In x and out, of the tile's row; another one for those that are not there.
  __device__ __forceinline__ long long row_of_tile(const FusedArguments& a, int row) const {
    return row_of_x(a, batch, first() + row);
  }

  /// Reads which rows the mask keeps.
  __device__ __forceinline__ void read_mask(const FusedArguments& a) {
    if (!kKeeps) return;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      if (mask_of(a, batch, m + r) != 0.0f) flags |= 1u << r;
    }
  }
  /// x of row m + r, masked: an entry of 0 selects.
  __device__ __forceinline__ float masked(const FusedArguments& a, float x, int r) const {
    if (kMask == kNumberMask) x *= mask_of(a, batch, m + r);
    return flags & 1u << r ? x : 0.0f;
  }

  /// Eight rows of a channel; `channels` (batch, width, n, pitch).
  __device__ __forceinline__ void store(void* channels, int width, int channel, const FusedArguments& a,
                                        const unsigned (&pairs)[4]) const {
    if (m >= a.rows) return;
    unsigned short* to =
        static_cast<unsigned short*>(channels) + (static_cast<long long>(batch) * width + channel) * a.plane + m;
    *reinterpret_cast<uint4*>(to) = vector_of(pairs);
  }

  /// Channels of a group from its sums: first and second are projection and gate of 16 channels of left or right, or
  /// the gates of 32 channels. Lanes have channels g and g + 8, rows m + 2 n and the next of tile n.
  __device__ __forceinline__ void store_group(const FusedArguments& a, int group, const float (&first)[4][4],
                                              const float (&second)[4][4]) const {
    const int g = static_cast<int>(threadIdx.x % 32 / 4);
    if (kStored && group >= kPairGroups) {
      if (group >= kGroups) return;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        unsigned ones[4], others[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          ones[n] = pack(0.5f + 0.5f * tanh_near(first[n][2 * h]), 0.5f + 0.5f * tanh_near(first[n][2 * h + 1]));
          others[n] = pack(0.5f + 0.5f * tanh_near(second[n][2 * h]), 0.5f + 0.5f * tanh_near(second[n][2 * h + 1]));
        }
        const int channel = 32 * (group - kPairGroups) + 8 * h + g;
        store(a.gate, kGate, channel, a, ones);
        store(a.gate, kGate, channel + 16, a, others);
      }
      return;
    }
    const bool of_left = group < kH / 16;
    const float factor = of_left ? 0.5f * a.left_factor : 0.5f;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      unsigned pairs[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float x = first[n][2 * h] * factor, y = first[n][2 * h + 1] * factor;
        x += x * tanh_near(second[n][2 * h]);
        y += y * tanh_near(second[n][2 * h + 1]);
        if (kKeeps) {
          x = masked(a, x, 2 * n);
          y = masked(a, y, 2 * n + 1);
        }
        pairs[n] = pack(x, y);
      }
      store(of_left ? a.left : a.right, kH, 16 * (of_left ? group : group - kH / 16) + 8 * h + g, a, pairs);
    }
  }
};

/// sums (16 channels, 32 rows) begin with the channels' biases.
__device__ __forceinline__ void begin_sums(float (&sums)[4][4], const float* bias) {
  const int g = static_cast<int>(threadIdx.x % 32 / 4);
  const float low = bias[g], high = bias[g + 8];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    sums[n][0] = sums[n][1] = low;
    sums[n][2] = sums[n][3] = high;
  }
}

__device__ __forceinline__ void multiply(float (&sums)[4], const uint4& a, unsigned b0, unsigned b1) {
  const unsigned rows[4] = {a.x, a.y, a.z, a.w}, columns[2] = {b0, b1};
  multiply_half(sums, rows, columns);
}
