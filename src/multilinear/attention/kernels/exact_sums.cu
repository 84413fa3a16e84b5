// Sums over keys and over queries in double precision on tensor cores; for every number type. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"
#include "multilinear/sampling/kernels/matrix_product.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
/// A block has 64 x 64 of the sums, a warp 32 x 32, and takes 16 rows at a time.
constexpr int kBlock = 64, kSteps = 16, kStride = kBlock + 4, kThreads = 128;
constexpr int kAcross = (kAll + kBlock - 1) / kBlock, kTiles = (kD + kBlock - 1) / kBlock * kAcross;

/// Numbers that a thread reads at once: 16 bytes, or less where rows are not multiples of them.
constexpr int kBoth = kD | kDv, kMost = 16 / static_cast<int>(sizeof(number));
constexpr int kUnit = kBoth % kMost == 0 ? kMost : kBoth % 4 == 0 && kMost > 4 ? 4 : kBoth % 2 == 0 ? 2 : 1;
struct alignas(kUnit * sizeof(number)) Unit {
  number x[kUnit];
};
constexpr int kEach = kSteps * kBlock / kUnit / kThreads;  // units of a stage for a thread, left and right
static_assert(kEach >= 1 && kBlock % kUnit == 0, "a stage is a whole number of units for every thread");

/// What a thread has read of a stage and not yet written into shared memory.
struct Waiting {
  Unit left[kEach], right[kEach];
  double one[kEach], two[kEach];  // factors of the left columns of B and of the right ones; 0: no row
};

/// Sums of the left columns (row_block and on) times columns (column_block and on) of [left, right], over runs of rows.
struct SumTile {
  int row_block, column_block;
  double sums[2][4][4] = {};

  /// Rows `row` to end - 1. kOfQueries: factors c2 and c1; else `weights` (null: ones) of the left columns.
  template <bool kOfQueries>
  __device__ __forceinline__ void read(Waiting& to, const number* first, const number* second, const double* factors,
                                       const number* weights, long long row, long long end) const {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = threadIdx.x + e * kThreads, step = at / (kBlock / kUnit), column = at % (kBlock / kUnit) * kUnit;
      const int i = row_block + column, j = column_block + column;
      to.left[e] = to.right[e] = {};
      to.one[e] = to.two[e] = 0.0;
      const long long mine = row + step;
      if (mine >= end) continue;
      if (i < kD) to.left[e] = *reinterpret_cast<const Unit*>(first + mine * kD + i);
      if (j < kD) {
        to.right[e] = *reinterpret_cast<const Unit*>(first + mine * kD + j);
      } else if (j < kAll) {
        to.right[e] = *reinterpret_cast<const Unit*>(second + mine * kDv + j - kD);
      }
      to.one[e] = kOfQueries ? factors[2 * mine + 1] : weights ? to_double(weights[mine]) : 1.0;
      to.two[e] = kOfQueries ? factors[2 * mine] : 1.0;
    }
  }

  template <bool kOfQueries>
  __device__ __forceinline__ void write(double* left, double* right, const Waiting& from) const {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = threadIdx.x + e * kThreads, step = at / (kBlock / kUnit), column = at % (kBlock / kUnit) * kUnit;
#pragma unroll
      for (int u = 0; u < kUnit; ++u) {
        const bool of_left = column_block + column + u < kD;
        left[step * kStride + column + u] = to_double(from.left[e].x[u]) * (kOfQueries ? 1.0 : from.one[e]);
        right[step * kStride + column + u] = to_double(from.right[e].x[u]) * (of_left ? from.one[e] : from.two[e]);
      }
    }
  }

  __device__ __forceinline__ void multiply(const double* left, const double* right) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const double *of_rows = left + t * kStride + warp / 2 * 32 + g,
                 *of_columns = right + t * kStride + warp % 2 * 32 + g;
#pragma unroll
    for (int step = 0; step < kSteps; step += 8) {
      double a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) a[i][r] = of_rows[(step + 4 * (r / 2)) * kStride + 16 * i + 8 * (r % 2)];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const double b[2] = {of_columns[step * kStride + 8 * j], of_columns[(step + 4) * kStride + 8 * j]};
        multiply_large_tile(sums[0][j], a[0], b);
        multiply_large_tile(sums[1][j], a[1], b);
      }
    }
  }

  __device__ __forceinline__ void store(double* to) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int row = row_block + warp / 2 * 32 + 16 * i + lane / 4 + 8 * (r / 2);
          const int column = column_block + warp % 2 * 32 + 8 * j + 2 * (lane % 4) + r % 2;
          if (row < kD && column < kAll) to[row * kAll + column] = sums[i][j][r];
        }
      }
    }
  }
};

template <bool kOfQueries>
__device__ __forceinline__ void sums_of_rows(const SumArguments& a) {
  __shared__ double left[2][kSteps * kStride], right[2][kSteps * kStride];
  const int tile = blockIdx.x % kTiles, chunk = blockIdx.x / kTiles % a.chunks, place = blockIdx.x / kTiles / a.chunks;
  const int group = a.shape.heads / a.shape.key_heads;
  int sequence = place / a.shape.key_heads, key_head = place % a.shape.key_heads, runs = 1, head = key_head;
  Rows mine;
  if (a.rows > 0) {
    const CausalChunk of_slot = causal_chunk(a.shape, a.rows, chunk);
    sequence = of_slot.sequence;
    key_head = place;
    mine = {of_slot.first, of_slot.count};
    if (kOfQueries) runs = group;
    head = kOfQueries ? key_head * group : key_head;
  } else if (kOfQueries) {
    const int chunks = a.chunks / group;
    head = key_head * group + chunk / chunks;
    mine = chunk_of(query_rows(a.shape, sequence, head).count, chunks, chunk % chunks, kSteps);
  } else {
    mine = chunk_of(key_rows(a.shape, sequence, head).count, a.chunks, chunk, kSteps);
  }
  if (a.head_flags && !a.head_flags[sequence * a.shape.key_heads + key_head]) return;
  SumTile sums;
  sums.row_block = tile / kAcross * kBlock;
  sums.column_block = tile % kAcross * kBlock;
  const number* weights = static_cast<const number*>(a.multiplicity);
  for (int run = 0; run < runs; ++run) {
    const Rows all = kOfQueries ? query_rows(a.shape, sequence, head + run) : key_rows(a.shape, sequence, head);
    const number* first = static_cast<const number*>(kOfQueries ? a.q : a.k) + all.first * kD;
    const number* second = static_cast<const number*>(kOfQueries ? a.grad : a.v) + all.first * kDv;
    const double* factors = kOfQueries ? a.coefficients + 2 * all.first : nullptr;
    const number* of_sequence = weights ? weights + multiplicity_row(a.shape, sequence) : nullptr;
    const long long end = mine.first + mine.count;
    Waiting waiting;
    sums.read<kOfQueries>(waiting, first, second, factors, of_sequence, mine.first, end);
    int buffer = 0;
    for (long long row = mine.first; row < end; row += kSteps, buffer ^= 1) {
      sums.write<kOfQueries>(left[buffer], right[buffer], waiting);
      __syncthreads();  // nobody is still in the other buffer when it is written next
      sums.read<kOfQueries>(waiting, first, second, factors, of_sequence, row + kSteps, end);
      sums.multiply(left[buffer], right[buffer]);
    }
    __syncthreads();
  }
  sums.store(static_cast<double*>(a.partial) + (static_cast<long long>(place) * a.chunks + chunk) * kD * kAll);
}

/// Grid: key heads of all sequences (causal: key heads) x chunks x tiles.
extern "C" __global__ void __launch_bounds__(kThreads) sums_of_keys(SumArguments a) { sums_of_rows<false>(a); }
extern "C" __global__ void __launch_bounds__(kThreads) sums_of_queries(SumArguments a) { sums_of_rows<true>(a); }

/// Chunks added in a fixed order, a quarter of them by every group of 64 threads. Grid: key heads x ceil(d (d + dv) /
/// 64).
extern "C" __global__ void __launch_bounds__(256) add_chunks(SumArguments a) {
  constexpr int kBlocks = (kD * kAll + 63) / 64;
  __shared__ double parts[4][64];
  const int head = blockIdx.x / kBlocks, group = threadIdx.x / 64, mine = threadIdx.x % 64;
  const int at = blockIdx.x % kBlocks * 64 + mine;
  if (a.head_flags && !a.head_flags[head]) return;
  const long long size = kD * kAll;
  const double* from = static_cast<const double*>(a.partial) + static_cast<long long>(head) * a.chunks * size + at;
  double sum = 0.0;
  if (at < size) {
#pragma unroll 8
    for (int chunk = group; chunk < a.chunks; chunk += 4) sum += __ldcg(from + chunk * size);
  }
  parts[group][mine] = sum;
  __syncthreads();
  if (group == 0 && at < size)
    a.sums[head * size + at] = (parts[0][mine] + parts[1][mine]) + (parts[2][mine] + parts[3][mine]);
}

/// In place of a chunk's sums those of all chunks of its sequence before it, or behind it. Grid: key heads of all
/// sequences x ceil(d (d + dv) / 64).
extern "C" __global__ void __launch_bounds__(64) causal_add(SumArguments a) {
  constexpr int kBlocks = (kD * kAll + 63) / 64, kTogether = 8;
  const int place = blockIdx.x / kBlocks, at = blockIdx.x % kBlocks * 64 + threadIdx.x;
  const int sequence = place / a.shape.key_heads, key_head = place % a.shape.key_heads;
  if (at >= kD * kAll || (a.head_flags && !a.head_flags[place])) return;
  const long long size = kD * kAll;
  const Rows chunks = causal_chunks(a.shape, a.rows, sequence);
  double* sums =
      static_cast<double*>(a.partial) + (static_cast<long long>(key_head) * a.chunks + chunks.first) * size + at;
  double running = 0.0;
  for (long long from = 0; from < chunks.count; from += kTogether) {
    double* to[kTogether];
    double x[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const long long chunk = a.backwards ? chunks.count - 1 - from - i : from + i;
      to[i] = sums + chunk * size;
      x[i] = from + i < chunks.count ? *to[i] : 0.0;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (from + i < chunks.count) *to[i] = running;
      running += x[i];
    }
  }
}
