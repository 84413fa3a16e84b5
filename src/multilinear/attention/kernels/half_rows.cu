// Outputs of 16-bit queries on tensor cores: q [G, M] with the sums as two 16-bit terms each. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are multiples of 32 up to 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/half_tiles.cuh"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv, kTiles = kAll / 8;
constexpr int kWarps = 4, kRows = 32;  // a warp

__device__ __forceinline__ unsigned part_of(const uint4& vector, int part) {
  return part == 0 ? vector.x : part == 1 ? vector.y : part == 2 ? vector.z : vector.w;
}

/// The two column tiles' sums of a warp's 32 rows: sums[i] of rows 16 i + g (first two) and 16 i + 8 + g.
__device__ __forceinline__ void rows_by_tile(float (&sums)[2][4], const uint4 (&q)[2][2][kD / 32],
                                             const uint4* fragments) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[i][r] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < kD / 16; ++step) {
    const uint4 both = __ldg(fragments + 32 * step);
    const unsigned high[2] = {both.x, both.y}, low[2] = {both.z, both.w};
    const int part = step % 2 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned rows[4] = {part_of(q[i][0][step / 2], part), part_of(q[i][1][step / 2], part),
                                part_of(q[i][0][step / 2], part + 1), part_of(q[i][1][step / 2], part + 1)};
      multiply_half(sums[i], rows, high);
      multiply_half(sums[i], rows, low);
    }
  }
}

/// Grid: sequences x heads, parts; a warp takes every (4 gridDim.y)-th run of 32 rows of its head.
extern "C" __global__ void __launch_bounds__(32 * kWarps) half_rows(HalfArguments a) {
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  const Rows all = query_rows(a.shape, sequence, head);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint4* fragments =
      static_cast<const uint4*>(a.fragments) + static_cast<long long>(key_head) * kTiles * (kD / 16) * 32 + lane;
  const float* scales = a.scales + key_head * kTiles;
  float trace = 0.0f;
  for (int tile = 0; tile < kD / 8; ++tile) trace += __ldg(a.traces + key_head * (kD / 8) + tile);
  for (long long from = (static_cast<long long>(blockIdx.y) * kWarps + warp) * kRows; from < all.count;
       from += static_cast<long long>(gridDim.y) * kWarps * kRows) {
    uint4 q[2][2][kD / 32];
    long long rows[2][2];
    bool there[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const long long at = from + 16 * i + 8 * h + g;
        there[i][h] = at < all.count;
        rows[i][h] = all.first + (there[i][h] ? at : 0);
        const uint4* row = reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(a.q) + rows[i][h] * kD);
#pragma unroll
        for (int c = 0; c < kD / 32; ++c) q[i][h][c] = __ldg(row + 4 * c + t);
      }
    }
    float form[2][2] = {}, square[2][2] = {}, sums[2][4];
    unsigned any[2][2] = {};
#pragma unroll
    for (int tile = 0; tile < kD / 8; ++tile) {
      rows_by_tile(sums, q, fragments + tile * (kD / 16) * 32);
      const float scale = __ldg(scales + tile);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const unsigned pair = part_of(q[i][h][tile / 4], tile % 4);
          const float x = bits_to_float(pair & 0xffffu), y = bits_to_float(pair >> 16);
          form[i][h] += scale * (sums[i][2 * h] * x + sums[i][2 * h + 1] * y);
          square[i][h] += x * x + y * y;
          any[i][h] |= pair & 0x7fff7fffu;
        }
      }
    }
    float inverse[2][2];
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
        // Also what is too small or too large for 32 bits, and what is no number.
        const bool fine = z >= kGuard * trace * squares / kD && z > 1e-30f && z < 1e37f && trace < 1e37f;
        const bool flagged = nonzero && !fine;
        const float norm = sqrtf(fmaxf(z, 0.0f) + a.eps);
        inverse[i][h] = norm > 0.0f ? 1.0f / norm : 0.0f;
        if (t == 0 && there[i][h]) {
          a.norm[rows[i][h]] = norm;
          a.flags[rows[i][h]] = flagged ? 1 : 0;
          if (flagged) a.head_flags[key_head] = 1;
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kDv / 32; ++c) {
      unsigned out[2][2][4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int tile = kD / 8 + 4 * c + part;
        rows_by_tile(sums, q, fragments + tile * (kD / 16) * 32);
        const float scale = __ldg(scales + tile);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float by = scale * inverse[i][h];
            out[i][h][part] = float_to_bits(sums[i][2 * h] * by) | float_to_bits(sums[i][2 * h + 1] * by) << 16;
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (!there[i][h]) continue;
          uint4 vector;
          vector.x = out[i][h][0];
          vector.y = out[i][h][1];
          vector.z = out[i][h][2];
          vector.w = out[i][h][3];
          reinterpret_cast<uint4*>(static_cast<unsigned short*>(a.out) + rows[i][h] * kDv)[4 * c + t] = vector;
        }
      }
    }
  }
}
