// G = K^T K and M = K^T V of 16-bit numbers, and their gradients, on tensor cores, with sums of 32 bits. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are multiples of 32 up to 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/half_fragments.cuh"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv, kTiles = kAll / 8;
constexpr int kAcross = 4, kDown = kD == 128 ? 4 : 2, kThreads = 32 * kAcross * kDown;  // warps over columns, rows
constexpr int kRowTiles = (kD / 16 + kDown - 1) / kDown, kPairs = (kAll / 16 + kAcross - 1) / kAcross;
/// Keys of a stage, in a ring of stages; rows are 16 bytes longer so that ldmatrix meets all banks.
constexpr int kKeys = kAll <= 64 ? 64 : kAll <= 128 ? 32 : 16, kStages = kAll == 256 ? 5 : 4;
constexpr int kStrideK = kD + 8, kStrideV = kDv + 8, kStage = kKeys * (kStrideK + kStrideV);

/// Copies rows from .. from + kKeys into a stage, zeros from `end` on.
__device__ __forceinline__ void copy_keys(unsigned short* stage, const unsigned short* k, const unsigned short* v,
                                          long long from, long long end, const KeyWeights& weights, bool& others) {
  constexpr int kVectorsK = kD / 8, kVectors = kAll / 8;
#pragma unroll 2
  for (int at = threadIdx.x; at < kKeys * kVectors; at += kThreads) {
    const int key = at / kVectors, vector = at % kVectors;
    const bool there = from + key < end && weights.keeps(from + key, others);
    const long long row = there ? from + key : 0;
    if (vector < kVectorsK) {
      copy_vector(stage + key * kStrideK + 8 * vector, k + row * kD + 8 * vector, there);
    } else {
      const int column = 8 * (vector - kVectorsK);
      copy_vector(stage + kKeys * kStrideK + key * kStrideV + column, v + row * kDv + column, there);
    }
  }
}

/// Factors of rows in shared memory, which a thread reads a step before it writes them.
struct RowFactors {
  const float* coefficients = nullptr;  // of row 0
  int step = 2;                         // floats to the next row's
  float by = 1.0f, by_form = 1.0f;

  __device__ __forceinline__ float2 read(long long from, long long end) const {
    const long long row = from + threadIdx.x;
    if (threadIdx.x >= kKeys || row >= end) return make_float2(0.0f, 0.0f);
    const float2 c = __ldg(reinterpret_cast<const float2*>(coefficients + row * step));
    return c.x == 0.0f ? make_float2(0.0f, 0.0f) : make_float2(c.x * by, by * (c.y / c.x) * by_form);
  }
};

/// Both numbers of a pair times theirs.
__device__ __forceinline__ unsigned scaled(unsigned pair, float x, float y) {
  return pack(low_of(pair) * x, high_of(pair) * y);
}

/// Sums over rows `mine` of `left` (d) times [left, right] (d + dv); kScaled: by the rows' factors. True where a thread
/// saw weights other than 0 and 1.
template <bool kScaled>
__device__ __forceinline__ bool sums_of_rows(float* to, const unsigned short* k, const unsigned short* v, Rows mine,
                                             const RowFactors& factors, const KeyWeights& weights) {
  __shared__ __align__(16) unsigned short ring[kStages * kStage];
  __shared__ float2 factor_ring[kScaled ? kStages * kKeys : 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int across = warp % kAcross, down = warp / kAcross;
  const long long end = mine.first + mine.count;
  const int stages = static_cast<int>((mine.count + kKeys - 1) / kKeys);
  bool others = false;

  float sums[kRowTiles][2 * kPairs][4] = {};
  float2 waiting = make_float2(0.0f, 0.0f);
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < stages) copy_keys(ring + s * kStage, k, v, mine.first + s * kKeys, end, weights, others);
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (kScaled) {
      if (s > 0 && threadIdx.x < kKeys) factor_ring[(s - 1) * kKeys + threadIdx.x] = waiting;
      waiting = factors.read(mine.first + s * kKeys, end);
    }
  }
  for (int s = 0; s < stages; ++s) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
    const int next = s + kStages - 1;
    if (next < stages) {
      copy_keys(ring + next % kStages * kStage, k, v, mine.first + next * kKeys, end, weights, others);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (kScaled) {
      if (threadIdx.x < kKeys) factor_ring[(next - 1) % kStages * kKeys + threadIdx.x] = waiting;
      waiting = factors.read(mine.first + next * kKeys, end);
    }
    const unsigned short* keys = ring + s % kStages * kStage;
    const unsigned short* values = keys + kKeys * kStrideK;
#pragma unroll
    for (int step = 0; step < kKeys; step += 16) {
      unsigned left[kRowTiles][4];
      float2 f[4] = {};  // of rows 2 t, 2 t + 1 and eight on
      if (kScaled) {
        const float2* of_step = factor_ring + s % kStages * kKeys + step + 2 * t;
        f[0] = of_step[0];
        f[1] = of_step[1];
        f[2] = of_step[8];
        f[3] = of_step[9];
      }
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const int tile = kRowTiles * down + i;
        if (tile >= kD / 16) continue;
        load_transposed(left[i], keys + (step + lane / 16 * 8 + lane % 8) * kStrideK + 16 * tile + lane / 8 % 2 * 8);
        if (kScaled) {
          left[i][0] = scaled(left[i][0], f[0].x, f[1].x);
          left[i][1] = scaled(left[i][1], f[0].x, f[1].x);
          left[i][2] = scaled(left[i][2], f[2].x, f[3].x);
          left[i][3] = scaled(left[i][3], f[2].x, f[3].x);
        }
      }
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int pair = across + kAcross * j, key = step + lane / 8 % 2 * 8 + lane % 8, column = lane / 16 * 8;
        if (pair >= kAll / 16) continue;
        unsigned right[4];
        load_transposed(right, pair < kD / 16 ? keys + key * kStrideK + 16 * pair + column
                                              : values + key * kStrideV + 16 * pair - kD + column);
        if (kScaled && pair < kD / 16) {
          right[0] = scaled(right[0], f[0].y, f[1].y);
          right[1] = scaled(right[1], f[2].y, f[3].y);
          right[2] = scaled(right[2], f[0].y, f[1].y);
          right[3] = scaled(right[3], f[2].y, f[3].y);
        }
        const unsigned first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          if (kRowTiles * down + i >= kD / 16) continue;
          multiply_half(sums[i][2 * j], left[i], first);
          multiply_half(sums[i][2 * j + 1], left[i], second);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kPairs; j += 2) {
      const int pair = across + kAcross * (j / 2), n = 2 * pair, row = 16 * (kRowTiles * down + i) + g;
      if (pair >= kAll / 16 || row >= kD) continue;
      // Columns 8 n + 2 t and the next are places 2 (n % 4) and the next of tile 4 (n / 4) + t; those of n + 1 follow.
      float* place = to + (static_cast<long long>(n / 4 * 4 + t) * kD + row) * 8 + 2 * (n % 4);
      const float(&x)[4] = sums[i][j], (&y)[4] = sums[i][j + 1];
      *reinterpret_cast<float4*>(place) = make_float4(x[0], x[1], y[0], y[1]);
      *reinterpret_cast<float4*>(place + 64) = make_float4(x[2], x[3], y[2], y[3]);
    }
  }
  return others;
}

/// Sums of a chunk of keys. Grid: key heads x chunks.
extern "C" __global__ void __launch_bounds__(kThreads) half_sums(HalfArguments a) {
  const int head = blockIdx.x / a.chunks, chunk = blockIdx.x % a.chunks;
  const int sequence = head / a.shape.key_heads;
  const Rows all = key_rows(a.shape, sequence, head % a.shape.key_heads);
  if (!a.multiplicity && chunk == 0 && threadIdx.x == 0) a.head_flags[head] = 0;
  const bool others = sums_of_rows<false>(a.partial + static_cast<long long>(blockIdx.x) * kD * kAll,
                                          static_cast<const unsigned short*>(a.k) + all.first * kD,
                                          static_cast<const unsigned short*>(a.v) + all.first * kDv,
                                          chunk_of(all.count, a.chunks, chunk, kKeys), {},
                                          KeyWeights(a.multiplicity, multiplicity_row(a.shape, sequence)));
  if (others) a.head_flags[head] = kOtherWeights;
}

/// Causal: of a chunk of a sequence. Grid: key heads x chunks.
extern "C" __global__ void __launch_bounds__(kThreads) causal_half_sums(HalfArguments a) {
  const int key_head = blockIdx.x / a.chunks, slot = blockIdx.x % a.chunks;
  const CausalChunk chunk = causal_chunk(a.shape, a.rows, slot);
  const Rows all = key_rows(a.shape, chunk.sequence, key_head);
  if (!a.multiplicity && blockIdx.x == 0) {
    for (int at = threadIdx.x; at < a.shape.sequences * a.shape.key_heads; at += kThreads) a.head_flags[at] = 0;
  }
  const bool others =
      sums_of_rows<false>(a.partial + static_cast<long long>(blockIdx.x) * kD * kAll,
                          static_cast<const unsigned short*>(a.k) + all.first * kD,
                          static_cast<const unsigned short*>(a.v) + all.first * kDv, {chunk.first, chunk.count}, {},
                          KeyWeights(a.multiplicity, multiplicity_row(a.shape, chunk.sequence)));
  if (others) a.head_flags[chunk.sequence * a.shape.key_heads + key_head] = kOtherWeights;
}

/// The same of queries. A key head's chunks are those of its heads one after another. Grid: key heads x chunks.
extern "C" __global__ void __launch_bounds__(kThreads) half_query_sums(HalfGradients a) {
  const int place = blockIdx.x / a.chunks, chunk = blockIdx.x % a.chunks, group = a.shape.heads / a.shape.key_heads;
  const int chunks = a.chunks / group, head = place % a.shape.key_heads * group + chunk / chunks;
  const Rows all = query_rows(a.shape, place / a.shape.key_heads, head);
  RowFactors factors;
  factors.coefficients = a.coefficients + a.coefficient_step * all.first;
  factors.step = a.coefficient_step;
  factors.by = row_power(a.largest + 3 * place);
  factors.by_form = form_power(a.largest + 3 * place);
  sums_of_rows<true>(a.partial + static_cast<long long>(blockIdx.x) * kD * kAll,
                     static_cast<const unsigned short*>(a.q) + all.first * kD,
                     static_cast<const unsigned short*>(a.grad) + all.first * kDv,
                     chunk_of(all.count, chunks, chunk % chunks, kKeys), factors, {});
}

/// Causal: of a chunk of a sequence. Grid: heads x chunks.
extern "C" __global__ void __launch_bounds__(kThreads) causal_half_query_sums(HalfGradients a) {
  const int head = blockIdx.x / a.chunks, slot = blockIdx.x % a.chunks;
  const CausalChunk chunk = causal_chunk(a.shape, a.rows, slot);
  const int place = chunk.sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  const Rows all = query_rows(a.shape, chunk.sequence, head);
  RowFactors factors;
  factors.coefficients = a.coefficients + a.coefficient_step * all.first;
  factors.step = a.coefficient_step;
  factors.by = row_power(a.largest + 3 * place);
  factors.by_form = form_power(a.largest + 3 * place);
  sums_of_rows<true>(a.partial + static_cast<long long>(blockIdx.x) * kD * kAll,
                     static_cast<const unsigned short*>(a.q) + all.first * kD,
                     static_cast<const unsigned short*>(a.grad) + all.first * kDv, {chunk.first, chunk.count}, factors,
                     {});
}

constexpr int kMostAddThreads = 1024, kVectors = 2 * kD, kMostGroups = kMostAddThreads / kVectors;

/// Adds the chunks in a fixed order and splits a tile's sums into two 16-bit terms. Grid: key heads x tiles; blocks of
/// 256 threads for a few chunks, of kMostAddThreads for many.
extern "C" __global__ void __launch_bounds__(kMostAddThreads) half_add(HalfArguments a) {
  __shared__ double parts[kMostGroups * kD * 8];
  __shared__ float terms[kD * 8], largest[kMostAddThreads / 32];
  const int threads = static_cast<int>(blockDim.x), groups = threads / kVectors;
  const int head = blockIdx.x / kTiles, tile = blockIdx.x % kTiles;
  const float* from = partial_of<kD * kAll>(a, head) + tile * kD * 8;
  const int group = threadIdx.x / kVectors, vector = threadIdx.x % kVectors;
  if (group < groups) {
    double sum[4] = {};
#pragma unroll 8
    for (int chunk = group; chunk < a.chunks; chunk += groups) {
      const float4 x =
          __ldg(reinterpret_cast<const float4*>(from + static_cast<long long>(chunk) * kD * kAll) + vector);
      sum[0] += x.x;
      sum[1] += x.y;
      sum[2] += x.z;
      sum[3] += x.w;
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) parts[group * kD * 8 + 4 * vector + r] = sum[r];
  }
  __syncthreads();
  const double factor = a.largest ? sum_factor(a.largest + 3 * head, tile < kD / 8, a.wide) : 1.0f;
  float most = 0.0f;
  for (int at = threadIdx.x; at < kD * 8; at += threads) {
    double sum = 0.0;
    for (int part = 0; part < groups; ++part) sum += parts[part * kD * 8 + at];
    sum *= factor;
    if (a.sums) a.sums[(static_cast<long long>(head) * kD + at / 8) * kAll + column_of(tile, at % 8)] = sum;
    terms[at] = static_cast<float>(sum);
    most = fmaxf(most, fabsf(terms[at]));
  }
  most = largest_of(most, largest);
  if (threadIdx.x == 0 && tile < kD / 8) {
    double trace = 0.0;
    for (int place = 0; place < 8; ++place) trace += terms[column_of(tile, place) * 8 + place];
    a.traces[head * (kD / 8) + tile] = static_cast<float>(trace);
  }
  const long long at = static_cast<long long>(head) * kTiles + tile;
  if (a.wide) {
    write_wide_fragments<kD, kTiles>(reinterpret_cast<uint4*>(fragments_of<kD * kAll>(a, head)), a.scales + at, terms,
                                     most, tile);
  } else {
    write_fragments<kD>(static_cast<uint4*>(a.fragments) + at * (kD / 16) * 32, a.scales + at, terms, most);
  }
}
