// From the gradients of left and right and of the gates to those of x, of its projections and of the mask, 16 rows a
// warp. gradients.cuh says how.
#include "multilinear/triangle/kernels/input_gradients.cuh"

constexpr int kImage = kGradientWidths * kD / 8, kGroups = 2 * kHidden / 32;
constexpr int kRing = kGroups < kGradientRing ? kGroups : kGradientRing;

/// Dynamic shared memory: the image of all weights, a ring of kRing groups of 32 channels for every warp, sums (warps,
/// 4 hidden).
extern "C" __global__ void __launch_bounds__(kGradientThreads, 1) input_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint4* ring = memory + kImage + warp * kRing * 64;
  float* all_sums = reinterpret_cast<float*>(memory + kImage + kGradientWarps * kRing * 64);
  float* sums = all_sums + warp * 4 * kHidden;
  for (int at = threadIdx.x; at < kImage; at += kGradientThreads) {
    copy16(memory + at, static_cast<const uint4*>(a.input_image) + at);
  }
  for (int at = lane; at < 4 * kHidden; at += 32) sums[at] = 0;
  const long long tiles = a.rows / kGradientRows, step = static_cast<long long>(gridDim.x) * kGradientWarps;
  const long long square = a.shape.n * a.shape.n;
  long long at = static_cast<long long>(blockIdx.x) * kGradientWarps + warp;
  // A group of 32 channels of left or right to a place of the ring.
  const auto fetch = [&](bool there, long long planes, int group, int slot) {
    if (there) {
      const bool of_left = 32 * group < kHidden;
      const unsigned short* from = static_cast<const unsigned short*>(of_left ? a.grad_left : a.grad_right) + planes;
      fetch_planes(ring + 64 * slot, from + (of_left ? 32 * group : 32 * group - kHidden) * square, square);
    }
    end_copies();
  };
  long long planes_of_next = GradientTile(a, at < tiles ? at : 0).planes;
#pragma unroll
  for (int group = 0; group < kRing; ++group) fetch(at < tiles, planes_of_next, group, group);
  // The image came with the first group.
  await_copies<kRing - 1>();
  __syncthreads();
  const Image<kD, kGradientWidths> image(memory);
  const float unscale = a.grad_scale ? a.grad_scale[1] : 1.0f;
  int slot = 0;
#pragma unroll 1
  for (; at < tiles; at += step) {
    const GradientTile tile(a, at);
    const bool next = at + step < tiles;
    if (next) planes_of_next = GradientTile(a, at + step).planes;
    const long long row = tile.row - a.first_row + g;
    float mask[2], inverse[2], of_mask[2] = {0.0f, 0.0f};
#pragma unroll
    for (int h = 0; h < 2; ++h) mask[h] = mask_at(a.mask, tile.row + g + 8 * h);
    unsigned x[kD / 16][4];
    load_x(x, inverse, a, tile.row, mask, static_cast<operand*>(a.x_normal) + (row - g) * kD);
    float grad_x[kD / 8][4] = {};
#pragma unroll 1
    for (int group = 0; group < kGroups; ++group) {
      float z[4][4], gate[4][4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = 32 * group + 8 * t + 2 * j;
        const float2 bias = *reinterpret_cast<const float2*>(a.input_bias + column),
                     gate_bias = *reinterpret_cast<const float2*>(a.input_bias + 2 * kHidden + column);
        z[j][0] = z[j][2] = bias.x;
        z[j][1] = z[j][3] = bias.y;
        gate[j][0] = gate[j][2] = gate_bias.x;
        gate[j][1] = gate[j][3] = gate_bias.y;
      }
      image.multiply(z, x, 32 * group);
      image.multiply(gate, x, 2 * kHidden + 32 * group);
      await_copies<kRing - 1>();
      __syncwarp();
      unsigned planes[2][4];  // tiles 2 p and 2 p + 1: rows g, g + 8 of each
      {
        const int i = lane / 8, r = lane % 8;
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          load_turned(planes[p], reinterpret_cast<const unsigned short*>(
                                     ring + 64 * slot + plane_vector(16 * p + 8 * (i / 2) + r, i % 2)));
        }
      }
      __syncwarp();
      {
        const bool in_tile = group + kRing < kGroups;
        fetch(in_tile || next, in_tile ? tile.planes : planes_of_next,
              in_tile ? group + kRing : group + kRing - kGroups, slot);
        slot = slot + 1 == kRing ? 0 : slot + 1;
      }
      const float scale = 32 * group < kHidden ? a.left_scale : 1.0f;
      unsigned of_z[2][4], of_gate[2][4];
      projection_gradients(a, planes, scale, mask, z, gate, of_mask, of_z, of_gate, row, group, sums);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        image.multiply_turned(grad_x, of_z[s], 32 * group + 16 * s);
        image.multiply_turned(grad_x, of_gate[s], 2 * kHidden + 32 * group + 16 * s);
      }
    }
#pragma unroll 1
    for (int group = 0; group < kOut / 32; ++group) {
      unsigned gates[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4 all = *reinterpret_cast<const uint4*>(static_cast<const operand*>(a.grad_gates) +
                                                          (tile.row + g + 8 * h) * kOut + 32 * group + 8 * t);
        gates[0][h] = all.x;
        gates[0][2 + h] = all.y;
        gates[1][h] = all.z;
        gates[1][2 + h] = all.w;
      }
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        image.multiply_turned(grad_x, gates[s], 4 * kHidden + 32 * group + 16 * s);
      }
    }
    write_grad_x(a, tile, x, grad_x, inverse, of_mask, unscale);
  }
  await_copies<0>();
  write_slot<4 * kHidden>(a.input_slots, all_sums, a.first);
}
