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
