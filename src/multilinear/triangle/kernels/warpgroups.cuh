#pragma once
// Parts of the kernels from x to left, right and gates for warpgroups (compute capability 9.0). Compiled with what
// fused.cuh says, CLEBSCH_STAGES, matrices of weights that shared memory holds, CLEBSCH_BUFFERS, parts of rows of x,
// CLEBSCH_NORMERS, warps that norm rows, and CLEBSCH_SLOTS, of how many of its reads such a warp has copies under way
// (0: rows are read into registers).
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

/// The row (of 32) at a place: a lane's columns 2 t, 2 t + 1 of four tiles are rows 8 t .. 8 t + 7. And the other way.
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
    batches_on = step / of_batch;
    parts_on = step - batches_on * of_batch;
    batch = first / of_batch;
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

constexpr int kXBytes = CLEBSCH_X == 1 ? 4 : 2;

/// Normed rows as second operands: kLanes lanes a row, of which a lane has kUnits times eight adjacent columns.
template <int kLanes>
struct RowsOfWarp {
  static constexpr int kUnits = kD / 8 / kLanes, kAtOnce = 32 / kLanes, kOfWarp = kGroupRows / kNormers;
  static_assert(kUnits * kLanes * 8 == kD && kLanes % 4 == 0, "whole units");

  /// The warp's first, of a part; the block's first warps norm rows.
  static __device__ __forceinline__ int first_row() { return static_cast<int>(threadIdx.x / 32) * kOfWarp; }
  /// Norms numbers of the lane's row and writes them; Rows::chunk_of(u): which eight columns unit u is.
  template <typename Rows>
  static __device__ __forceinline__ void write_rows(unsigned char* to, int place, float (&v)[kUnits][8], float eps) {
    normalise<kUnits, kLanes>(v, kUnits, eps);
    write_normed<Rows>(to, place, v);
  }
  template <typename Rows>
  static __device__ __forceinline__ void write_normed(unsigned char* to, int place, const float (&v)[kUnits][8]) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int chunk = Rows::chunk_of(u);
      const unsigned pairs[4] = {pack(v[u][0], v[u][1]), pack(v[u][2], v[u][3]), pack(v[u][4], v[u][5]),
                                 pack(v[u][6], v[u][7])};
      *reinterpret_cast<uint4*>(to + chunk / 8 * kRowsBlock + place * 128 + (chunk % 8 ^ place % 8) * 16) =
          vector_of(pairs);
    }
  }
};

/// Asks for a part's rows of x to be in the L2 cache when they are read; by the warps that norm rows.
__device__ __forceinline__ void ask_for_part(const FusedArguments& a, const Part& part) {
  constexpr int kLine = 128, kRowBytes = kD * kXBytes;
  const long long first = row_of_x(a, part.batch, part.first),
                  last = row_of_x(a, part.batch, part.first + kGroupRows - 1);
  const char* from = static_cast<const char*>(a.x) + first * kRowBytes;
  const int bytes = static_cast<int>(last - first + 1) * kRowBytes;
#pragma unroll 2
  for (int at = static_cast<int>(threadIdx.x) * kLine; at < bytes; at += 32 * kNormers * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
  }
}

/// As many rows as a warp takes at once, read into registers before they are normed.
template <int kLanes>
struct RowsAhead : RowsOfWarp<kLanes> {
  using Base = RowsOfWarp<kLanes>;
  using Base::first_row, Base::kAtOnce, Base::kOfWarp, Base::kUnits;
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
  static __device__ __forceinline__ int chunk_of(int u) { return kLanes * u + static_cast<int>(threadIdx.x % kLanes); }

  /// The block's first part, and one of them, while rows of the next are being read.
  __device__ __forceinline__ void begin(const FusedArguments& a, const Part& part) { read(a, part, first_row()); }
  __device__ __forceinline__ void write_part(const FusedArguments& a, const Part& part, const Part& next, bool,
                                             unsigned char* to) {
    if (CLEBSCH_X != 1) ask_for_part(a, next);  // of 32-bit rows it costs more than it saves
#pragma unroll 1
    for (int first = first_row(); first < first_row() + kOfWarp; first += kAtOnce) {
      float v[kUnits][8];
      get(v);
      if (first + kAtOnce < first_row() + kOfWarp) {
        read(a, part, first + kAtOnce);
      } else {
        read(a, next, first_row());
      }
      Base::template write_rows<RowsAhead>(to, first + own(), v, a.eps);
    }
  }
};

/// Sums of rows are made by the tensor cores.
constexpr bool kBySums = CLEBSCH_X == 2;

/// Rows in shared memory as they are in x, brought by bulk copies: kSlots times as many as a warp takes at once. A
/// latency of memory is some 2,000 cycles while others store: with loads into registers, 8 KB a multiprocessor under
/// way, the kernel waits for it.
struct RowsCopied : RowsOfWarp<4> {
  static constexpr int kRowBytes = kD * kXBytes, kSlotBytes = kAtOnce * kRowBytes, kTurns = kOfWarp / kAtOnce;
  /// Adjacent rows of a copy: where lines are as long as n, n is a multiple of 8.
  static constexpr int kOfCopy = kPadded ? 1 : kAtOnce;
  static_assert(kUnits % 2 == 0 && kSlots <= kTurns, "slots of the next part at most");
  const unsigned char* slots;
  unsigned barriers;
  Ring<kSlots == 0 ? 1 : kSlots> ring;

  /// Of this warp, from where slots and barriers of all begin.
  __device__ __forceinline__ RowsCopied(const unsigned char* all_slots, unsigned all_barriers) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    slots = all_slots + warp * kSlots * kSlotBytes;
    barriers = all_barriers + 8 * warp * kSlots;
  }
  /// Begins to copy the warp's rows kAtOnce turn .. of a part into a slot whose rows all lanes have read.
  __device__ __forceinline__ void ask(const FusedArguments& a, const Part& part, int turn, int slot) const {
    // A warp's barrier does not keep a bulk copy behind ordinary loads: without the fence it overwrote rows that were
    // still to be read (docs/notebook/triangle.md).
    fence_copies();
    __syncwarp();
    ask_after_fence(a, part, turn, slot);
  }
  __device__ __forceinline__ void ask_after_fence(const FusedArguments& a, const Part& part, int turn, int slot) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (lane == 0) barrier_expect(barriers + 8 * slot, kSlotBytes);
    __syncwarp();
    if (lane < kAtOnce / kOfCopy) {
      const int row = min(part.first + first_row() + kAtOnce * turn + kOfCopy * lane, a.rows - kOfCopy);
      copy_bulk(shared_address(slots) + slot * kSlotBytes + lane * kOfCopy * kRowBytes,
                static_cast<const char*>(a.x) + row_of_x(a, part.batch, row) * kRowBytes, kOfCopy * kRowBytes,
                barriers + 8 * slot);
    }
  }
  /// Of two rows that are read or written at once one has its units exchanged: they are in different halves of the
  /// banks then.
  static __device__ __forceinline__ int chunk_of(int u) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    return 4 * (u ^ lane / 4 % 2) + lane % 4;
  }
  /// The row's numbers; and their sum by the tensor cores, where it is asked for.
  __device__ __forceinline__ void get(float (&v)[kUnits][8], float* sum = nullptr) const {
    barrier_wait(barriers + 8 * ring.at, ring.parity);
    const unsigned char* const row = slots + ring.at * kSlotBytes + threadIdx.x % 32 / 4 * kRowBytes;
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      Eight eight;
      eight.take(row + chunk_of(u) * 8 * kXBytes);
#if CLEBSCH_X != 1
      if (sum != nullptr) add_numbers_of_x(sums, eight.all);
#endif
      eight.get(v[u]);
    }
    if (sum != nullptr) *sum = sums[0] + sums[2];
    __syncwarp();
  }

  /// The block's first part, and one of them, while rows of the next are being copied.
  __device__ __forceinline__ void begin(const FusedArguments& a, const Part& part) {
    for (int turn = 0; turn < kSlots; ++turn) ask(a, part, turn, turn);
  }
  /// All of the warp's rows at once, where their slots are as many as its turns: what waits is the exchanges between
  /// lanes, behind reads of the tensor cores, so there are few, and those of all rows at the same time. Sums and
  /// squares go together: of numbers less the row's first one, of which the variance loses a factor of kD in accuracy
  /// at most, since no number is further from the mean than sqrt(kD) deviations.
  static constexpr bool kWhole = kSlots == kTurns && kSlots * kUnits * 8 <= 64 && CLEBSCH_X == 3;
  __device__ __forceinline__ void write_whole(const FusedArguments& a, const Part& next, bool has_next,
                                              unsigned char* to) {
    constexpr int kRows = kSlots == 0 ? 1 : kSlots;
    Eight eights[kRows][kUnits];  // stay as they are read: registers are few
    const uint2 selectors = Eight::selectors(a);
    float firsts[kRows], sums[kRows], squares[kRows];
    unsigned lane = threadIdx.x % 32;
    asm volatile("" : "+r"(lane));  // or all that follows from it would be kept in registers from part to part
    const unsigned odd = lane / 4 % 2, t = lane % 4;
    // Of two rows that are read or written at once one has its units exchanged (chunk_of).
    const unsigned char* const row = slots + lane / 4 * kRowBytes;
    const unsigned char *const even_units = row + 16 * (t + 4 * odd), *const odd_units = row + 16 * (t + 4 - 4 * odd);
#pragma unroll
    for (int slot = 0; slot < kRows; ++slot) barrier_wait(barriers + 8 * slot, ring.parity);
#pragma unroll
    for (int slot = 0; slot < kRows; ++slot) {
      firsts[slot] = low_of_x(*reinterpret_cast<const unsigned short*>(row + slot * kSlotBytes));
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        eights[slot][u].take((u % 2 == 0 ? even_units : odd_units) + slot * kSlotBytes + 128 * (u / 2));
      }
    }
#pragma unroll
    for (int slot = 0; slot < kRows; ++slot) {
      float two_sums[2] = {0.0f, 0.0f}, two_squares[2] = {0.0f, 0.0f};
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        float v[8];
        eights[slot][u].get(v);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          v[e] -= firsts[slot];
          two_sums[e % 2] += v[e];
          two_squares[e % 2] += v[e] * v[e];
        }
      }
      sums[slot] = two_sums[0] + two_sums[1];
      squares[slot] = two_squares[0] + two_squares[1];
    }
#pragma unroll
    for (int bits = 2; bits > 0; bits /= 2) {
#pragma unroll
      for (int slot = 0; slot < kRows; ++slot) {
        sums[slot] += __shfl_xor_sync(0xffffffffu, sums[slot], bits);
        squares[slot] += __shfl_xor_sync(0xffffffffu, squares[slot], bits);
      }
    }
    if (has_next) {
      fence_copies();
      __syncwarp();
#pragma unroll
      for (int slot = 0; slot < kRows; ++slot) ask_after_fence(a, next, slot, slot);
    }
    ring.parity ^= 1;
#pragma unroll
    for (int slot = 0; slot < kRows; ++slot) {
      const float mean = sums[slot] * (1.0f / kD), variance = fmaxf(squares[slot] * (1.0f / kD) - mean * mean, 0.0f),
                  scale = inverse_root(variance + a.eps), shift = -(firsts[slot] + mean) * scale;
      float v[kUnits][8];
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        eights[slot][u].get_again(v[u], selectors);
#pragma unroll
        for (int e = 0; e < 8; ++e) v[u][e] = v[u][e] * scale + shift;
      }
      // place_of_row()
      const unsigned at = static_cast<unsigned>(first_row()) + kAtOnce * slot + lane / 4,
                     place = at / 32 * 32 + 8 * (at % 8 / 2) + 2 * (at % 32 / 8) + at % 2;
      unsigned char* const of_even = to + place * 128 + (t + 4 * odd ^ place % 8) * 16;
      unsigned char* const of_odd = to + place * 128 + (t + 4 * odd ^ place % 8 ^ 4) * 16;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const unsigned pairs[4] = {pack(v[u][0], v[u][1]), pack(v[u][2], v[u][3]), pack(v[u][4], v[u][5]),
                                   pack(v[u][6], v[u][7])};
        *reinterpret_cast<uint4*>((u % 2 == 0 ? of_even : of_odd) + u / 2 * kRowsBlock) = vector_of(pairs);
      }
    }
  }
  __device__ __forceinline__ void write_part(const FusedArguments& a, const Part& part, const Part& next, bool has_next,
                                             unsigned char* to) {
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      float v[kUnits][8], sum;
      get(v, kBySums ? &sum : nullptr);
      if (kBySums) {
        normalise_summed<kUnits, 4>(v, sum, a.eps);
      } else {
        normalise<kUnits, 4>(v, kUnits, a.eps);
      }
      // Only here: the norm's exchanges need all that was read, so it is in registers. Nothing else says so, a warp's
      // barrier does not wait for reads under way, and a copy overtook some of them.
      __syncwarp();
      const int ahead = turn + kSlots;
      if (ahead < kTurns) {
        ask(a, part, ahead, ring.at);
      } else if (has_next) {
        ask(a, next, ahead - kTurns, ring.at);
      }
      ring.next();
      const int row = first_row() + kAtOnce * turn + static_cast<int>(threadIdx.x % 32 / 4);
      write_normed<RowsCopied>(to, row / 32 * 32 + place_of_row(row % 32), v);
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
