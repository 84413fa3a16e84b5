#pragma once
// Rows of numbers that a group of lanes reads, 16 bytes a lane at a time (CLEBSCH_VECTOR numbers, or one where rows are
// not multiples of 16 bytes), and sums over the group. Groups of a warp go through their edges in step.
#include "multilinear/attention/kernels/graph_attention.h"
#include "multilinear/attention/kernels/half_tiles.cuh"

// For tools that compile a file as it stands; device_graph.cpp says what a problem has.
#ifndef CLEBSCH_VECTOR
#define CLEBSCH_VECTOR 8
#define CLEBSCH_NORMALISE 1
#define CLEBSCH_SHARED 1
#endif

constexpr int kVector = CLEBSCH_VECTOR;
static_assert(kVector == 1 || kVector * sizeof(number) == 16, "a load is a number or 16 bytes");

#if CLEBSCH_VECTOR == 1
using Word = number;
#elif CLEBSCH_NUMBER == 0
using Word = double2;
#elif CLEBSCH_NUMBER == 1
using Word = float4;
#else
using Word = uint4;
#endif

__device__ __forceinline__ real real_of(number x) {
#if CLEBSCH_NUMBER >= 2
  return unpack(x);
#else
  return x;
#endif
}

__device__ __forceinline__ number number_of(real x) {
#if CLEBSCH_NUMBER >= 2
  return static_cast<number>(float_to_bits(x));
#else
  return x;
#endif
}

/// The numbers of a word, added to x after a multiplication by `factor`.
__device__ __forceinline__ void add_word(real (&x)[kVector], real factor, const Word& word) {
#if CLEBSCH_VECTOR == 1
  x[0] += factor * real_of(word);
#elif CLEBSCH_NUMBER == 0
  x[0] += factor * word.x;
  x[1] += factor * word.y;
#elif CLEBSCH_NUMBER == 1
  x[0] += factor * word.x;
  x[1] += factor * word.y;
  x[2] += factor * word.z;
  x[3] += factor * word.w;
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] += factor * low_of(part_of(word, i));
    x[2 * i + 1] += factor * high_of(part_of(word, i));
  }
#endif
}

__device__ __forceinline__ real dot_word(const real (&x)[kVector], const Word& word) {
#if CLEBSCH_VECTOR == 1
  return x[0] * real_of(word);
#elif CLEBSCH_NUMBER == 0
  return x[0] * word.x + x[1] * word.y;
#elif CLEBSCH_NUMBER == 1
  return x[0] * word.x + x[1] * word.y + x[2] * word.z + x[3] * word.w;
#else
  real sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += x[2 * i] * low_of(part_of(word, i));
    sum += x[2 * i + 1] * high_of(part_of(word, i));
  }
  return sum;
#endif
}

__device__ __forceinline__ Word word_of(const real (&x)[kVector]) {
#if CLEBSCH_VECTOR == 1
  return number_of(x[0]);
#elif CLEBSCH_NUMBER == 0
  return make_double2(x[0], x[1]);
#elif CLEBSCH_NUMBER == 1
  return make_float4(x[0], x[1], x[2], x[3]);
#else
  Word word;
  word.x = number_of(x[0]) | static_cast<unsigned>(number_of(x[1])) << 16;
  word.y = number_of(x[2]) | static_cast<unsigned>(number_of(x[3])) << 16;
  word.z = number_of(x[4]) | static_cast<unsigned>(number_of(x[5])) << 16;
  word.w = number_of(x[6]) | static_cast<unsigned>(number_of(x[7])) << 16;
  return word;
#endif
}

/// What a lane has of a row of kColumns numbers, of which a group of kLanes lanes holds all.
template <int kColumns, int kLanes>
struct Part {
  static constexpr int kWords = (kColumns + kLanes * kVector - 1) / (kLanes * kVector);
  static constexpr int kRegisters = kWords * static_cast<int>(sizeof(Word)) / 4 + (sizeof(Word) < 4 ? kWords : 0);
  __device__ static int column(int word, int lane) { return (word * kLanes + lane) * kVector; }
  __device__ static bool inside(int word, int lane) {
    return (word + 1) * kLanes * kVector <= kColumns || column(word, lane) < kColumns;
  }
};

/// As it lies in memory.
template <int kColumns, int kLanes>
struct Words : Part<kColumns, kLanes> {
  using Part<kColumns, kLanes>::kWords;
  Word word[kWords];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int w = 0; w < kWords; ++w) word[w] = Word{};
  }
  __device__ __forceinline__ void load(const number* row, int lane) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      word[w] = Word{};
      if (this->inside(w, lane)) word[w] = __ldg(reinterpret_cast<const Word*>(row + this->column(w, lane)));
    }
  }
};

/// In the precision of sums.
template <int kColumns, int kLanes>
struct Reals : Part<kColumns, kLanes> {
  using Part<kColumns, kLanes>::kWords;
  real x[kWords][kVector];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[w][i] = 0;
    }
  }
  __device__ __forceinline__ void scale(real factor) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[w][i] *= factor;
    }
  }
  __device__ __forceinline__ void add(real factor, const Words<kColumns, kLanes>& row) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) add_word(x[w], factor, row.word[w]);
  }
  /// This lane's share of a dot product.
  __device__ __forceinline__ real dot(const Words<kColumns, kLanes>& row) const {
    real sum = 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) sum += dot_word(x[w], row.word[w]);
    return sum;
  }
  /// A row that is read once.
  __device__ __forceinline__ void load(const number* row, int lane, bool there) {
    clear();
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if (there && this->inside(w, lane)) {
        add_word(x[w], 1, __ldcs(reinterpret_cast<const Word*>(row + this->column(w, lane))));
      }
    }
  }
  __device__ __forceinline__ void store(number* row, int lane) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if (this->inside(w, lane)) __stcs(reinterpret_cast<Word*>(row + this->column(w, lane)), word_of(x[w]));
    }
  }
};

/// The sum over a group's lanes, in all of them; always in the same order.
template <int kLanes>
__device__ __forceinline__ real group_sum(real value) {
#pragma unroll
  for (int bits = kLanes / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  return value;
}

/// The largest number of the warp's groups, so that all of them make as many steps.
template <int kLanes>
__device__ __forceinline__ int longest(int count) {
#pragma unroll
  for (int bits = 16; bits >= kLanes; bits /= 2) count = max(count, __shfl_xor_sync(0xffffffffu, count, bits));
  return count;
}

/// Rows that a group reads before it uses the first, where each takes so many registers of a lane: 2 KB a warp. With
/// more, fewer warps fit a multiprocessor, and it was slower (docs/notebook/graph_attention.md).
__device__ constexpr int rows_at_once(int registers) {
  return registers <= 2 ? 8 : registers <= 4 ? 4 : registers <= 8 ? 2 : 1;
}

/// The group's number, counted over the grid.
template <int kLanes>
__device__ __forceinline__ long long group_number() {
  return (static_cast<long long>(blockIdx.x) * clebsch::attention::kGraphThreads + threadIdx.x) / kLanes;
}
