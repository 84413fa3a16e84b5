#pragma once
// Parts of the kernels from x to left, right and gates for warpgroups (compute capability 9.0). Compiled with what
// fused.cuh says, CLEBSCH_STAGES, matrices of weights that shared memory holds, and CLEBSCH_BUFFERS, parts of rows of
// x.
//
// A product has 64 channels as rows of its first operand and 128 rows of x as columns of its second. Both lie in shared
// memory as matrices of 64 columns, 128 bytes a row, of D. Rows of x have places such that sums of a lane are of eight
// adjacent rows. Channels come in sets of 128: projections of 64, then their gates; or 128 gates that are stored.
#include "cuda/kernels/early_start.cuh"
#include "multilinear/attention/kernels/warpgroup.cuh"
#include "multilinear/triangle/kernels/fused.cuh"

static_assert(kD % 64 == 0 && kH % 32 == 0, "matrices of 64 columns, sets of 64 channels of left and right together");
constexpr int kBlocks = kD / 64, kStages = CLEBSCH_STAGES;
constexpr int kMatrix = kSetChannels * 128;       ///< bytes of 64 channels and 64 columns
constexpr int kRowsBlock = kGroupRows * 128;      ///< bytes of the rows of x, 64 columns
constexpr int kRowsBytes = kRowsBlock * kBlocks;  ///< all columns
constexpr int kOfSet = 2 * kBlocks;               ///< matrices of a set
constexpr int kPairSets = 2 * kH / kSetChannels;  ///< sets of left and right
constexpr int kAllSets = kPairSets + (kStored ? (kGate + 2 * kSetChannels - 1) / (2 * kSetChannels) : 0);

/// The row (of 32) at a place: a lane's columns 2 t, 2 t + 1 of four tiles are rows 8 t .. 8 t + 7.
__device__ __forceinline__ int row_of_place(int place) { return 8 * (place % 8 / 2) + 2 * (place / 8) + place % 2; }

/// A part of 128 rows of a batch. There are fewer than 2^31.
struct Part {
  int batch = 0, first = 0;
  __device__ __forceinline__ Part(const FusedArguments& a, int part) {
    const int parts = (a.rows + kGroupRows - 1) / kGroupRows;
    batch = part / parts;
    first = (part - batch * parts) * kGroupRows;
  }
  static __device__ __forceinline__ int count(const FusedArguments& a) {
    return static_cast<int>(a.shape.batch) * ((a.rows + kGroupRows - 1) / kGroupRows);
  }
};

/// As many rows of x as a warp takes at once, kLanes lanes a row: read, and later normed and written as columns of
/// second operands.
template <int kLanes>
struct RowsAhead {
  static constexpr int kUnits = kD / 8 / kLanes, kAtOnce = 32 / kLanes;
  static_assert(kUnits * kLanes * 8 == kD && kLanes % 4 == 0, "whole units");
  Eight eights[kUnits];

  /// The lane's place among the rows: of four lanes a row, two rows are written at once, in different halves of the
  /// banks.
  static __device__ __forceinline__ int own() {
    const int lane = static_cast<int>(threadIdx.x % 32);
    return kLanes == 4 ? lane / 4 % 2 * 4 + lane / 8 : lane / kLanes;
  }
  /// Places of the part from `first` on.
  __device__ __forceinline__ void read(const FusedArguments& a, const Part& part, int first) {
    const int place = first + own();
    const long long row = row_of_x(a, part.batch, part.first + place / 32 * 32 + row_of_place(place % 32));
#pragma unroll
    for (int u = 0; u < kUnits; ++u) eights[u].load(a.x, row * kD + 8 * (kLanes * u + threadIdx.x % kLanes));
  }
  __device__ __forceinline__ void get(float (&v)[kUnits][8]) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) eights[u].get(v[u]);
  }
  static __device__ __forceinline__ void write(unsigned char* to, int first, float (&v)[kUnits][8], float eps) {
    const int place = first + own();
    normalise<kUnits, kLanes>(v, kUnits, eps);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int chunk = kLanes * u + static_cast<int>(threadIdx.x % kLanes);
      const unsigned pairs[4] = {pack(v[u][0], v[u][1]), pack(v[u][2], v[u][3]), pack(v[u][4], v[u][5]),
                                 pack(v[u][6], v[u][7])};
      *reinterpret_cast<uint4*>(to + chunk / 8 * kRowsBlock + place * 128 + (chunk % 8 ^ place % 8) * 16) =
          vector_of(pairs);
    }
  }
};

/// Asks for a part's rows of x to be in the L2 cache when they are read; by a warpgroup.
__device__ __forceinline__ void ask_for_part(const FusedArguments& a, const Part& part) {
  constexpr int kLine = 128, kRowBytes = kD * (CLEBSCH_X == 1 ? 4 : 2);
  const long long first = row_of_x(a, part.batch, part.first),
                  last = row_of_x(a, part.batch, part.first + kGroupRows - 1);
  const char* from = static_cast<const char*>(a.x) + first * kRowBytes;
  const int bytes = static_cast<int>(last - first + 1) * kRowBytes;
#pragma unroll 2
  for (int at = static_cast<int>(threadIdx.x % 128) * kLine; at < bytes; at += 128 * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
  }
}

/// The mask of a part in shared memory.
struct MaskOfPart {
  unsigned kept[4];           ///< bit r of number q: row 32 q + r is kept
  float numbers[kGroupRows];  ///< of masks of numbers

  /// By four warps, a thread a row.
  __device__ __forceinline__ void write(float of_row) {
    const int row = static_cast<int>(threadIdx.x % kGroupRows);
    const unsigned bits = __ballot_sync(0xffffffffu, of_row != 0.0f);
    if (row % 32 == 0) kept[row / 32] = bits;
    if (kMask == kNumberMask) numbers[row] = of_row;
  }
};
constexpr int kMaskBytes = kMask == kNumberMask ? sizeof(MaskOfPart) : 16;

/// All bits of the numbers of a lane's rows that are kept: of rows 32 q + 8 t + 2 n and the next at 4 q + n.
struct Kept {
  unsigned pairs[16];
  __device__ __forceinline__ void read(const MaskOfPart& mask) {
    if (!kKeeps) return;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const unsigned bits = mask.kept[q] >> 8 * (threadIdx.x % 4);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        pairs[4 * q + n] = (bits >> 2 * n & 1u) * 0xffffu | (bits >> (2 * n + 1) & 1u) * 0xffff0000u;
      }
    }
  }
};

/// Stores a set's channels from its sums.
__device__ __forceinline__ void store_set(const FusedArguments& a, const Part& part, const MaskOfPart& mask,
                                          const Kept& kept, int set, const float (&first)[64],
                                          const float (&second)[64]) {
  const int warp = static_cast<int>(threadIdx.x % 128 / 32), g = static_cast<int>(threadIdx.x % 32 / 4),
            t = static_cast<int>(threadIdx.x % 4);
  const int local = 16 * warp + g, m = part.first + 8 * t;
  const float* const bias = a.in_bias + 2 * kSetChannels * set + local;
  const long long batch = part.batch;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float of_first = __ldg(bias + 8 * h), of_second = __ldg(bias + 8 * h + kSetChannels);
    if (kStored && set >= kPairSets) {
      const int channel = 2 * kSetChannels * (set - kPairSets) + local + 8 * h;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (kGate % (2 * kSetChannels) != 0 && channel + half * kSetChannels >= kGate) continue;
        unsigned short* to =
            static_cast<unsigned short*>(a.gate) + (batch * kGate + channel + half * kSetChannels) * a.plane + m;
        const float by = half == 0 ? of_first : of_second;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          unsigned pairs[4];
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const int at = 16 * q + 4 * n + 2 * h;
            const float x = half == 0 ? first[at] : second[at], y = half == 0 ? first[at + 1] : second[at + 1];
            pairs[n] = pack(0.5f + 0.5f * tanh_near(x + by), 0.5f + 0.5f * tanh_near(y + by));
          }
          if (m + 32 * q < a.rows) *reinterpret_cast<uint4*>(to + 32 * q) = vector_of(pairs);
        }
      }
      continue;
    }
    const int channel = kSetChannels * set + local + 8 * h;
    const bool of_left = channel < kH;
    unsigned short* to = static_cast<unsigned short*>(of_left ? a.left : a.right) +
                         (batch * kH + (of_left ? channel : channel - kH)) * a.plane + m;
    const float factor = of_left ? a.left_factor : 1.0f;  // 0.5 is in the weights (prepare.cu)
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      unsigned pairs[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int at = 16 * q + 4 * n + 2 * h;
        float x = first[at] + of_first, y = first[at + 1] + of_first;
        if (CLEBSCH_NUMBER == 2) {
          x *= factor;
          y *= factor;
        }
        x += x * tanh_near(second[at] + of_second);
        y += y * tanh_near(second[at + 1] + of_second);
        if (kMask == kNumberMask) {
          const float2 by = *reinterpret_cast<const float2*>(mask.numbers + 8 * t + 32 * q + 2 * n);
          x *= by.x;
          y *= by.y;
        }
        pairs[n] = pack(x, y);
        if (kKeeps) pairs[n] &= kept.pairs[4 * q + n];
      }
      if (m + 32 * q < a.rows) *reinterpret_cast<uint4*>(to + 32 * q) = vector_of(pairs);
    }
  }
}

/// Sums of 64 channels and the rows += a matrix of weights times 64 columns of x; `more`: 0 for the first columns.
__device__ __forceinline__ void multiply_matrix(float (&sums)[64], unsigned weights, unsigned rows, int more) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    multiply_scores(sums, matrix_at(weights + 32 * step, 16), matrix_at(rows + 32 * step, 16), step > 0 ? 1 : more);
  }
}

/// Copies bytes, a multiple of 16, from global to shared memory; `barrier` hears of it.
__device__ __forceinline__ void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
/// Arrives, and says how many bytes of copies the phase waits for besides.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
