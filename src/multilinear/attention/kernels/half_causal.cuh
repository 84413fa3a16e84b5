#pragma once
// What causal attention of 16-bit numbers does within a chunk: products of rows in registers with rows in shared
// memory, and these, as two 16-bit terms each, times rows in shared memory. Compiled with CLEBSCH_D and CLEBSCH_DV.
#include "multilinear/attention/kernels/half_fragments.cuh"

/// Copies rows from .. from + kStageRows of two tensors into a stage, zeros from `count` on and for weights of zero.
template <int kStageRows, int kLeft, int kRight, int kLeftStride, int kRightStride>
__device__ __forceinline__ void copy_stage(unsigned short* stage, const unsigned short* left,
                                           const unsigned short* right, int from, int count,
                                           const KeyWeights& weights) {
  constexpr int kVectors = (kLeft + kRight) / 8;
  bool others = false;
  for (int at = threadIdx.x; at < kStageRows * kVectors; at += kRowThreads) {
    const int mine = at / kVectors, vector = at % kVectors;
    const bool there = from + mine < count && weights.keeps(from + mine, others);
    const long long row = there ? from + mine : 0;
    if (vector < kLeft / 8) {
      copy_vector(stage + mine * kLeftStride + 8 * vector, left + row * kLeft + 8 * vector, there);
    } else {
      const int column = 8 * vector - kLeft;
      copy_vector(stage + kStageRows * kLeftStride + mine * kRightStride + column, right + row * kRight + column,
                  there);
    }
  }
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

/// Products of rows of a warp with those of a stage: of tile n those 8 n + 2 t + r of lanes t.
template <int kStride, int kInner, int kHigh, int kAcross>
__device__ __forceinline__ void products_with_stage(float (&products)[kHigh][kAcross][4],
                                                    const HalfRows<kInner, kHigh>& x, const unsigned short* stage) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < kAcross; ++n) {
    const uint4* of_row = reinterpret_cast<const uint4*>(stage + (8 * n + g) * kStride) + t;
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) products[i][n][r] = 0.0f;
    }
#pragma unroll
    for (int c = 0; c < kInner / 32; ++c) {
      const uint4 y = of_row[4 * c];
#pragma unroll
      for (int part = 0; part < 4; part += 2) {
        const unsigned b[2] = {part_of(y, part), part_of(y, part + 1)};
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
          const unsigned a[4] = {part_of(x.x[i][0][c], part), part_of(x.x[i][1][c], part),
                                 part_of(x.x[i][0][c], part + 1), part_of(x.x[i][1][c], part + 1)};
          multiply_half(products[i][n], a, b);
        }
      }
    }
  }
}

/// Sums of weights times rows of stages, by rows of a warp: numbers of tile n at column 8 n + 2 t, divided by powers of
/// two, so that weights divided by them fit into 16 bits.
template <int kColumns, int kHigh>
struct ScaledSums {
  float sums[kHigh][kColumns / 8][4];
  float scale[kHigh][2];

  __device__ __forceinline__ ScaledSums() {
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
      scale[i][0] = scale[i][1] = 1.0f / power_to(12, 0.0f);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int r = 0; r < 4; ++r) sums[i][n][r] = 0.0f;
      }
    }
  }

  /// Adds weights (which are scaled) times rows of a stage.
  template <int kStride, int kAcross>
  __device__ __forceinline__ void add(float (&weights)[kHigh][kAcross][4], const unsigned short* rows) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float most = 0.0f;
#pragma unroll
        for (int n = 0; n < kAcross; ++n)
          most = fmaxf(most, fmaxf(fabsf(weights[i][n][2 * h]), fabsf(weights[i][n][2 * h + 1])));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        // The largest is 2^12 to 2^13 of the scale; older sums follow.
        const float needed = fmaxf(scale[i][h], 1.0f / power_to(12, most)), up = 1.0f / needed;
        const float by = scale[i][h] * up;
        scale[i][h] = needed;
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          sums[i][n][2 * h] *= by;
          sums[i][n][2 * h + 1] *= by;
        }
#pragma unroll
        for (int n = 0; n < kAcross; ++n) {
          weights[i][n][2 * h] *= up;
          weights[i][n][2 * h + 1] *= up;
        }
      }
    }
#pragma unroll
    for (int step = 0; step < 8 * kAcross; step += 16) {
      unsigned high[kHigh][4], low[kHigh][4];
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float* at = weights[i][step / 8 + r / 2] + 2 * (r % 2);
          high[i][r] = pack(at[0], at[1]);
          low[i][r] = pack(at[0] - low_of(high[i][r]), at[1] - high_of(high[i][r]));
        }
      }
#pragma unroll
      for (int pair = 0; pair < kColumns / 16; ++pair) {
        unsigned right[4];
        load_transposed(right, rows + (step + lane / 8 % 2 * 8 + lane % 8) * kStride + 16 * pair + lane / 16 * 8);
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
      for (int c = 0; c < kColumns / 32; ++c) {
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
