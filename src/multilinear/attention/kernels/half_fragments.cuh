#pragma once
// Matrices as the second operand of 16-bit tensor cores: two 16-bit terms a number, scaled by a power of two for every
// eight columns; and products of rows with them, through shared memory.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/half_tiles.cuh"

constexpr int kRowWarps = 8, kRowThreads = 32 * kRowWarps;

/// 2^(target - the exponent of x), within what 32 bits hold.
__device__ __forceinline__ float power_to(int target, float x) {
  const int exponent = min(max(static_cast<int>(__float_as_uint(x) >> 23), 40), 214);
  return __uint_as_float(static_cast<unsigned>(254 + target - exponent) << 23);
}

/// Powers of two of a key head for HalfGradients: the largest |c1 s q| is 8 to 16, of |s^2 t c2| 512 at most.
__device__ __forceinline__ float row_power(const unsigned* largest) { return power_to(3, __uint_as_float(largest[0])); }
__device__ __forceinline__ float form_power(const unsigned* largest) {
  return power_to(4, __uint_as_float(largest[1]));
}

/// Of wide_query_sums, which scales queries by c1 and by c2: the largest |c2 s q| is 2^13 to 2^14.
__device__ __forceinline__ float square_power(const unsigned* largest) {
  return power_to(13, __uint_as_float(largest[2]));
}
/// What sums of queries, scaled by these powers, are to be multiplied with; of_form: those of G.
__device__ __forceinline__ float sum_factor(const unsigned* largest, bool of_form, bool wide) {
  const float factor = 1.0f / row_power(largest);
  if (!of_form) return factor;
  return wide ? 1.0f / square_power(largest) : factor * (factor / form_power(largest));
}

/// The column of a place (0 to 7) of a tile.
__device__ __forceinline__ int column_of(int tile, int place) {
  return 32 * (tile / 4) + 8 * (place / 2) + 2 * (tile % 4) + place % 2;
}

/// The largest of a block's numbers, in all threads.
__device__ __forceinline__ float largest_of(float most, float* shared) {
  for (int bits = 16; bits > 0; bits /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bits));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = most;
  __syncthreads();
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) most = fmaxf(most, shared[w]);
  return most;
}

/// A tile (kInner, 8), in shared memory, as fragments (kInner / 16, 32): high and low terms; `most` is its largest
/// size.
template <int kInner>
__device__ __forceinline__ void write_fragments(uint4* fragments, float* scale, const float* terms, float most) {
  // 2^13 <= largest term < 2^14: far from both ends of a half, and powers of two lose nothing.
  const float up = power_to(13, most);
  if (threadIdx.x == 0) *scale = 1.0f / up;
  for (int at = threadIdx.x; at < kInner / 16 * 32; at += static_cast<int>(blockDim.x)) {
    const int step = at / 32, lane = at % 32, g = lane / 4, t = lane % 4;
    const int row = 32 * (step / 2) + 8 * t + 4 * (step % 2);
    unsigned high[2], low[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float x = terms[(row + 2 * r) * 8 + g] * up, y = terms[(row + 2 * r + 1) * 8 + g] * up;
      high[r] = pack(x, y);
      low[r] = pack(x - low_of(high[r]), y - high_of(high[r]));
    }
    uint4 fragment;
    fragment.x = high[0];
    fragment.y = high[1];
    fragment.z = low[0];
    fragment.w = low[1];
    fragments[at] = fragment;
  }
}

/// The same in the order that products of groups of warps read (wide_tiles.cuh): term, step of 16 inner places, its
/// halves, tile (of kTiles), column, eight places. Of `threads` threads this is number `thread`; terms are term(row,
/// column).
template <int kInner, int kTiles, typename Term>
__device__ __forceinline__ void write_wide_terms(uint4* fragments, float* scale, const Term& term, float most, int tile,
                                                 int thread, int threads) {
  const float up = power_to(13, most);
  if (thread == 0) *scale = 1.0f / up;
  for (int at = thread; at < kInner; at += threads) {
    const int step = at / 16, half = at / 8 % 2, column = at % 8;
    unsigned high[4], low[4];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const int row = 32 * (step / 2) + 8 * pair + 4 * (step % 2) + 2 * half;
      const float x = term(row, column) * up, y = term(row + 1, column) * up;
      high[pair] = pack(x, y);
      low[pair] = pack(x - low_of(high[pair]), y - high_of(high[pair]));
    }
    uint4* to = fragments + ((2 * step + half) * kTiles + tile) * 8 + column;
    uint4 vector;
    vector.x = high[0];
    vector.y = high[1];
    vector.z = high[2];
    vector.w = high[3];
    to[0] = vector;
    vector.x = low[0];
    vector.y = low[1];
    vector.z = low[2];
    vector.w = low[3];
    to[kInner / 8 * kTiles * 8] = vector;
  }
}
/// Of terms (kInner, 8) in shared memory, by a block.
template <int kInner, int kTiles>
__device__ __forceinline__ void write_wide_fragments(uint4* fragments, float* scale, const float* terms, float most,
                                                     int tile) {
  write_wide_terms<kInner, kTiles>(
      fragments, scale, [&](int row, int column) { return terms[row * 8 + column]; }, most, tile,
      static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}

/// Starts the copy of four tiles of fragments into shared memory.
template <int kInner>
__device__ __forceinline__ void fetch_tiles(uint4* slot, const uint4* fragments) {
  for (int at = threadIdx.x; at < 4 * (kInner / 16) * 32; at += kRowThreads)
    copy_vector(slot + at, fragments + at, true);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits for the copies of all threads; all threads are done with what they read before.
__device__ __forceinline__ void await_tiles() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
}

/// Rows 16 i + g and 16 i + 8 + g of a warp, columns of lane t = 0 to 3: 32 c + 8 t .. + 7.
template <int kInner, int kTiles>
struct HalfRows {
  uint4 x[kTiles][2][kInner / 32];

  __device__ __forceinline__ void load(const void* tensor, const long long (&rows)[kTiles][2], int t) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4* row =
            reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(tensor) + rows[i][h] * kInner);
#pragma unroll
        for (int c = 0; c < kInner / 32; ++c) x[i][h][c] = __ldg(row + 4 * c + t);
      }
    }
  }

  /// sums[i] of rows 16 i + g (first two) and 16 i + 8 + g, of a tile whose fragments lie in shared memory.
  __device__ __forceinline__ void multiply(float (&sums)[kTiles][4], const uint4* fragments) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[i][r] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < kInner / 16; ++step) {
      const uint4 both = fragments[32 * step];
      const unsigned high[2] = {both.x, both.y}, low[2] = {both.z, both.w};
      const int part = step % 2 * 2;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const unsigned rows[4] = {part_of(x[i][0][step / 2], part), part_of(x[i][1][step / 2], part),
                                  part_of(x[i][0][step / 2], part + 1), part_of(x[i][1][step / 2], part + 1)};
        multiply_half(sums[i], rows, high);
        multiply_half(sums[i], rows, low);
      }
    }
  }
};

/// A key head's partial sums, `a.chunks` times kSums of them, and its fragments.
template <int kSums>
__device__ __forceinline__ float* partial_of(const clebsch::attention::HalfArguments& a, int head) {
  return a.partial + head * (a.partial_step ? a.partial_step : static_cast<long long>(a.chunks) * kSums);
}
template <int kSums>
__device__ __forceinline__ char* fragments_of(const clebsch::attention::HalfArguments& a, int head) {
  return static_cast<char*>(a.fragments) + head * (a.fragment_step ? a.fragment_step : 4ll * kSums);
}

/// Stores eight numbers of a row of `columns`, place `vector`.
__device__ __forceinline__ void store_vector(void* tensor, long long row, int columns, int vector,
                                             const unsigned (&pairs)[4]) {
  uint4 x;
  x.x = pairs[0];
  x.y = pairs[1];
  x.z = pairs[2];
  x.w = pairs[3];
  reinterpret_cast<uint4*>(static_cast<unsigned short*>(tensor) + row * columns)[vector] = x;
}

/// 1 / norm of a query from its quadratic form z and |q|^2, 0 where that is nothing; `writes`: norm and flag too. Sets
/// `flagged` for a query that needs double precision.
__device__ __forceinline__ float finish_row(const clebsch::attention::HalfArguments& a, float z, float squares,
                                            float trace, int nonzero, bool writes, long long row, bool& flagged) {
  // Also what is too small or too large for 32 bits, and what is no number.
  const bool fine = z >= clebsch::attention::kGuard * trace * squares / static_cast<float>(a.shape.d) && z > 1e-30f &&
                    z < 1e37f && trace < 1e37f;
  const bool mine = nonzero && !fine;
  const float norm = sqrtf(fmaxf(z, 0.0f) + a.eps);
  if (writes) {
    a.norm[row] = norm;
    if (a.flags) a.flags[row] = mine ? 1 : 0;
    flagged = flagged || mine;
  }
  return norm > 0.0f ? 1.0f / norm : 0.0f;
}

/// Flag of a key head whose keys have multiplicities other than 0 and 1.
constexpr int kOtherWeights = 2;

/// A warp's flagged queries flag their key head: one store, since thousands to one place would wait for each other.
/// kOtherWeights stays.
__device__ __forceinline__ void flag_head(int* flag, bool flagged) {
  if (__any_sync(0xffffffffu, flagged) && threadIdx.x % 32 == 0 && *flag == 0) *flag = 1;
}

/// Multiplicities of a sequence's keys: rows with 0 are left out of sums of 16-bit products. Heads with others than 0
/// and 1 are done again in double precision.
struct KeyWeights {
  const unsigned short* of_row = nullptr;  ///< null: ones

  __device__ __forceinline__ KeyWeights() {}
  __device__ __forceinline__ KeyWeights(const void* multiplicity, long long row)
      : of_row(multiplicity ? static_cast<const unsigned short*>(multiplicity) + row : nullptr) {}

  /// Whether a row counts; sets `others` where its multiplicity is neither 0 nor 1.
  __device__ __forceinline__ bool keeps(long long row, bool& others) const {
    if (!of_row) return true;
    const unsigned bits = __ldg(of_row + row);
    others = others || ((bits & 0x7fffu) != 0 && bits != (CLEBSCH_NUMBER == 2 ? 0x3c00u : 0x3f80u));
    return (bits & 0x7fffu) != 0;
  }
};
