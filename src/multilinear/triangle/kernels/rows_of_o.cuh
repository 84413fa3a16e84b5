#pragma once
// Parts of the kernels from o to out: what is the same for warps and for warpgroups. Compiled with what fused.cuh says.
#include "multilinear/triangle/kernels/rows_of_x.cuh"

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

/// The same from where the lane's part of step 0 lies, line 0, kChunks 8: which parts of a line are exchanged is the
/// same for all steps.
__device__ __forceinline__ const uint4* place_of_step(const uint4* lines, int half) {
  const int lane = threadIdx.x % 32, i = lane / 8, r = lane % 8;
  return lines + place_of_chunk<8>(8 * (r / 2) + r % 2 + 2 * (i / 2), 2 * half + i % 2);
}
__device__ __forceinline__ void load_step_on(unsigned (&to)[4], const uint4* first, int s) {
  load_transposed(to, reinterpret_cast<const unsigned short*>(first + 8 * (32 * (s / 2) + 4 * (s % 2))));
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

/// bfloat16 has the range of 32 bits: rows go into products before they are divided by their deviation, which the sums
/// are instead, in the addition of the bias.
constexpr bool kScaledLate = CLEBSCH_NUMBER == 3;

/// 1 / deviation from a lane's share of the sum of squares.
__device__ __forceinline__ float scale_of(const float (&squares)[4], int columns, float eps) {
  const float square = of_quad((squares[0] + squares[1]) + (squares[2] + squares[3]));
  return inverse_root(square * (1.0f / static_cast<float>(columns)) + eps);
}

/// As normalise_steps, sums of rows by the tensor cores, and numbers unpacked once. Where they are scaled late, to o -
/// mean, and `scales` are what is left.
__device__ __forceinline__ void normalise_steps_by_sums(unsigned (&o)[kHSteps][4], float eps, float (&scales)[2]) {
  constexpr unsigned kOnes = CLEBSCH_NUMBER == 2 ? 0x3c003c00u : 0x3f803f80u;
  const unsigned ones[2] = {kOnes, kOnes};
  float sums[2][4] = {};
#pragma unroll
  for (int s = 0; s < kHSteps; ++s) multiply_half(sums[s % 2], o[s], ones);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float mean = (sums[0][2 * h] + sums[1][2 * h]) * (1.0f / kH);
    float v[kHSteps][4], squares[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const unsigned pair = o[s][h + 2 * (e / 2)];
        v[s][e] = (e % 2 == 0 ? low_of(pair) : high_of(pair)) - mean;
        squares[e] += v[s][e] * v[s][e];
      }
      if (kScaledLate) {
        o[s][h] = pack(v[s][0], v[s][1]);
        o[s][h + 2] = pack(v[s][2], v[s][3]);
      }
    }
    scales[h] = scale_of(squares, kH, eps);
#pragma unroll
    for (int s = 0; s < kHSteps && !kScaledLate; ++s) {
#pragma unroll
      for (int r = 0; r < 2; ++r) o[s][h + 2 * r] = pack(v[s][2 * r] * scales[h], v[s][2 * r + 1] * scales[h]);
    }
  }
}

/// Two rows of o as steps of operands to (o - mean) / deviation, with the norm's weights, times gates. Sums of rows by
/// the tensor cores; nothing is rounded to 16 bits before it is an operand.
__device__ __forceinline__ void normalise_gated(unsigned (&o)[kHSteps][4], const unsigned (&gates)[kHSteps][4],
                                                const float* norm, float eps, int t) {
  constexpr unsigned kOnes = CLEBSCH_NUMBER == 2 ? 0x3c003c00u : 0x3f803f80u;
  const unsigned ones[2] = {kOnes, kOnes};
  float sums[2][4] = {};
#pragma unroll
  for (int s = 0; s < kHSteps; ++s) multiply_half(sums[s % 2], o[s], ones);
  float v[kHSteps][8], scales[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float mean = (sums[0][2 * h] + sums[1][2 * h]) * (1.0f / kH);
    float squares[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const unsigned pair = o[s][h + 2 * (e / 2)];
        v[s][4 * h + e] = (e % 2 == 0 ? low_of(pair) : high_of(pair)) - mean;
        squares[e] += v[s][4 * h + e] * v[s][4 * h + e];
      }
    }
    scales[h] = scale_of(squares, kH, eps);
  }
#pragma unroll
  for (int s = 0; s < kHSteps; ++s) {  // four adjacent columns
    const float* const column = norm + 32 * (s / 2) + 8 * t + 4 * (s % 2);
    const float4 w = *reinterpret_cast<const float4*>(column), b = *reinterpret_cast<const float4*>(column + kH);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* const row = v[s] + 4 * h;
      o[s][h] = pack((row[0] * scales[h] * w.x + b.x) * low_of(gates[s][h]),
                     (row[1] * scales[h] * w.y + b.y) * high_of(gates[s][h]));
      o[s][h + 2] = pack((row[2] * scales[h] * w.z + b.z) * low_of(gates[s][h + 2]),
                         (row[3] * scales[h] * w.w + b.w) * high_of(gates[s][h + 2]));
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
  /// As get(), sums of rows of 16-bit numbers by the tensor cores. Where they are scaled late, x - mean, and `scales`
  /// are what is left.
  __device__ __forceinline__ void get_by_sums(unsigned (&x)[kSteps][4], float eps, float (&scales)[2]) const {
    float sums[2] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float parts[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) {
#if CLEBSCH_X == 1
        const float4 low = eights[h][u].low, high = eights[h][u].high;
        parts[0] += low.x + high.x;
        parts[1] += low.y + high.y;
        parts[2] += low.z + high.z;
        parts[3] += low.w + high.w;
#else
        add_numbers_of_x(parts, eights[h][u].all);
#endif
      }
#if CLEBSCH_X == 1
      sums[h] = of_quad((parts[0] + parts[1]) + (parts[2] + parts[3]));
#else
      sums[h] = parts[0] + parts[2];
#endif
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float mean = sums[h] * (1.0f / kD);
      float v[kD / 32][8], squares[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) {
        eights[h][u].get(v[u]);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          v[u][e] -= mean;
          squares[e % 4] += v[u][e] * v[u][e];
        }
        if (kScaledLate) pack_row(x, v[u], u, h);
      }
      scales[h] = scale_of(squares, kD, eps);
#pragma unroll
      for (int u = 0; u < kD / 32 && !kScaledLate; ++u) {
#pragma unroll
        for (int e = 0; e < 8; ++e) v[u][e] *= scales[h];
        pack_row(x, v[u], u, h);
      }
    }
  }
  /// Eight columns of row g (h = 0) or g + 8.
  static __device__ __forceinline__ void pack_row(unsigned (&x)[kSteps][4], const float (&v)[8], int u, int h) {
#pragma unroll
    for (int r = 0; r < 4; ++r) x[2 * u + r / 2][h + 2 * (r % 2)] = pack(v[2 * r], v[2 * r + 1]);
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

/// Sixteen bytes where a condition holds, without a branch.
__device__ __forceinline__ void store_where(bool where, void* to, const unsigned (&pairs)[4]) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %0, 0;\n@p st.global.v4.b32 [%1], {%2, %3, %4, %5};\n}" ::"r"(
                   static_cast<int>(where)),
               "l"(to), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

/// As store_columns, where the row is one of x; `row`: its first column in the result.
__device__ __forceinline__ void store_columns_where(bool where, void* row, int c, int t, const float (&sums)[4][4],
                                                    int h) {
#if CLEBSCH_X == 1
  float* const to = static_cast<float*>(row) + 32 * c + 4 * t;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const unsigned numbers[4] = {__float_as_uint(sums[2 * part][2 * h]), __float_as_uint(sums[2 * part][2 * h + 1]),
                                 __float_as_uint(sums[2 * part + 1][2 * h]),
                                 __float_as_uint(sums[2 * part + 1][2 * h + 1])};
    store_where(where, to + 16 * part, numbers);
  }
#else
  const unsigned pairs[4] = {pack_out(sums[0][2 * h], sums[0][2 * h + 1]), pack_out(sums[1][2 * h], sums[1][2 * h + 1]),
                             pack_out(sums[2][2 * h], sums[2][2 * h + 1]),
                             pack_out(sums[3][2 * h], sums[3][2 * h + 1])};
  store_where(where, static_cast<unsigned short*>(row) + 32 * c + 8 * t, pairs);
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

/// The same of tanh(z), where sigmoid(2 z) is made of it later.
__device__ __forceinline__ void tanhs_of(unsigned (&gates)[4], const float (&z)[4][4], int part) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int n = 2 * part + r / 2;
    gates[r] = pack(tanh_near(z[n][2 * (r % 2)]), tanh_near(z[n][2 * (r % 2) + 1]));
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
