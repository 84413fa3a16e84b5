#pragma once
// What the kernels from x to left, right and gates for warpgroups share (compute capability 9.0). Compiled with what
// fused.cuh says, and with
//   CLEBSCH_STAGES    matrices of weights that shared memory holds
//   CLEBSCH_BUFFERS   parts of normed rows of x that shared memory holds
//   CLEBSCH_NORMERS   warps that norm rows
//   CLEBSCH_SLOTS     reads of rows of x that such a warp has under way as copies; 0: it reads rows into registers
//
// A product has 64 channels as rows of its first operand and 128 rows of x as columns of its second. Both lie in shared
// memory as matrices of 64 columns, 128 bytes a row, of D. Rows of x have places such that sums of a lane are of eight
// adjacent rows. Channels come in sets of 128: projections of 64, then their gates; or 128 gates that are stored.
#include "cuda/kernels/bulk_copies.cuh"
#include "cuda/kernels/early_start.cuh"
#include "multilinear/attention/kernels/warpgroup.cuh"
#include "multilinear/triangle/kernels/fused.cuh"

static_assert(kD % 64 == 0 && kH % 32 == 0, "matrices of 64 columns, sets of 64 channels of left and right together");
constexpr int kBlocks = kD / 64, kStages = CLEBSCH_STAGES, kSlots = CLEBSCH_SLOTS, kNormers = CLEBSCH_NORMERS;
constexpr int kMatrix = kSetChannels * 128;       ///< bytes of 64 channels and 64 columns
constexpr int kRowsBlock = kGroupRows * 128;      ///< bytes of the rows of x, 64 columns
constexpr int kRowsBytes = kRowsBlock * kBlocks;  ///< all columns
constexpr int kOfSet = 2 * kBlocks;               ///< matrices of a set
constexpr int kPairSets = 2 * kH / kSetChannels;  ///< sets of left and right
constexpr int kUnitChannels = 32;                 ///< of a unit of project_overlapped.cu
constexpr int kAllSets = kPairSets + (kStored ? (kGate + 2 * kSetChannels - 1) / (2 * kSetChannels) : 0);

/// The row at a place and the place of a row, both of 32. A lane t has sums of places 2 t and 2 t + 1 of each of four
/// tiles of eight: these places have rows 8 t .. 8 t + 7, so that a lane's sums are of adjacent rows.
__device__ __forceinline__ int row_of_place(int place) { return 8 * (place % 8 / 2) + 2 * (place / 8) + place % 2; }
__device__ __forceinline__ int place_of_row(int row) { return 8 * (row % 8 / 2) + 2 * (row / 8) + row % 2; }

/// The place in a ring, and how often it came round.
template <int kCount>
struct Ring {
  int at = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void next() {
    if (++at == kCount) {
      at = 0;
      parity ^= 1;
    }
  }
  /// Over the matrices of a set.
  __device__ __forceinline__ void skip_set() {
    parity ^= kOfSet / kCount % 2;
    at += kOfSet % kCount;
    if (at >= kCount) {
      at -= kCount;
      parity ^= 1;
    }
  }
};

/// A part of 128 rows of a batch. There are fewer than 2^31.
struct Part {
  int batch = 0, first = 0;
  __device__ __forceinline__ Part(int of_batch, int of_row) : batch(of_batch), first(of_row) {}
  __device__ __forceinline__ Part(const FusedArguments& a, int part) {
    const int parts = (a.rows + kGroupRows - 1) / kGroupRows;
    batch = part / parts;
    first = (part - batch * parts) * kGroupRows;
  }
  static __device__ __forceinline__ int count(const FusedArguments& a) {
    return static_cast<int>(a.shape.batch) * ((a.rows + kGroupRows - 1) / kGroupRows);
  }
};

/// The parts of a block, which blocks take in turn: to go on needs no division.
struct PartsInTurn {
  int of_batch, batches_on, parts_on, batch, part;
  __device__ __forceinline__ explicit PartsInTurn(const FusedArguments& a) {
    of_batch = (a.rows + kGroupRows - 1) / kGroupRows;
    const int step = static_cast<int>(gridDim.x), first = static_cast<int>(blockIdx.x);
    // Nobody waits for a division where a batch has parts for all blocks.
    batches_on = batch = 0;
    if (step >= of_batch) {
      batches_on = step / of_batch;
      batch = first / of_batch;
    }
    parts_on = step - batches_on * of_batch;
    part = first - batch * of_batch;
  }
  __device__ __forceinline__ bool is_there(const FusedArguments& a) const {
    return batch < static_cast<int>(a.shape.batch);
  }
  __device__ __forceinline__ Part get() const { return {batch, part * kGroupRows}; }
  __device__ __forceinline__ void next() {
    batch += batches_on;
    part += parts_on;
    if (part >= of_batch) {
      part -= of_batch;
      ++batch;
    }
  }
};

/// The mask of a part in shared memory.
struct MaskOfPart {
  unsigned short kept[kGroupRows];  ///< all bits of the rows that are kept
  float numbers[kGroupRows];        ///< of masks of numbers

  /// By the block's first four warps, a thread a row.
  __device__ __forceinline__ void write(float of_row) {
    const int row = static_cast<int>(threadIdx.x);
    kept[row] = of_row != 0.0f ? 0xffff : 0;
    if (kMask == kNumberMask) numbers[row] = of_row;
  }
};
constexpr int kMaskBytes = kMask == kNumberMask ? sizeof(MaskOfPart) : sizeof(MaskOfPart::kept);

/// All bits of the numbers of a lane's rows that are kept, rows 32 q + 8 t .. + 7 at q.
struct Kept {
  uint4 rows[4];
  __device__ __forceinline__ void read(const MaskOfPart& mask) {
    if (!kKeeps) return;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      rows[q] = *reinterpret_cast<const uint4*>(mask.kept + 32 * q + 8 * (threadIdx.x % 4));
    }
  }
};

/// Stores eight numbers of 16 bits. Not as a branch: the numbers would be computed in it, one store after the other.
__device__ __forceinline__ void store_where(bool where, unsigned short* to, const unsigned (&pairs)[4]) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %0, 0;\n@p st.global.v4.b32 [%1], {%2, %3, %4, %5};\n}" ::"r"(
                   static_cast<int>(where)),
               "l"(to), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

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
          store_where(m + 32 * q < a.rows, to + 32 * q, pairs);
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
        if (kKeeps) pairs[n] &= part_of(kept.rows[q], n);
      }
      store_where(m + 32 * q < a.rows, to + 32 * q, pairs);
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
