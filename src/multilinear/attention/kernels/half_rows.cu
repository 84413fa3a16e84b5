// Outputs of 16-bit queries on tensor cores: q [G, M] with the sums as two 16-bit terms each. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are multiples of 32 up to 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/half_fragments.cuh"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv, kTiles = kAll / 8;
constexpr int kRows = 32, kVectors = 4 * (kD / 16) * 32;

/// Grid: sequences x heads x parts; a block takes every `parts`-th run of 256 rows of its head.
extern "C" __global__ void __launch_bounds__(kRowThreads) half_rows(HalfArguments a) {
  __shared__ __align__(16) uint4 ring[2 * kVectors];
  const int part_of_head = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  const int head = place % a.shape.heads, sequence = place / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  const Rows all = query_rows(a.shape, sequence, head);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint4* fragments =
      static_cast<const uint4*>(a.fragments) + static_cast<long long>(key_head) * kTiles * (kD / 16) * 32;
  const float* scales = a.scales + key_head * kTiles;
  float trace = 0.0f;
  for (int tile = 0; tile < kD / 8; ++tile) trace += __ldg(a.traces + key_head * (kD / 8) + tile);
  bool flagged = false;
  for (long long block = static_cast<long long>(part_of_head) * kRowWarps * kRows; block < all.count;
       block += static_cast<long long>(a.parts) * kRowWarps * kRows) {
    const long long from = block + warp * kRows;
    HalfRows<kD, 2> q;
    long long rows[2][2];
    bool there[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const long long at = from + 16 * i + 8 * h + g;
        there[i][h] = at < all.count;
        rows[i][h] = all.first + (there[i][h] ? at : 0);
      }
    }
    __syncthreads();
    fetch_tiles<kD>(ring, fragments);
    q.load(a.q, rows, t);
    float form[2][2] = {}, square[2][2] = {}, inverse[2][2] = {}, sums[2][4];
    unsigned any[2][2] = {};
#pragma unroll
    for (int c = 0; c < kTiles / 4; ++c) {
      const uint4* slot = ring + c % 2 * kVectors + lane;
      await_tiles();
      if (c + 1 < kTiles / 4) fetch_tiles<kD>(ring + (c + 1) % 2 * kVectors, fragments + (c + 1) * kVectors);
      if (c < kD / 32) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          q.multiply(sums, slot + part * (kD / 16) * 32);
          const float scale = __ldg(scales + 4 * c + part);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
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
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float z = form[i][h], squares = square[i][h];
            int nonzero = any[i][h] ? 1 : 0;
#pragma unroll
            for (int bits = 1; bits < 4; bits *= 2) {
              z += __shfl_xor_sync(0xffffffffu, z, bits);
              squares += __shfl_xor_sync(0xffffffffu, squares, bits);
              nonzero |= __shfl_xor_sync(0xffffffffu, nonzero, bits);
            }
            inverse[i][h] = finish_row(a, z, squares, trace, nonzero, t == 0 && there[i][h], rows[i][h], flagged);
          }
        }
      }
      unsigned out[2][2][4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        q.multiply(sums, slot + part * (kD / 16) * 32);
        const float scale = __ldg(scales + 4 * c + part);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float by = scale * inverse[i][h];
            out[i][h][part] = pack(sums[i][2 * h] * by, sums[i][2 * h + 1] * by);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (there[i][h]) store_vector(a.out, rows[i][h], kDv, 4 * (c - kD / 32) + t, out[i][h]);
        }
      }
    }
  }
  flag_head(a.head_flags + key_head, flagged);
}
