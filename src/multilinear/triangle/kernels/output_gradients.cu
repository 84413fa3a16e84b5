// From the gradient of out to those of o, of what is projected and of the gates, 16 rows a warp. gradients.cuh says
// how.
#include "multilinear/triangle/kernels/output_gradients.cuh"

constexpr int kImageIn = kOut * kD / 8, kImageOut = kOut * kHidden / 8;  // vectors

__device__ __forceinline__ void store_turned(uint4* here, const unsigned (&o)[kHidden / 16][4]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int s = 0; s < kHidden / 16; ++s) {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        reinterpret_cast<unsigned short*>(here + plane_vector(16 * s + 8 * (p / 2) + 2 * t + e, p % 2))[g] =
            static_cast<unsigned short>(o[s][p] >> 16 * e);
      }
    }
  }
}

/// Dynamic shared memory: the image of g_out, that of p_out, a tile of o and the next for every warp, sums (warps, 2
/// out).
extern "C" __global__ void __launch_bounds__(kGradientThreads, 1) output_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Image<kD, kOut> gates(memory);
  const Image<kHidden, kOut> output(memory + kImageIn);
  uint4* planes = memory + kImageIn + kImageOut + warp * 2 * kPlanes;
  float* all_sums = reinterpret_cast<float*>(memory + kImageIn + kImageOut + kGradientWarps * 2 * kPlanes);
  float* sums = all_sums + warp * 2 * kOut;
  copy_images(memory, a);
  for (int at = lane; at < 2 * kOut; at += 32) sums[at] = 0;
  const long long tiles = a.rows / kGradientRows, step = static_cast<long long>(gridDim.x) * kGradientWarps;
  long long at = static_cast<long long>(blockIdx.x) * kGradientWarps + warp;
  const auto fetch = [&](uint4* to, long long index) {
    if (index < tiles) fetch_o(to, a, index);
    end_copies();
  };
  fetch(planes, at);
  await_copies<0>();
  __syncthreads();
  const float scale = a.grad_scale ? a.grad_scale[0] : 1.0f;
  const float* gate_bias = a.input_bias + 4 * kHidden;
  for (int turn = 0; at < tiles; at += step, turn ^= 1) {
    const GradientTile tile(a, at);
    uint4* here = planes + turn * kPlanes;
    fetch(planes + (turn ^ 1) * kPlanes, at + step);
    float mask[2], inverse_x[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) mask[h] = mask_at(a.mask, tile.row + g + 8 * h);
    unsigned x[kD / 16][4], o[kHidden / 16][4];
    load_x(x, inverse_x, a, tile.row, mask, nullptr);
    await_copies<1>();
    __syncwarp();
    float inverse[2];
    load_o(o, inverse, a, tile, here);
    float grad_o[kHidden / 8][4] = {};
#pragma unroll 1
    for (int group = 0; group < kOut / 32; ++group) {
      float z[4][4], y[4][4], grad[2][8];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        load8(static_cast<const number*>(a.grad) + (tile.row + g + 8 * h) * kOut + 32 * group + 8 * t, grad[h]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = 32 * group + 8 * t + 2 * j;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          z[j][r] = __ldg(gate_bias + column + r % 2);
          y[j][r] = __ldg(a.output_bias + column + r % 2);
        }
      }
      gates.multiply(z, x, 32 * group);
      output.multiply(y, o, 32 * group);
      unsigned projected[2][4];
      gate_gradients(a, tile, z, y, grad, scale, projected, group, sums);
      output.multiply_turned(grad_o, projected[0], 32 * group);
      output.multiply_turned(grad_o, projected[1], 32 * group + 16);
    }
    write_grad_o(a, tile, o, grad_o, inverse, here, store_turned);
  }
  await_copies<0>();
  write_slot<2 * kOut>(a.output_slots, all_sums, a.first);
}
