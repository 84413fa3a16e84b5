#pragma once
// Parts of the kernels to the gradient of o, the same for warps and for warpgroups.
#include "multilinear/triangle/kernels/gradients.cuh"

constexpr int kPlanes = 2 * kHidden;  // vectors of a warp's tile

/// Starts to copy the images of g_out and of p_out, one after the other.
__device__ __forceinline__ void copy_images(uint4* memory, const GradientArguments& a) {
  constexpr int kImageIn = kOut * kD / 8, kImageOut = kOut * kHidden / 8;
  const uint4* from = static_cast<const uint4*>(a.input_image);
  for (int at = threadIdx.x; at < kImageIn; at += kGradientThreads) {
    const int block = at / (8 * kOut);
    copy16(memory + at, from + 8 * (block * (kGradientWidths - kOut) + 4 * kHidden) + at);
  }
  from = static_cast<const uint4*>(a.output_image);
  for (int at = threadIdx.x; at < kImageOut; at += kGradientThreads) copy16(memory + kImageIn + at, from + at);
}

/// Starts to copy a tile of o, by channel.
__device__ __forceinline__ void fetch_o(uint4* to, const GradientArguments& a, long long tile) {
  const long long square = a.shape.n * a.shape.n;
  const unsigned short* o = static_cast<const unsigned short*>(a.o) + GradientTile(a, tile).planes;
#pragma unroll
  for (int group = 0; group < kHidden / 32; ++group) {
    fetch_planes(to + 64 * group, o + 32 * group * square, square);
  }
}

/// A warp's tile of o to normalised rows, which are also stored, and 1 / deviation.
__device__ __forceinline__ void load_o(unsigned (&o)[kHidden / 16][4], float (&inverse)[2], const GradientArguments& a,
                                       const GradientTile& tile, const uint4* here) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int i = lane / 8, r = lane % 8;
#pragma unroll
  for (int s = 0; s < kHidden / 16; ++s) {
    load_turned(o[s], reinterpret_cast<const unsigned short*>(here + plane_vector(16 * s + 8 * (i / 2) + r, i % 2)));
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float mean;
    inverse[h] = norm_of_row(o, h, a.eps_of_o, mean);
    operand* to = static_cast<operand*>(a.o_normal) + (tile.row - a.first_row + g + 8 * h) * kHidden + 8 * t;
#pragma unroll
    for (int u = 0; u < kHidden / 32; ++u) {
      float normal[8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        unsigned& pair = pair_of(o, u, j, h);
        normal[2 * j] = (low2(pair) - mean) * inverse[h];
        normal[2 * j + 1] = (high2(pair) - mean) * inverse[h];
        pair = pack2(normal[2 * j], normal[2 * j + 1]);
      }
      store_eight<true>(to + 32 * u, normal);
    }
  }
}

/// Of a warp's tile and 32 columns of out: z and y are what gates and results are made of, `grad` the gradient of out
/// in rows g and g + 8. Stores the gradients of both, adds their sums over rows to `sums` (null: not wanted), and
/// gives that of y as first operands.
__device__ __forceinline__ void gate_gradients(const GradientArguments& a, const GradientTile& tile, float (&z)[4][4],
                                               float (&y)[4][4], const float (&grad)[2][8], float scale,
                                               unsigned (&projected)[2][4], int group, float* sums) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const long long row = tile.row - a.first_row + g;
  float y_sums[8], z_sums[8];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float given = grad[r / 2][2 * j + r % 2], of_out = kPrecision == kHalf ? given * scale : given,
                  open = sigmoid_near(z[j][r]);
      // 0 stays 0, whatever it is multiplied by.
      z[j][r] = of_out == 0.0f ? 0.0f : of_out * y[j][r] * open * (1.0f - open);
      y[j][r] = of_out == 0.0f ? 0.0f : of_out * open;
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      y_sums[2 * j + e] = y[j][e] + y[j][2 + e];
      z_sums[2 * j + e] = z[j][e] + z[j][2 + e];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) pair_of(projected, 0, j, h) = pack2(y[j][2 * h], y[j][2 * h + 1]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int column = 32 * group + 8 * t;
    store_columns<true>(static_cast<operand*>(a.grad_projected) + (row + 8 * h) * kOut + column, y, h);
    store_columns<false>(static_cast<operand*>(a.grad_gates) + (tile.row + g + 8 * h) * kOut + column, z, h);
  }
  const int column = 32 * group + 8 * t + place_in_eight();
  const float of_y = sum_of_rows(y_sums), of_z = sum_of_rows(z_sums);
  if (!sums) return;
  sums[column] += of_y;
  sums[kOut + column] += of_z;
}

/// The norm's gradient of a warp's tile; it takes o's place in shared memory, as channels of 16 rows each, by
/// store(here, rows as operands), and is written by channel.
template <typename Store>
__device__ __forceinline__ void write_grad_o(const GradientArguments& a, const GradientTile& tile,
                                             unsigned (&o)[kHidden / 16][4], const float (&grad_o)[kHidden / 8][4],
                                             const float (&inverse)[2], uint4* here, const Store& store) {
  const int lane = threadIdx.x % 32;
  const long long square = a.shape.n * a.shape.n;
  __syncwarp();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = 0, along = 0;
#pragma unroll
    for (int n = 0; n < kHidden / 8; ++n) {
      const unsigned pair = pair_of(o, n / 4, n % 4, h);
      sum += grad_o[n][2 * h] + grad_o[n][2 * h + 1];
      along += grad_o[n][2 * h] * low2(pair) + grad_o[n][2 * h + 1] * high2(pair);
    }
    sum = of_quad(sum) * (1.0f / kHidden);
    along = of_quad(along) * (1.0f / kHidden);
#pragma unroll
    for (int n = 0; n < kHidden / 8; ++n) {
      unsigned& pair = pair_of(o, n / 4, n % 4, h);
      pair = pack2(nearest_finite((grad_o[n][2 * h] - sum - low2(pair) * along) * inverse[h]),
                   nearest_finite((grad_o[n][2 * h + 1] - sum - high2(pair) * along) * inverse[h]));
    }
  }
  store(here, o);
  __syncwarp();
  unsigned short* to = static_cast<unsigned short*>(a.grad_o) + tile.planes;
#pragma unroll 4
  for (int part = lane; part < kPlanes; part += 32) {
    const int channel = part / 2, chunk = part % 2;
    *reinterpret_cast<uint4*>(to + channel * square + 8 * chunk) = here[plane_vector(place_of(channel), chunk)];
  }
  __syncwarp();
}
