// Streamed attention of 16-bit numbers on tensor cores (mma.sync): outputs. Weights go from the sums of the first
// product to the operands of the second within registers; only their norm, not their maximum, is kept.
#include "multilinear/attention/kernels/stream_half.cuh"

/// 16-row tiles of queries of a warp: every number that is read from shared memory is used in each.
constexpr int kRowTiles = kD + kDv <= 128 ? 2 : 1;
constexpr int kWarps = 4, kThreads = 32 * kWarps, kRows = 16 * kRowTiles * kWarps;
constexpr int kKeys = kD + kDv <= 128 ? 64 : 32, kStage = kKeys * (kStrideD + kStrideDv);
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f, kNone = -1e30f;

/// Bits of the largest |m k|, |v| and |m| of a key head; they were zeros. Grid: sequences x key heads, parts.
extern "C" __global__ void __launch_bounds__(256) stream_half_bounds(StreamArguments a) {
  const int key_head = blockIdx.x % a.shape.key_heads, sequence = blockIdx.x / a.shape.key_heads;
  const Rows keys = key_rows(a.shape, sequence, key_head);
  const HeadPairs head(a, sequence, 0);
  float most[3] = {};
  const auto largest = [&](const void* tensor, int columns, float& to, bool weighted) {
    const int vectors = columns / 8;
    for (long long at = static_cast<long long>(blockIdx.y) * 256 + threadIdx.x; at < keys.count * vectors;
         at += 256ll * gridDim.y) {
      const auto* row = static_cast<const unsigned short*>(tensor) + (keys.first + at / vectors) * columns;
      Eight numbers;
      numbers.set(__ldg(reinterpret_cast<const uint4*>(row) + at % vectors));
      float mine = 0.0f;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) mine = fmaxf(mine, largest_of_pair(numbers.x[pair]));
      if (weighted) {
        const float m = fabsf(unpack(multiplicity_number(a, head, at / vectors)));
        most[2] = fmaxf(most[2], m);
        mine *= m;
      }
      to = fmaxf(to, mine);
    }
  };
  largest(a.k, kD, most[0], kMultiplicity);
  if (a.grad) largest(a.v, kDv, most[1], false);
#pragma unroll
  for (int which = 0; which < 3; ++which) {
    float x = most[which];
    for (int bits = 16; bits > 0; bits /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, bits));
    // The order of atomic maxima does not matter.
    if (threadIdx.x % 32 == 0) {
      atomicMax(a.bounds + 4 * (sequence * a.shape.key_heads + key_head) + which, __float_as_uint(x));
    }
  }
}

/// Grid: sequences x heads x parts; a block takes every `parts`-th tile of its head's queries.
extern "C" __global__ void __launch_bounds__(kThreads, 2) stream_half_forward(StreamArguments a) {
  __shared__ __align__(16) unsigned short ring[2 * kStage];
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  const int head = place % a.shape.heads, sequence = place / a.shape.heads;
  const int key_head = head / (a.shape.heads / a.shape.key_heads);
  const Rows queries = query_rows(a.shape, sequence, head), keys = key_rows(a.shape, sequence, key_head);
  const HeadPairs pairs(a, sequence, head);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const unsigned short* k = static_cast<const unsigned short*>(a.k) + keys.first * kD;
  const unsigned short* v = static_cast<const unsigned short*>(a.v) + keys.first * kDv;
  const float scale = static_cast<float>(a.scale) * (kNorm == kSoftmax ? kLog2E : 1.0f);
  const int tiles = static_cast<int>((keys.count + kKeys - 1) / kKeys);
  const auto fetch = [&](int tile) {
    unsigned short* stage = ring + tile % 2 * kStage;
    if (tile < tiles) {
      copy_rows<kKeys, kD, kThreads>(stage, k, static_cast<long long>(tile) * kKeys, keys.count);
      copy_rows<kKeys, kDv, kThreads>(stage + kKeys * kStrideD, v, static_cast<long long>(tile) * kKeys, keys.count);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (long long from = static_cast<long long>(part) * kRows; from < queries.count;
       from += static_cast<long long>(a.parts) * kRows) {
    __syncthreads();
    fetch(0);
    OwnRows<kD> q[kRowTiles];
    int exponent[kRowTiles][2] = {};
    const int own_row = static_cast<int>(from) + 16 * kRowTiles * warp + g, rows = static_cast<int>(queries.count);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int first = own_row + 16 * i;
      q[i].load(a.q, queries.first + first, first < rows, first + 8 < rows, t);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (kNorm != kL2) continue;
        float most = 0.0f;
#pragma unroll
        for (int step = 0; step < kD / 16; ++step) {
          most = fmaxf(most, fmaxf(largest_of_pair(q[i].x[step][h]), largest_of_pair(q[i].x[step][2 + h])));
        }
        exponent[i][h] = weight_exponent(a, largest_of_quad(most), bound_of(a, sequence, key_head, 0));
        const float factor = two_to(exponent[i][h]);
#pragma unroll
        for (int step = 0; step < kD / 16; ++step) {
          q[i].x[step][h] = times(q[i].x[step][h], factor);
          q[i].x[step][2 + h] = times(q[i].x[step][2 + h], factor);
        }
      }
    }
    float sums[kRowTiles][kDv / 8][4] = {};
    float z[kRowTiles][2] = {}, most[kRowTiles][2];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) most[i][0] = most[i][1] = kNone;
    for (int tile = 0; tile < tiles; ++tile) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();
      fetch(tile + 1);
      const unsigned short* keys_here = ring + tile % 2 * kStage;
      const unsigned short* values = keys_here + kKeys * kStrideD;
#pragma unroll
      for (int step = 0; step < kKeys; step += 32) {
        const long long j = static_cast<long long>(tile) * kKeys + step + 8 * t;
        EightPairs of_rows[kRowTiles][2];
        Eight multiplicities;
        if (kMultiplicity) multiplicities = eight_multiplicities(a, pairs, j, keys.count);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            of_rows[i][h].read(a, pairs, min(own_row + 16 * i + 8 * h, rows - 1), j, keys.count);
          }
        }
        float x[kRowTiles][4][4];
        inner_products<kD>(x, q, keys_here + step * kStrideD);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float largest = most[i][h];
#pragma unroll
            for (int e = 0; e < 8; ++e) {
              float& mine = x[i][e / 2][2 * h + e % 2];
              if (kMultiplicity) mine *= multiplicities.at(e);
              if (kNorm == kSoftmax) mine *= scale;
              if (kBias) mine += of_rows[i][h].bias.at(e) * (kNorm == kL2 ? two_to(exponent[i][h]) : kLog2E);
              if (kNorm == kL2) {
                mine = of_rows[i][h].masked(e, mine);
                z[i][h] += mine * mine;
              } else {
                if (!of_rows[i][h].seen(e)) mine = 2.0f * kNone;
                largest = fmaxf(largest, mine);
              }
            }
            if (kNorm == kSoftmax) {
              largest = largest_of_quad(largest);
              const float factor = exp2f(most[i][h] - largest);
              most[i][h] = largest;
              z[i][h] *= factor;
#pragma unroll
              for (int n = 0; n < kDv / 8; ++n) {
                sums[i][n][2 * h] *= factor;
                sums[i][n][2 * h + 1] *= factor;
              }
#pragma unroll
              for (int e = 0; e < 8; ++e) {
                float& mine = x[i][e / 2][2 * h + e % 2];
                mine = mine < kNone ? 0.0f : exp2f(mine - largest);
                z[i][h] += mine;
              }
            }
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          unsigned weights[kRowTiles][4];
#pragma unroll
          for (int i = 0; i < kRowTiles; ++i) as_operand(weights[i], x[i][2 * half], x[i][2 * half + 1]);
          add_product<kDv>(sums, weights, values + (step + 16 * half) * kStrideDv);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float all = of_quad(z[i][h]);
        float norm, inverse;
        if (kNorm == kL2) {
          // In double precision: with eps, numbers far apart meet.
          const double root = sqrt(ldexp(static_cast<double>(all), -2 * exponent[i][h]) + a.eps);
          norm = static_cast<float>(root);
          inverse = root > 0.0 ? static_cast<float>(ldexp(1.0 / root, -exponent[i][h])) : 0.0f;
        } else {
          norm = most[i][h] * kLn2 + logf(all);
          inverse = all > 0.0f ? 1.0f / all : 0.0f;
        }
        if (own_row + 16 * i + 8 * h >= rows) continue;
        const long long at = queries.first + own_row + 16 * i + 8 * h;
        if (t == 0) static_cast<float*>(a.norm)[at] = norm;
        unsigned* to = reinterpret_cast<unsigned*>(static_cast<unsigned short*>(a.out) + at * kDv) + t;
#pragma unroll
        for (int n = 0; n < kDv / 8; ++n)
          to[4 * n] = pack(sums[i][n][2 * h] * inverse, sums[i][n][2 * h + 1] * inverse);
      }
    }
  }
}
