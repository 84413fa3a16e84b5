// Causal outputs of 16-bit queries on tensor cores: sums before a chunk as two 16-bit terms, scores within it. Compiled
// with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are multiples of 32 up to 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/half_causal.cuh"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv, kTiles = kAll / 8;
/// Row tiles of a warp: as many as registers hold.
constexpr int kHigh = kAll <= 128 ? 2 : 1, kWarpRows = 16 * kHigh, kBlockRows = kRowWarps * kWarpRows;
constexpr int kVectors = 4 * (kD / 16) * 32;
/// Rows of 16-byte reads by quads, and those of ldmatrix, begin in different banks.
constexpr int kKeys = 32, kStrideK = kD + (kD % 64 == 0 ? 32 : 0), kStrideV = kDv + 8;
constexpr int kStage = kKeys * (kStrideK + kStrideV);  // 16-bit numbers
constexpr int kBytes = 4 * kStage > 32 * kVectors ? 4 * kStage : 32 * kVectors;

/// In place of a chunk's sums those of all chunks of its sequence before it, or behind it. Grid: key heads (heads, for
/// sums of queries) of all sequences x sums / 256.
extern "C" __global__ void __launch_bounds__(64) causal_half_add(HalfArguments a) {
  constexpr int kBlocks = kD * kAll / 256, kTogether = 8;
  const int place = blockIdx.x / kBlocks, at = blockIdx.x % kBlocks * 64 + threadIdx.x;
  const int heads = a.behind ? a.shape.heads : a.shape.key_heads, sequence = place / heads, head = place % heads;
  const Rows chunks = causal_chunks(a.shape, a.rows, sequence);
  const long long size = kD * kAll / 4;
  float4* sums =
      reinterpret_cast<float4*>(a.partial) + (static_cast<long long>(head) * a.chunks + chunks.first) * size + at;
  const long long step = a.behind ? -size : size;
  if (a.behind) sums += (chunks.count - 1) * size;
  double running[4] = {};
  for (long long from = 0; from < chunks.count; from += kTogether) {
    float4 x[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      x[i] = from + i < chunks.count ? sums[(from + i) * step] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (from + i < chunks.count) {
        sums[(from + i) * step] = make_float4(static_cast<float>(running[0]), static_cast<float>(running[1]),
                                              static_cast<float>(running[2]), static_cast<float>(running[3]));
      }
      running[0] += x[i].x;
      running[1] += x[i].y;
      running[2] += x[i].z;
      running[3] += x[i].w;
    }
  }
}

/// Where number (row, column) of [G, M] is in the order of tiles.
__device__ __forceinline__ int place_of(int row, int column) {
  const int tile = 4 * (column / 32) + column % 8 / 2, place = 2 * (column % 32 / 8) + column % 2;
  return (tile * kD + row) * 8 + place;
}

/// A tile of those sums as two 16-bit terms, where wanted also those of M^T: with the latter, of sums of keys only G
/// and M^T. Sums of queries are those of all heads of a key head. Grid: key heads x chunks x (tiles + d / 8 turned
/// ones).
extern "C" __global__ void __launch_bounds__(256) causal_half_split(HalfArguments a) {
  constexpr int kMost = kD > kDv ? kD : kDv;
  __shared__ float terms[kMost * 8], largest[8];
  const int all = kTiles + (a.turned_fragments ? kD / 8 : 0), tile = blockIdx.x % all, turned = tile - kTiles;
  if (a.turned_fragments && !a.behind && tile >= kD / 8 && tile < kTiles) return;
  const long long place = blockIdx.x / all;
  const int group = a.behind ? a.shape.heads / a.shape.key_heads : 1;
  const int key_head = static_cast<int>(place / a.chunks), slot = static_cast<int>(place % a.chunks);
  const float* from = a.partial + (static_cast<long long>(key_head) * group * a.chunks + slot) * kD * kAll;
  float factor = 1.0f;
  if (a.behind) {
    const int flags = causal_chunk(a.shape, a.rows, slot).sequence * a.shape.key_heads + key_head;
    factor = sum_factor(a.largest + 3 * flags, tile < kD / 8, false);
  }
  const int inner = turned < 0 ? kD : kDv;
  float most = 0.0f;
  for (int at = threadIdx.x; at < inner * 8; at += 256) {
    const int where = turned < 0 ? tile * kD * 8 + at : place_of(column_of(turned, at % 8), kD + at / 8);
    float sum = 0.0f;
    for (int head = 0; head < group; ++head)
      sum += __ldg(from + static_cast<long long>(head) * a.chunks * kD * kAll + where);
    terms[at] = sum * factor;
    most = fmaxf(most, fabsf(terms[at]));
  }
  most = largest_of(most, largest);
  if (turned >= 0) {
    const long long at = place * (kD / 8) + turned;
    write_fragments<kDv>(static_cast<uint4*>(a.turned_fragments) + at * (kDv / 16) * 32, a.turned_scales + at, terms,
                         most);
    return;
  }
  if (threadIdx.x == 0 && tile < kD / 8 && a.traces) {
    double trace = 0.0;
    for (int at = 0; at < 8; ++at) trace += terms[column_of(tile, at) * 8 + at];
    a.traces[place * (kD / 8) + tile] = static_cast<float>(trace);
  }
  const long long at = place * kTiles + tile;
  write_fragments<kD>(static_cast<uint4*>(a.fragments) + at * (kD / 16) * 32, a.scales + at, terms, most);
}

/// Grid: chunks x heads x parts of a chunk.
extern "C" __global__ void __launch_bounds__(kRowThreads) causal_half_rows(HalfArguments a) {
  __shared__ __align__(16) char memory[kBytes];
  const int part_of_chunk = blockIdx.x % a.parts, place = blockIdx.x / a.parts,
            group = a.shape.heads / a.shape.key_heads;
  const int slot = place / a.shape.heads, head = place % a.shape.heads, key_head = head / group;
  const CausalChunk chunk = causal_chunk(a.shape, a.rows, slot);
  const int count = static_cast<int>(chunk.count), begin = part_of_chunk * kBlockRows;
  if (begin >= count) return;
  const long long first = query_rows(a.shape, chunk.sequence, head).first + chunk.first;
  const long long first_key = key_rows(a.shape, chunk.sequence, key_head).first + chunk.first;
  const unsigned short* k = static_cast<const unsigned short*>(a.k) + first_key * kD;
  const unsigned short* v = static_cast<const unsigned short*>(a.v) + first_key * kDv;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row = begin + warp * kWarpRows;
  const long long state = static_cast<long long>(key_head) * a.chunks + slot;
  const uint4* fragments = static_cast<const uint4*>(a.fragments) + state * kTiles * (kD / 16) * 32;
  const float *scales = a.scales + state * kTiles, *traces = a.traces + state * (kD / 8);
  HalfRows<kD, kHigh> q;
  long long rows[kHigh][2];
  bool there[kHigh][2];
#pragma unroll
  for (int i = 0; i < kHigh; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = row + 16 * i + 8 * h + g;
      there[i][h] = at < count;
      rows[i][h] = first + (there[i][h] ? at : 0);
    }
  }
  unsigned short* stages = reinterpret_cast<unsigned short*>(memory);
  const KeyWeights weights(a.multiplicity, multiplicity_row(a.shape, chunk.sequence) + chunk.first);
  const auto copy = [&](int slot, int from) {
    copy_stage<kKeys, kD, kDv, kStrideK, kStrideV>(stages + slot * kStage, k, v, from, count, weights);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  copy(0, 0);
  q.load(a.q, rows, t);
  ScaledSums<kDv, kHigh> inside;
  float of_scores[kHigh][2] = {};  // their squares
  const int end = min(count, begin + kBlockRows);
  int stage = 0;
  for (int key = 0; key < end; key += kKeys, stage ^= 1) {
    await_tiles();
    if (key + kKeys < end) copy(stage ^ 1, key + kKeys);
    if (key >= row + kWarpRows) continue;
    const unsigned short* keys = stages + stage * kStage;
    float scores[kHigh][kKeys / 8][4];
    products_with_stage<kStrideK>(scores, q, keys);
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          float& score = scores[i][n][r];
          if (key + 8 * n + 2 * t + r % 2 > row + 16 * i + 8 * (r / 2) + g) score = 0.0f;
          of_scores[i][r / 2] += score * score;
        }
      }
    }
    inside.add<kStrideV>(scores, keys + kKeys * kStrideK);
  }
  inside.finish();
  __syncthreads();
  uint4* ring = reinterpret_cast<uint4*>(memory);
  fetch_tiles<kD>(ring, fragments);
  float trace = 0.0f;
  for (int tile = 0; tile < kD / 8; ++tile) trace += __ldg(traces + tile);
  float form[kHigh][2] = {}, square[kHigh][2] = {}, inverse[kHigh][2] = {}, sums[kHigh][4];
  unsigned any[kHigh][2] = {};
  bool flagged = false;
  int* flag = a.head_flags + chunk.sequence * a.shape.key_heads + key_head;
  const bool all_rows = a.multiplicity && *flag == kOtherWeights;
#pragma unroll
  for (int c = 0; c < kTiles / 4; ++c) {
    const uint4* slot_of_ring = ring + c % 2 * kVectors + lane;
    await_tiles();
    if (c + 1 < kTiles / 4) fetch_tiles<kD>(ring + (c + 1) % 2 * kVectors, fragments + (c + 1) * kVectors);
    if (c < kD / 32) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        q.multiply(sums, slot_of_ring + part * (kD / 16) * 32);
        const float scale = __ldg(scales + 4 * c + part);
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const unsigned pair = part_of(q.x[i][h][c], part);
            const float x = low_of(pair), y = high_of(pair);
            form[i][h] += scale * (sums[i][2 * h] * x + sums[i][2 * h + 1] * y);
            square[i][h] += x * x + y * y;
            any[i][h] |= pair & 0x7fff7fffu;
          }
        }
      }
      continue;
    }
    if (c == kD / 32) {
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float z = form[i][h] + of_scores[i][h], squares = square[i][h];
          int nonzero = any[i][h] ? 1 : 0;
#pragma unroll
          for (int bits = 1; bits < 4; bits *= 2) {
            z += __shfl_xor_sync(0xffffffffu, z, bits);
            squares += __shfl_xor_sync(0xffffffffu, squares, bits);
            nonzero |= __shfl_xor_sync(0xffffffffu, nonzero, bits);
          }
          inverse[i][h] = finish_row(a, z, squares, trace, nonzero, t == 0 && there[i][h], rows[i][h], flagged);
          if (all_rows && t == 0 && there[i][h]) a.flags[rows[i][h]] = 1;
        }
      }
    }
    unsigned out[kHigh][2][4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      q.multiply(sums, slot_of_ring + part * (kD / 16) * 32);
      const float scale = __ldg(scales + 4 * c + part);
      const int n = 4 * (c - kD / 32) + part;
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float(&of_chunk)[4] = inside.sums[i][n < 0 ? 0 : n];
          out[i][h][part] = pack((scale * sums[i][2 * h] + of_chunk[2 * h]) * inverse[i][h],
                                 (scale * sums[i][2 * h + 1] + of_chunk[2 * h + 1]) * inverse[i][h]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (there[i][h]) store_vector(a.out, rows[i][h], kDv, 4 * (c - kD / 32) + t, out[i][h]);
      }
    }
  }
  flag_head(flag, flagged);
}
