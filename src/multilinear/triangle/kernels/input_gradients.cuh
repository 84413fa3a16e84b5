#pragma once
// Parts of the kernels to the gradient of x, the same for warps and for warpgroups.
#include "multilinear/triangle/kernels/gradients.cuh"

/// Of a warp's tile and 32 channels of left or right: `planes` has their gradients, as rows; z and gate are what
/// projection and gate are made of, and become the gradients of both.
__device__ __forceinline__ void to_gradients(const unsigned (&planes)[2][4], float scale, const float (&mask)[2],
                                             float (&z)[4][4], float (&gate)[4][4], float (&of_mask)[2]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const unsigned pair = planes[j / 2][2 * (j % 2) + h];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float stored = e == 0 ? low2(pair) : high2(pair), grad = kPrecision == kHalf ? stored * scale : stored;
        const float open = sigmoid_near(gate[j][2 * h + e]), value = z[j][2 * h + e], of_value = grad * open;
        if (CLEBSCH_MASK == 2) of_mask[h] += of_value * value;
        // Where the mask is 0 gradients may be infinite: a row of zeros in o has a small deviation.
        z[j][2 * h + e] = mask[h] == 0.0f ? 0.0f : mask[h] * of_value;
        gate[j][2 * h + e] = z[j][2 * h + e] * value * (1.0f - open);
      }
    }
  }
}

/// The same; adds their sums over rows to `sums` (null: not wanted) and stores the gradients unless a.grad_projections
/// is null; gives them as first operands.
__device__ __forceinline__ void projection_gradients(const GradientArguments& a, const unsigned (&planes)[2][4],
                                                     float scale, const float (&mask)[2], float (&z)[4][4],
                                                     float (&gate)[4][4], float (&of_mask)[2], unsigned (&of_z)[2][4],
                                                     unsigned (&of_gate)[2][4], long long row, int group, float* sums) {
  const int t = threadIdx.x % 4;
  to_gradients(planes, scale, mask, z, gate, of_mask);
  float z_sums[8], gate_sums[8];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      pair_of(of_z, 0, j, h) = pack2(z[j][2 * h], z[j][2 * h + 1]);
      pair_of(of_gate, 0, j, h) = pack2(gate[j][2 * h], gate[j][2 * h + 1]);
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      z_sums[2 * j + e] = z[j][e] + z[j][2 + e];
      gate_sums[2 * j + e] = gate[j][e] + gate[j][2 + e];
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (!a.grad_projections) continue;
    operand* to = static_cast<operand*>(a.grad_projections) + (row + 8 * h) * 4 * kHidden + 32 * group + 8 * t;
    store_columns<true>(to, z, h);
    store_columns<true>(to + 2 * kHidden, gate, h);
  }
  const int column = 32 * group + 8 * t + place_in_eight();
  const float sum_of_z = sum_of_rows(z_sums), sum_of_gate = sum_of_rows(gate_sums);
  if (!sums) return;
  sums[column] += sum_of_z;
  sums[2 * kHidden + column] += sum_of_gate;
}

/// The norm's gradient of a warp's tile, and that of the mask.
__device__ __forceinline__ void write_grad_x(const GradientArguments& a, const GradientTile& tile,
                                             unsigned (&x)[kD / 16][4], const float (&grad_x)[kD / 8][4],
                                             const float (&inverse)[2], const float (&of_mask)[2], float unscale) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (CLEBSCH_MASK == 2 && a.grad_mask) {
      const float sum = of_quad(of_mask[h]);
      if (t == 0) a.grad_mask[tile.row + g + 8 * h] = sum * unscale;
    }
    float sum = 0, along = 0;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      const unsigned pair = pair_of(x, n / 4, n % 4, h);
      sum += grad_x[n][2 * h] + grad_x[n][2 * h + 1];
      along += grad_x[n][2 * h] * low2(pair) + grad_x[n][2 * h + 1] * high2(pair);
    }
    sum = of_quad(sum) * (1.0f / kD);
    along = of_quad(along) * (1.0f / kD);
    if (!a.grad_x) continue;
    const float by = inverse[h] * unscale;
#pragma unroll
    for (int u = 0; u < kD / 32; ++u) {
      float result[8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const unsigned pair = pair_of(x, u, j, h);
        result[2 * j] = (grad_x[4 * u + j][2 * h] - sum - low2(pair) * along) * by;
        result[2 * j + 1] = (grad_x[4 * u + j][2 * h + 1] - sum - high2(pair) * along) * by;
      }
      store8(static_cast<number*>(a.grad_x) + (tile.row + g + 8 * h) * kD + 32 * u + 8 * t, result);
    }
  }
}
