// Causal outputs of 16-bit queries on tensor cores: sums before a chunk as two 16-bit terms, scores within it. Compiled
// with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are multiples of 32 up to 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/half_fragments.cuh"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv, kTiles = kAll / 8;
/// Row tiles of a warp: as many as registers hold.
constexpr int kHigh = kAll <= 128 ? 2 : 1, kWarpRows = 16 * kHigh, kBlockRows = kRowWarps * kWarpRows;
constexpr int kVectors = 4 * (kD / 16) * 32;
/// Keys of a stage. Rows of 16-byte reads by quads, and those of ldmatrix, begin in different banks.
constexpr int kKeys = 32, kStrideK = kD + (kD % 64 == 0 ? 32 : 0), kStrideV = kDv + 8;
constexpr int kStage = kKeys * (kStrideK + kStrideV);  // 16-bit numbers
constexpr int kBytes = 4 * kStage > 32 * kVectors ? 4 * kStage : 32 * kVectors;

/// In place of a chunk's sums those of all chunks of its sequence before it. Grid: key heads of all sequences x sums /
/// 256.
extern "C" __global__ void __launch_bounds__(64) causal_half_add(HalfArguments a) {
  constexpr int kBlocks = kD * kAll / 256, kTogether = 8;
  const int place = blockIdx.x / kBlocks, at = blockIdx.x % kBlocks * 64 + threadIdx.x;
  const int sequence = place / a.shape.key_heads, key_head = place % a.shape.key_heads;
  const Rows chunks = causal_chunks(a.shape, a.rows, sequence);
  const long long size = kD * kAll / 4;
  float4* sums =
      reinterpret_cast<float4*>(a.partial) + (static_cast<long long>(key_head) * a.chunks + chunks.first) * size + at;
  double running[4] = {};
  for (long long from = 0; from < chunks.count; from += kTogether) {
    float4 x[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      x[i] = from + i < chunks.count ? sums[(from + i) * size] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (from + i < chunks.count) {
        sums[(from + i) * size] = make_float4(static_cast<float>(running[0]), static_cast<float>(running[1]),
                                              static_cast<float>(running[2]), static_cast<float>(running[3]));
      }
      running[0] += x[i].x;
      running[1] += x[i].y;
      running[2] += x[i].z;
      running[3] += x[i].w;
    }
  }
}

/// A tile of those sums as two 16-bit terms. Grid: key heads x chunks x tiles.
extern "C" __global__ void __launch_bounds__(256) causal_half_split(HalfArguments a) {
  __shared__ float terms[kD * 8], largest[8];
  const long long place = blockIdx.x / kTiles;
  const int tile = blockIdx.x % kTiles;
  const float* from = a.partial + place * kD * kAll + tile * kD * 8;
  float most = 0.0f;
  for (int at = threadIdx.x; at < kD * 8; at += 256) {
    terms[at] = __ldg(from + at);
    most = fmaxf(most, fabsf(terms[at]));
  }
  most = largest_of(most, largest);
  if (threadIdx.x == 0 && tile < kD / 8) {
    double trace = 0.0;
    for (int at = 0; at < 8; ++at) trace += terms[column_of(tile, at) * 8 + at];
    a.traces[place * (kD / 8) + tile] = static_cast<float>(trace);
  }
  const long long at = place * kTiles + tile;
  write_fragments<kD>(static_cast<uint4*>(a.fragments) + at * (kD / 16) * 32, a.scales + at, terms, most);
}

/// Copies keys and values from .. from + kKeys of a chunk into a stage, zeros from `count` on.
__device__ __forceinline__ void copy_stage(unsigned short* stage, const unsigned short* k, const unsigned short* v,
                                           int from, int count, const KeyWeights& weights) {
  bool others = false;
  for (int at = threadIdx.x; at < kKeys * (kAll / 8); at += kRowThreads) {
    const int key = at / (kAll / 8), vector = at % (kAll / 8);
    const bool there = from + key < count && weights.keeps(from + key, others);
    const long long row = there ? from + key : 0;
    if (vector < kD / 8) {
      copy_vector(stage + key * kStrideK + 8 * vector, k + row * kD + 8 * vector, there);
    } else {
      const int column = 8 * vector - kD;
      copy_vector(stage + kKeys * kStrideK + key * kStrideV + column, v + row * kDv + column, there);
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Numbers x[b] of lane t (of four) go to place t of lane b.
__device__ __forceinline__ void transpose_quad(float (&x)[4], int t) {
#pragma unroll
  for (int bits = 1; bits < 4; bits *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bits) continue;
      const bool upper = t & bits;
      const float mine = upper ? x[i] : x[i | bits];
      const float other = __shfl_xor_sync(0xffffffffu, mine, bits);
      if (upper) {
        x[i] = other;
      } else {
        x[i | bits] = other;
      }
    }
  }
}

/// Scores of a chunk's keys with rows of a warp, and what they give.
struct ChunkScores {
  float sums[kHigh][kDv / 8][4] = {};  ///< by rows, divided by their scale: numbers of tile n at column 8 n + 2 t
  float square[kHigh][2] = {};         ///< of the scores
  float scale[kHigh][2];               ///< powers of two, so that scores divided by them fit into 16 bits

  /// Keys of a stage, `key` the first of them; rows `row` and on of the chunk.
  __device__ __forceinline__ void add(const HalfRows<kD, kHigh>& q, const unsigned short* stage, int key, int row) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float scores[kHigh][kKeys / 8][4];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      const uint4* of_key = reinterpret_cast<const uint4*>(stage + (8 * n + g) * kStrideK) + t;
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) scores[i][n][r] = 0.0f;
      }
#pragma unroll
      for (int c = 0; c < kD / 32; ++c) {
        const uint4 x = of_key[4 * c];
#pragma unroll
        for (int part = 0; part < 4; part += 2) {
          const unsigned b[2] = {part_of(x, part), part_of(x, part + 1)};
#pragma unroll
          for (int i = 0; i < kHigh; ++i) {
            const unsigned a[4] = {part_of(q.x[i][0][c], part), part_of(q.x[i][1][c], part),
                                   part_of(q.x[i][0][c], part + 1), part_of(q.x[i][1][c], part + 1)};
            multiply_half(scores[i][n], a, b);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int mine = row + 16 * i + 8 * h + g;
        float most = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float& score = scores[i][n][2 * h + r];
            if (key + 8 * n + 2 * t + r > mine) score = 0.0f;
            square[i][h] += score * score;
            most = fmaxf(most, fabsf(score));
          }
        }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        // The largest is 2^12 to 2^13 of the scale; older sums follow.
        const float needed = fmaxf(scale[i][h], 1.0f / power_to(12, most)), up = 1.0f / needed;
        const float by = scale[i][h] * up;
        scale[i][h] = needed;
#pragma unroll
        for (int n = 0; n < kDv / 8; ++n) {
          sums[i][n][2 * h] *= by;
          sums[i][n][2 * h + 1] *= by;
        }
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          scores[i][n][2 * h] *= up;
          scores[i][n][2 * h + 1] *= up;
        }
      }
    }
    const unsigned short* values = stage + kKeys * kStrideK;
#pragma unroll
    for (int step = 0; step < kKeys; step += 16) {
      unsigned high[kHigh][4], low[kHigh][4];
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float x = scores[i][step / 8 + r / 2][2 * (r % 2)], y = scores[i][step / 8 + r / 2][2 * (r % 2) + 1];
          high[i][r] = pack(x, y);
          low[i][r] = pack(x - low_of(high[i][r]), y - high_of(high[i][r]));
        }
      }
#pragma unroll
      for (int pair = 0; pair < kDv / 16; ++pair) {
        unsigned right[4];
        load_transposed(right, values + (step + lane / 8 % 2 * 8 + lane % 8) * kStrideV + 16 * pair + lane / 16 * 8);
        const unsigned first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
          multiply_half(sums[i][2 * pair], high[i], first);
          multiply_half(sums[i][2 * pair + 1], high[i], second);
          multiply_half(sums[i][2 * pair], low[i], first);
          multiply_half(sums[i][2 * pair + 1], low[i], second);
        }
      }
    }
  }

  /// Multiplies by the scales and exchanges columns within quads: to those of half_tiles.cuh.
  __device__ __forceinline__ void finish() {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
#pragma unroll
      for (int c = 0; c < kDv / 32; ++c) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          float x[4];
#pragma unroll
          for (int b = 0; b < 4; ++b) x[b] = sums[i][4 * c + b][r] * scale[i][r / 2];
          transpose_quad(x, t);
#pragma unroll
          for (int b = 0; b < 4; ++b) sums[i][4 * c + b][r] = x[b];
        }
      }
    }
  }
};

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
  copy_stage(stages, k, v, 0, count, weights);
  q.load(a.q, rows, t);
  ChunkScores chunk_scores;
#pragma unroll
  for (int i = 0; i < kHigh; ++i) chunk_scores.scale[i][0] = chunk_scores.scale[i][1] = 1.0f / power_to(12, 0.0f);
  const int end = min(count, begin + kBlockRows);
  int stage = 0;
  for (int key = 0; key < end; key += kKeys, stage ^= 1) {
    await_tiles();
    if (key + kKeys < end) copy_stage(stages + (stage ^ 1) * kStage, k, v, key + kKeys, count, weights);
    if (key < row + kWarpRows) chunk_scores.add(q, stages + stage * kStage, key, row);
  }
  chunk_scores.finish();
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
          float z = form[i][h] + chunk_scores.square[i][h], squares = square[i][h];
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
          const float(&inside)[4] = chunk_scores.sums[i][n < 0 ? 0 : n];
          out[i][h][part] = pack((scale * sums[i][2 * h] + inside[2 * h]) * inverse[i][h],
                                 (scale * sums[i][2 * h + 1] + inside[2 * h + 1]) * inverse[i][h]);
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
