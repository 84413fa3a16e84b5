#pragma once
// What prepare.cu makes, made by project_overlapped.cu itself: each block has the matrices of its own products, and all
// together those of the last kernel. A kernel less begins, and nobody waits for it. Matrices of weights begin at
// multiples of 16 bytes.
#include "multilinear/triangle/kernels/weights.cuh"

/// Eight adjacent numbers of a matrix.
__device__ __forceinline__ void load_eight_weights(float (&v)[8], const void* matrix, long long at) {
#if CLEBSCH_WEIGHTS == 0
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = number_of(matrix, at + i);
#elif CLEBSCH_WEIGHTS == 1
  const float4* const from = reinterpret_cast<const float4*>(static_cast<const float*>(matrix) + at);
  const float4 low = __ldg(from), high = __ldg(from + 1);
  v[0] = low.x;
  v[1] = low.y;
  v[2] = low.z;
  v[3] = low.w;
  v[4] = high.x;
  v[5] = high.y;
  v[6] = high.z;
  v[7] = high.w;
#else
  const uint4 all = __ldg(reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(matrix) + at));
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const unsigned bits = part_of(all, i / 2) >> 16 * (i % 2) & 0xffffu;
    v[i] = CLEBSCH_WEIGHTS == 2 ? half_to_float(bits) : __uint_as_float(bits << 16);
  }
#endif
}

/// Units of 32 channels from `first` on, as project_overlapped.cu has them in shared memory at `units`, by a warpgroup:
/// warp w makes rows 16 w .. + 15 of each, the lanes kD / 8 of a row eight columns each. A lane gets the biases of its
/// channel, 8 w + lane / 4 of each unit.
template <int kUnits>
__device__ __forceinline__ void make_units(const FusedArguments& a, unsigned char* units, int first, int warp, int lane,
                                           float (&projections)[kUnits], float (&gates)[kUnits]) {
  constexpr int kOfRow = kD / 8, kRows = 32 / kOfRow, kPasses = 16 / kRows;
  static_assert(kOfRow <= 16 && 16 % kRows == 0, "a warp has two rows or more");
  const Weights& w = a.weights;
  const int chunk = lane % kOfRow, g = lane / 4;
  float norm[8], norm_bias[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    norm[i] = number_or(w.norm_in_weight, 8 * chunk + i, 1.0f);
    norm_bias[i] = number_or(w.norm_in_bias, 8 * chunk + i, 0.0f);
  }
#pragma unroll 1
  for (int unit = 0; unit < kUnits; ++unit) {
    const int channels = 32 * (first + unit) + 8 * warp;
    float numbers[kPasses][8];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = pass * kRows + lane / kOfRow;
      load_eight_weights(numbers[pass], row < 8 ? w.p_in_weight : w.g_in_weight,
                         static_cast<long long>(channels + row % 8) * kD + 8 * chunk);
    }
    float projection = number_or(w.p_in_bias, channels + g, 0.0f), gate = number_or(w.g_in_bias, channels + g, 0.0f);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = pass * kRows + lane / kOfRow;
      float sum = 0.0f;
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        sum += numbers[pass][i] * norm_bias[i] + numbers[pass][i + 1] * norm_bias[i + 1];
        pairs[i / 2] = pack(0.5f * numbers[pass][i] * norm[i], 0.5f * numbers[pass][i + 1] * norm[i + 1]);
      }
      *reinterpret_cast<uint4*>(units + (unit * (kD / 64) + chunk / 8) * (64 * 128) + (16 * warp + row) * 128 +
                                (chunk % 8 ^ row % 8) * 16) = vector_of(pairs);
#pragma unroll
      for (int bits = kOfRow / 2; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
      // Rows g and g + 8 are the lane's.
      const float of_own = __shfl_sync(0xffffffffu, sum, kOfRow * (g % kRows));
      if (pass == g / kRows) projection += of_own;
      if (pass == (8 + g) / kRows) gate += of_own;
    }
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {  // registers have no index
      if (i == unit) {
        projections[i] = 0.5f * projection;
        gates[i] = 0.5f * gate;
      }
    }
  }
}

/// What the last kernel multiplies, by warps of all blocks; the last blocks come first, which have fewer rows.
__device__ __forceinline__ void make_last(const FusedArguments& a, int warp, int warps) {
  constexpr int kVectors = (kPVectors + kGVectors) / 32;
  for (int at = static_cast<int>(gridDim.x - 1 - blockIdx.x) * warps + warp; at < kVectors + kOutBiases;
       at += static_cast<int>(gridDim.x) * warps) {
    if (at < kVectors) {
      write_out_vector(a, 32 * at + static_cast<int>(threadIdx.x % 32));
    } else {
      write_out_bias(a, at - kVectors);
    }
  }
}
