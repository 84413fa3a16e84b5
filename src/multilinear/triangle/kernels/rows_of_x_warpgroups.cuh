#pragma once
// Rows of x on their way to second operands of warpgroups: read into registers or by bulk copies, normed, and written
// to shared memory. Compiled with what warpgroups.cuh says.
#include "multilinear/triangle/kernels/rows_of_x.cuh"
#include "multilinear/triangle/kernels/warpgroups.cuh"

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
  /// All of the warp's rows at once (write_whole), where their slots are as many as its turns. Then one barrier hears
  /// of all slots.
  static constexpr bool kWhole = kSlots == kTurns && kSlots * kUnits * 8 <= 64 && CLEBSCH_X == 3;
  static constexpr int kAsked = kWhole ? kOfWarp : kAtOnce, kBarriers = kWhole ? 1 : kSlots;
  /// Adjacent rows of a copy: where lines are as long as n, n is a multiple of 8, and rows are one of 16.
  static constexpr int kOfCopy = kPadded ? 1 : kAsked;
  static_assert(kAsked == 8 || kAsked == 16, "which rows of a batch are a multiple of");
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
  /// Begins to copy kAsked of the warp's rows of a part, from kAtOnce turn on, into a slot whose rows all lanes have
  /// read.
  __device__ __forceinline__ void ask(const FusedArguments& a, const Part& part, int turn, int slot) const {
    // A warp's barrier does not keep a bulk copy behind ordinary loads: without the fence it overwrote rows that were
    // still to be read (docs/notebook/triangle.md).
    fence_copies();
    __syncwarp();
    ask_after_fence(a, part, turn, slot);
  }
  __device__ __forceinline__ void ask_after_fence(const FusedArguments& a, const Part& part, int turn, int slot) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (lane == 0) barrier_expect(barriers + 8 * slot, kAsked * kRowBytes);
    __syncwarp();
    if (lane < kAsked / kOfCopy) {
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

  /// Makes the warp's barriers, and begins with the block's first part: nobody else needs to know of them.
  __device__ __forceinline__ void begin(const FusedArguments& a, const Part& part, bool is_there) {
    if (static_cast<int>(threadIdx.x % 32) < kBarriers) barrier_begin(barriers + 8 * (threadIdx.x % 32), 1);
    fence_copies();
    __syncwarp();
    if (is_there) {
      for (int turn = 0; turn < kBarriers; ++turn) ask_after_fence(a, part, turn, turn);
    }
  }
  /// All of the warp's rows at once, where their slots are as many as its turns: what waits is the exchanges between
  /// lanes, behind reads of the tensor cores, so there are few, and those of all rows at the same time. Sums and
  /// squares go together: of numbers less the row's first one, of which the variance loses a factor of kD in accuracy
  /// at most, since no number is further from the mean than sqrt(kD) deviations.
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
    barrier_wait(barriers, ring.parity);
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
      ask_after_fence(a, next, 0, 0);
    }
    ring.parity ^= 1;
#pragma unroll
    for (int slot = 0; slot < kRows; ++slot) {
      const float mean = sums[slot] * (1.0f / kD), of_squares = squares[slot] * (1.0f / kD) - mean * mean,
                  variance = of_squares < 0.0f ? 0.0f : of_squares,  // NaN stays: numbers that overflow
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
  /// Where there is one buffer of rows: all of the warp's rows are normed before it is free, and kept.
  static constexpr bool kKept = CLEBSCH_BUFFERS == 1 && kSlots == kTurns;
  unsigned normed[kKept ? kTurns : 1][kKept ? kUnits : 1][4];
  __device__ __forceinline__ void norm_all(const FusedArguments& a, const Part& next, bool has_next) {
    if constexpr (!kKept) return;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      unsigned lane = threadIdx.x % 32;
      asm volatile("" : "+r"(lane));  // or all that follows from it would be kept in registers from part to part
      const unsigned odd = lane / 4 % 2, t = lane % 4;
      const unsigned char* const row = slots + turn * kSlotBytes + lane / 4 * kRowBytes;
      const unsigned char* const even_units = row + 8 * kXBytes * (t + 4 * odd);
      const unsigned char* const odd_units = row + 8 * kXBytes * (t + 4 - 4 * odd);
      float v[kUnits][8];
      barrier_wait(barriers + 8 * turn, ring.parity);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        Eight eight;
        eight.take((u % 2 == 0 ? even_units : odd_units) + 64 * kXBytes * (u / 2));
        eight.get(v[u]);
      }
      normalise<kUnits, 4>(v, kUnits, a.eps);
      if (has_next) ask(a, next, turn, turn);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
#pragma unroll
        for (int e = 0; e < 4; ++e) normed[turn][u][e] = pack(v[u][2 * e], v[u][2 * e + 1]);
      }
    }
    ring.parity ^= 1;
  }
  __device__ __forceinline__ void write_all(unsigned char* to) const {
    if constexpr (!kKept) return;
    unsigned lane = threadIdx.x % 32;
    asm volatile("" : "+r"(lane));
    const unsigned odd = lane / 4 % 2, t = lane % 4;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      // place_of_row()
      const unsigned at = static_cast<unsigned>(first_row()) + kAtOnce * turn + lane / 4,
                     place = at / 32 * 32 + 8 * (at % 8 / 2) + 2 * (at % 32 / 8) + at % 2;
      unsigned char* const of_even = to + place * 128 + (t + 4 * odd ^ place % 8) * 16;
      unsigned char* const of_odd = to + place * 128 + (t + 4 * odd ^ place % 8 ^ 4) * 16;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        *reinterpret_cast<uint4*>((u % 2 == 0 ? of_even : of_odd) + u / 2 * kRowsBlock) = vector_of(normed[turn][u]);
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
