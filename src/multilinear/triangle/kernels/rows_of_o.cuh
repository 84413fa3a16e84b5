#pragma once
// Parts of the kernels from o to out: what is the same for warps and for warpgroups. Compiled with what fused.cuh says.
#include "multilinear/triangle/kernels/fused.cuh"

constexpr int kHSteps = kH / 16;
constexpr bool kWideOut = CLEBSCH_X == 1;

/// Biases of out and of gates, weights and biases of the norm of o, one after the other.
__device__ __forceinline__ float number_at(const FusedArguments& a, int at) {
  if (at < kOut) return a.p_bias[at];
  if (at < kOut + kGate) return kStored ? 0.0f : a.g_bias[at - kOut];
  return a.norm[at - kOut - kGate];
}

/// Sixteen bytes of a line of kChunks: lines whose rows ldmatrix reads together lie in different banks.
template <int kChunks>
__device__ __forceinline__ int place_of_chunk(int line, int chunk) {
  if (kChunks == 4) return 4 * line + (chunk ^ (line >> 3 & 3));
  return 8 * line + (chunk ^ ((line >> 3 & 3) << 1 | (line & 1)));
}

/// Rows 16 `half` + .. of a step's 16 channels as a first operand: lanes have the columns of fused.cuh.
template <int kChunks>
__device__ __forceinline__ void load_step(unsigned (&to)[4], const uint4* lines, int line, int s, int half) {
  const int lane = threadIdx.x % 32, i = lane / 8, r = lane % 8;
  const int channel = 32 * (s / 2) + 4 * (s % 2) + 8 * (r / 2) + r % 2 + 2 * (i / 2);
  load_transposed(
      to, reinterpret_cast<const unsigned short*>(lines + place_of_chunk<kChunks>(line + channel, 2 * half + i % 2)));
}

__device__ __forceinline__ float of_quad(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Two rows of o, as steps of operands, to (o - mean) / deviation.
__device__ __forceinline__ void normalise_steps(unsigned (&o)[kHSteps][4], float eps) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = 0.0f, square = 0.0f;
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) {
      sum += low_of(o[s][h]) + high_of(o[s][h]) + low_of(o[s][h + 2]) + high_of(o[s][h + 2]);
    }
    const float mean = of_quad(sum) * (1.0f / kH);
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) {
#pragma unroll
      for (int r = h; r < 4; r += 2) {
        const float x = low_of(o[s][r]) - mean, y = high_of(o[s][r]) - mean;
        square += x * x + y * y;
      }
    }
    const float scale = rsqrtf(of_quad(square) * (1.0f / kH) + eps);
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) {
#pragma unroll
      for (int r = h; r < 4; r += 2) {
        o[s][r] = pack((low_of(o[s][r]) - mean) * scale, (high_of(o[s][r]) - mean) * scale);
      }
    }
  }
}

/// Two rows of x: as they are read, and as steps of operands.
struct RowsOfX {
  Eight eights[2][kD / 32];

  __device__ __forceinline__ void read(const FusedArguments& a, long long low, long long high, int t) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) eights[h][u].load(a.x, (h == 0 ? low : high) * kD + 32 * u + 8 * t);
    }
  }
  __device__ __forceinline__ void get(unsigned (&x)[kSteps][4], float eps) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float v[kD / 32][8];
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) eights[h][u].get(v[u]);
      normalise<kD / 32, 4>(v, kD / 32, eps);
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) {
#pragma unroll
        for (int r = 0; r < 4; ++r) x[2 * u + r / 2][h + 2 * (r % 2)] = pack(v[u][2 * r], v[u][2 * r + 1]);
      }
    }
  }
};

__device__ __forceinline__ void store_columns(const FusedArguments& a, long long row, int c, int t,
                                              const float (&sums)[4][4], int h) {
#if CLEBSCH_X == 1
  float4* to = reinterpret_cast<float4*>(static_cast<float*>(a.out) + row * kOut + 32 * c + 4 * t);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    to[4 * part] = make_float4(sums[2 * part][2 * h], sums[2 * part][2 * h + 1], sums[2 * part + 1][2 * h],
                               sums[2 * part + 1][2 * h + 1]);
  }
#else
  uint4 all;
  all.x = pack_out(sums[0][2 * h], sums[0][2 * h + 1]);
  all.y = pack_out(sums[1][2 * h], sums[1][2 * h + 1]);
  all.z = pack_out(sums[2][2 * h], sums[2][2 * h + 1]);
  all.w = pack_out(sums[3][2 * h], sums[3][2 * h + 1]);
  *reinterpret_cast<uint4*>(static_cast<unsigned short*>(a.out) + row * kOut + 32 * c + 8 * t) = all;
#endif
}

/// Gates of a step's columns from sums of tiles 2 `part` and 2 `part` + 1.
__device__ __forceinline__ void gates_of(unsigned (&gates)[4], const float (&z)[4][4], int part) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int n = 2 * part + r / 2;
    gates[r] = pack(0.5f + 0.5f * tanh_near(z[n][2 * (r % 2)]), 0.5f + 0.5f * tanh_near(z[n][2 * (r % 2) + 1]));
  }
}

/// Step s of normed o, with the norm's weights, times gates.
__device__ __forceinline__ void gate_step(unsigned (&o)[4], const unsigned (&gates)[4], const float* norm, int s,
                                          int t) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int column = 32 * (s / 2) + 8 * t + 4 * (s % 2) + 2 * (r / 2);
    const float2 weight = *reinterpret_cast<const float2*>(norm + column),
                 bias = *reinterpret_cast<const float2*>(norm + kH + column);
    o[r] = pack((low_of(o[r]) * weight.x + bias.x) * low_of(gates[r]),
                (high_of(o[r]) * weight.y + bias.y) * high_of(gates[r]));
  }
}

/// Sums of four tiles of columns times their gates' lines.
template <int kChunks>
__device__ __forceinline__ void gate_sums(float (&sums)[4][4], const uint4* lines, int c, int half) {
  const int lane = threadIdx.x % 32, line = kH + column_of_out<kWideOut>(4 * c + lane / 8, lane % 8);
#pragma unroll
  for (int h = 0; h < 2; ++h) {  // rows g, then g + 8
    unsigned gates[4];           // of the four tiles
    load_transposed(gates,
                    reinterpret_cast<const unsigned short*>(lines + place_of_chunk<kChunks>(line, 2 * half + h)));
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      sums[n][2 * h] *= low_of(gates[n]);
      sums[n][2 * h + 1] *= high_of(gates[n]);
    }
  }
}
