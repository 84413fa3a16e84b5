#pragma once
// Tiles of 16-bit rows for streamed attention on tensor cores. Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV,
// multiples of 16 up to 128, and those of stream_pairs.cuh.
//
// Rows that pass by are stored in groups of 32 so that a lane (t = lane % 4) of a product's result has eight that
// follow each other: place 8 n + 2 t + j of a group, j = 0 or 1, is row 8 t + 2 n + j.
#include "multilinear/attention/kernels/half_tiles.cuh"
#include "multilinear/attention/kernels/stream_pairs.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV;
/// Rows are 16 bytes longer in shared memory, so that ldmatrix meets all banks.
constexpr int kStrideD = kD + 8, kStrideDv = kDv + 8;

/// Four tiles of 8 x 8 numbers from shared memory: lane 8 i + r says where row r of tile i begins, and gets numbers
/// (g, 2 t) and (g, 2 t + 1) of every tile, g = lane / 4.
__device__ __forceinline__ void load_plain(unsigned (&to)[4], const unsigned short* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}

/// The row of a group that a place holds.
__device__ __forceinline__ int row_of_place(int place) { return place % 8 / 2 * 8 + place / 8 * 2 + place % 2; }

/// Starts copies of rows from .. from + kCount into shared memory in the order of places, zeros from `end` on.
template <int kCount, int kColumns, int kThreads>
__device__ __forceinline__ void copy_rows(unsigned short* to, const unsigned short* rows, long long from,
                                          long long end) {
  constexpr int kVectors = kColumns / 8;
#pragma unroll
  for (int at = threadIdx.x; at < kCount * kVectors; at += kThreads) {
    const int place = at / kVectors, vector = at % kVectors;
    const long long row = from + place / 32 * 32 + row_of_place(place % 32);
    const bool there = row < end;
    copy_vector(to + place * (kColumns + 8) + 8 * vector, rows + (there ? row : 0) * kColumns + 8 * vector, there);
  }
}

/// Rows of a warp as the first operand: tile (16, 16) `step` of 16 rows; lane (g, t) has rows g and g + 8.
template <int kColumns>
struct OwnRows {
  unsigned x[kColumns / 16][4];

  /// Rows `row` and `row + 8` of the tensor where they are, else zeros.
  __device__ __forceinline__ void load(const void* tensor, long long row, bool first, bool second, int t) {
    const auto* from = static_cast<const unsigned short*>(tensor) + row * kColumns + 2 * t;
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const bool there = r % 2 == 0 ? first : second;
        const auto* at = from + r % 2 * 8 * kColumns + 16 * step + r / 2 * 8;
        x[step][r] = there ? __ldg(reinterpret_cast<const unsigned*>(at)) : 0u;
      }
    }
  }
};

/// sums (16 rows, 8 kTiles places) = own others^T; `others` are places of shared memory, a multiple of 16.
template <int kColumns, int kTiles, int kRowTiles>
__device__ __forceinline__ void inner_products(float (&sums)[kRowTiles][kTiles][4],
                                               const OwnRows<kColumns> (&own)[kRowTiles],
                                               const unsigned short* others) {
  static_assert(kTiles % 2 == 0, "two tiles of columns are loaded at once");
  const int lane = threadIdx.x % 32;
  const unsigned short* from = others + (lane / 16 * 8 + lane % 8) * (kColumns + 8) + lane / 8 % 2 * 8;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[i][n][r] = 0.0f;
    }
  }
#pragma unroll
  for (int step = 0; step < kColumns / 16; ++step) {
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      unsigned both[4];
      load_plain(both, from + 8 * n * (kColumns + 8) + 16 * step);
      const unsigned first[2] = {both[0], both[1]}, second[2] = {both[2], both[3]};
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        multiply_half(sums[i][n], own[i].x[step], first);
        multiply_half(sums[i][n + 1], own[i].x[step], second);
      }
    }
  }
}

/// sums (16 rows, kColumns) += weights (16 rows, 16 places) others (16 places, kColumns).
template <int kColumns, int kRowTiles>
__device__ __forceinline__ void add_product(float (&sums)[kRowTiles][kColumns / 8][4],
                                            const unsigned (&weights)[kRowTiles][4], const unsigned short* others) {
  const int lane = threadIdx.x % 32;
  const unsigned short* from = others + (lane / 8 % 2 * 8 + lane % 8) * (kColumns + 8) + lane / 16 * 8;
#pragma unroll
  for (int pair = 0; pair < kColumns / 16; ++pair) {
    unsigned both[4];
    load_transposed(both, from + 16 * pair);
    const unsigned first[2] = {both[0], both[1]}, second[2] = {both[2], both[3]};
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      multiply_half(sums[i][2 * pair], weights[i], first);
      multiply_half(sums[i][2 * pair + 1], weights[i], second);
    }
  }
}

/// The first operand from a result: tiles n and n + 1 of eight columns.
__device__ __forceinline__ void as_operand(unsigned (&to)[4], const float (&left)[4], const float (&right)[4]) {
  to[0] = pack(left[0], left[1]);
  to[1] = pack(left[2], left[3]);
  to[2] = pack(right[0], right[1]);
  to[3] = pack(right[2], right[3]);
}

/// The sum, and the largest, over the four lanes of a row.
__device__ __forceinline__ float of_quad(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float largest_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/// Eight 16-bit numbers.
struct Eight {
  unsigned x[4];
  __device__ __forceinline__ float at(int place) const {
    return place % 2 == 0 ? low_of(x[place / 2]) : high_of(x[place / 2]);
  }
  __device__ __forceinline__ void set(const uint4& vector) {
    x[0] = vector.x;
    x[1] = vector.y;
    x[2] = vector.z;
    x[3] = vector.w;
  }
  __device__ __forceinline__ void clear() { x[0] = x[1] = x[2] = x[3] = 0u; }
};

/// Mask and bias of eight pairs, zeros for pairs that are not there.
struct EightPairs {
  Eight bias, mask;
  unsigned bytes[2];
  unsigned there;  ///< bits, of softmax without a mask

  /// Query i and keys j .. j + 7 of `keys`.
  __device__ __forceinline__ void read(const StreamArguments& a, const HeadPairs& head, long long i, long long j,
                                       long long keys) {
    if (kMask == kNoMask && kNorm == kSoftmax) {
      const long long left = keys - j;
      there = left >= 8 ? 0xffu : left <= 0 ? 0u : (1u << left) - 1u;
    }
    if (a.vectors) {
      const bool in = j < keys;
      if (kBias) {
        bias.clear();
        const auto* from = static_cast<const number*>(a.bias.data) + head.bias + i * a.bias.of_query + j;
        if (in) bias.set(__ldg(reinterpret_cast<const uint4*>(from)));
      }
      if (kMask == kBoolMask) {
        bytes[0] = bytes[1] = 0u;
        const auto* from = static_cast<const unsigned char*>(a.mask.data) + head.mask + i * a.mask.of_query + j;
        if (in) {
          const int2 both = __ldg(reinterpret_cast<const int2*>(from));
          bytes[0] = static_cast<unsigned>(both.x);
          bytes[1] = static_cast<unsigned>(both.y);
        }
      }
      if (kMask == kNumberMask) {
        mask.clear();
        const auto* from = static_cast<const number*>(a.mask.data) + head.mask + i * a.mask.of_query + j;
        if (in) mask.set(__ldg(reinterpret_cast<const uint4*>(from)));
      }
      return;
    }
    bias.clear();
    mask.clear();
    bytes[0] = bytes[1] = 0u;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (j + e < keys) set(a, head, e, i, j + e);
    }
  }
  /// Key j and queries i .. i + 7 of `queries`.
  __device__ __forceinline__ void read_down(const StreamArguments& a, const HeadPairs& head, long long i, long long j,
                                            long long queries) {
    if (kMask == kNoMask && kNorm == kSoftmax) {
      const long long left = queries - i;
      there = left >= 8 ? 0xffu : left <= 0 ? 0u : (1u << left) - 1u;
    }
    bias.clear();
    mask.clear();
    bytes[0] = bytes[1] = 0u;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (i + e < queries) set(a, head, e, i + e, j);
    }
  }
  /// Bytes of a mask from places 0, 1, 8, 9, 16 .. of a tile, `stride` bytes apart.
  __device__ __forceinline__ void read_tile(const unsigned char* tile, int stride) {
    bytes[0] = bytes[1] = 0u;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      bytes[e / 4] |= static_cast<unsigned>(tile[(e / 2 * 8 + e % 2) * stride]) << e % 4 * 8;
    }
  }
  __device__ __forceinline__ bool seen(int place) const {
    if (kMask == kBoolMask) return (bytes[place / 4] >> place % 4 * 8 & 0xffu) != 0u;
    return kNorm == kSoftmax ? (there >> place & 1u) != 0u : true;
  }
  /// The weight of a number, of the L2 norm.
  __device__ __forceinline__ float masked(int place, float x) const {
    if (kMask == kBoolMask) return seen(place) ? x : 0.0f;
    return kMask == kNumberMask ? mask.at(place) * x : x;
  }
  __device__ __forceinline__ float mask_of(int place) const {
    if (kMask == kNumberMask) return mask.at(place);
    return seen(place) ? 1.0f : 0.0f;
  }

 private:
  __device__ __forceinline__ void set(const StreamArguments& a, const HeadPairs& head, int e, long long i,
                                      long long j) {
    if (kBias) bias.x[e / 2] |= static_cast<unsigned>(bias_number(a, head, i, j)) << e % 2 * 16;
    if (kMask == kBoolMask) bytes[e / 4] |= (mask_byte(a, head, i, j) ? 1u : 0u) << e % 4 * 8;
    if (kMask == kNumberMask) mask.x[e / 2] |= static_cast<unsigned>(mask_number(a, head, i, j)) << e % 2 * 16;
  }
};

/// Multiplicities of keys j .. j + 7.
__device__ __forceinline__ Eight eight_multiplicities(const StreamArguments& a, const HeadPairs& head, long long j,
                                                      long long keys) {
  Eight found;
  found.clear();
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (j + e < keys) found.x[e / 2] |= static_cast<unsigned>(multiplicity_number(a, head, j + e)) << e % 2 * 16;
  }
  return found;
}

/// An upper bound of log2 of a number that is not negative.
__device__ __forceinline__ int above(float x) {
  return min(max(static_cast<int>(__float_as_uint(x) >> 23) - 126, -126), 128);
}
/// 2^x, for -126 <= x <= 127.
__device__ __forceinline__ float two_to(int x) { return __uint_as_float(static_cast<unsigned>(x + 127) << 23); }

/// Exponents of a power of two for a query: with it weights of the L2 norm stay below 2^15 and so within a half, and so
/// do the query's own numbers. `keys` is the largest |m k|; head sizes are at most 2^7.
__device__ __forceinline__ int weight_exponent(const StreamArguments& a, float query, float keys) {
  int most = above(query) + above(keys) + 7;
  if (kBias) most = max(most, above(__ldg(a.largest + 1))) + 1;
  if (kMask == kNumberMask) most += max(above(__ldg(a.largest)), 0);
  return min(max(min(15 - most, 15 - above(query)), -100), 100);
}

/// Both numbers of a pair times a factor.
__device__ __forceinline__ unsigned times(unsigned pair, float factor) {
  return pack(low_of(pair) * factor, high_of(pair) * factor);
}
/// The largest size of a pair's numbers.
__device__ __forceinline__ float largest_of_pair(unsigned pair) {
  return fmaxf(fabsf(low_of(pair)), fabsf(high_of(pair)));
}

/// Bounds of a key head (StreamArguments::bounds).
__device__ __forceinline__ float bound_of(const StreamArguments& a, int sequence, int key_head, int which) {
  return __uint_as_float(__ldg(a.bounds + 4 * (sequence * a.shape.key_heads + key_head) + which));
}
