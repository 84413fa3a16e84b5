// As output_gradients.cu, by warpgroups: four warps multiply together, and do all else each for itself.
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"
#include "multilinear/triangle/kernels/output_gradients.cuh"

constexpr int kImageIn = kOut * kD / 8, kImageOut = kOut * kHidden / 8;  // vectors
/// Rows of x and of the gradient are copied one tile ahead, or a warp waits for them more than for all else.
constexpr bool kAhead = output_takes_rows_ahead(kD, kHidden, kOut, sizeof(number));
constexpr int kRowsOfX = kAhead ? kGradientRows * kD / 8 : 0, kRowsOfGrad = kAhead ? kGradientRows * kOut / 8 : 0;

/// Of four tiles of eight rows and channels, lane 8 i + r says where channel r of tile i begins.
__device__ __forceinline__ void store_turned(uint4* here, const unsigned (&o)[kHidden / 16][4]) {
  const int i = threadIdx.x % 32 / 8, r = threadIdx.x % 8;
#pragma unroll
  for (int s = 0; s < kHidden / 16; ++s) {
    const unsigned to = shared_address(here + plane_vector(16 * s + 8 * (i / 2) + r, i % 2));
    const unsigned(&from)[4] = o[s];
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]),
                 "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
  }
}

extern "C" __global__ void __launch_bounds__(kGradientThreads, 1) output_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 all_memory[];
  uint4* const memory = aligned_memory(all_memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const WarpgroupImage<kD, kOut> gates{shared_address(memory)};
  const WarpgroupImage<kHidden, kOut> output{shared_address(memory + kImageIn)};
  uint4* planes = memory + kImageIn + kImageOut + warp * 2 * kPlanes;
  uint4* const of_x = memory + kImageIn + kImageOut + kGradientWarps * 2 * kPlanes + warp * (kRowsOfX + kRowsOfGrad);
  uint4* const of_grad = of_x + kRowsOfX;
  float* all_sums =
      reinterpret_cast<float*>(memory + kImageIn + kImageOut + kGradientWarps * (2 * kPlanes + kRowsOfX + kRowsOfGrad));
  float* sums = all_sums + warp * 2 * kOut;
  copy_images(memory, a);
  for (int at = lane; at < 2 * kOut; at += 32) sums[at] = 0;
  const long long tiles = a.rows / kGradientRows, step = static_cast<long long>(gridDim.x) * kGradientWarps;
  // Warps of a warpgroup go on together; one without a tile does the last once more, and adds nothing to sums.
  long long first = static_cast<long long>(blockIdx.x) * kGradientWarps + warp / 4 * 4;
  const auto tile_at = [&](long long from) { return min(from + warp % 4, tiles - 1); };
  const auto fetch = [&](uint4* to, long long from) {
    if (from < tiles) fetch_o(to, a, tile_at(from));
    end_copies();
  };
  const auto row_at = [&](long long from) { return a.first_row + tile_at(from) * kGradientRows; };
  // Copies come in three groups a tile, some of them empty: o, x, the gradient.
  const auto fetch_x = [&](long long from) {
    if (kAhead && from < tiles) fetch_rows<kD>(of_x, a.x, row_at(from));
    end_copies();
  };
  const auto fetch_grad = [&](long long from) {
    if (kAhead && from < tiles) fetch_rows<kOut>(of_grad, a.grad, row_at(from));
    end_copies();
  };
  float next_mask[2];
  const auto read_mask = [&](long long from) {
#pragma unroll
    for (int h = 0; h < 2; ++h) next_mask[h] = mask_at(a.mask, row_at(from) + g + 8 * h);
  };
  fetch(planes, first);
  fetch_x(first);
  fetch_grad(first);
  read_mask(first);
  await_copies<0>();
  fence_copies();
  __syncthreads();
  const float scale = a.grad_scale ? a.grad_scale[0] : 1.0f;
  const float* gate_bias = a.input_bias + 4 * kHidden;
#pragma unroll 1
  for (int turn = 0; first < tiles; first += step, turn ^= 1) {
    const GradientTile tile(a, tile_at(first));
    const bool counts = first + warp % 4 < tiles;
    uint4* here = planes + turn * kPlanes;
    fetch(planes + (turn ^ 1) * kPlanes, first + step);
    const float mask[2] = {next_mask[0], next_mask[1]};
    float inverse_x[2];
    if (first + step < tiles) read_mask(first + step);
    unsigned x[kD / 16][4], o[kHidden / 16][4];
    await_copies<2>();  // this tile's o and x
    __syncwarp();
    if (kAhead) {
      const auto read = [&](int h, int u, float(&v)[8]) {
        load8(reinterpret_cast<const number*>(of_x + row_vector<kD>(g + 8 * h, 4 * u + t)), v);
      };
      norm_x(x, inverse_x, a.eps, read, mask, nullptr);
    } else {
      load_x(x, inverse_x, a, tile.row, mask, nullptr);
      if (first + step < tiles) {
        ask_for_tile(a.x, row_at(first + step), kD * static_cast<int>(sizeof(number)));
        ask_for_tile(a.grad, row_at(first + step), kOut * static_cast<int>(sizeof(number)));
      }
    }
    __syncwarp();
    fetch_x(first + step);
    float inverse[2];
    load_o(o, inverse, a, tile, here);
    float grad_o[kHidden / 2];
    clear(grad_o);
#pragma unroll 1
    for (int both = 0; both < kOut / 64; ++both) {
      float z[32], y[32], grad[2][2][8];
      clear(z);
      clear(y);
      begin_products();
      gates.multiply(z, x, 64 * both);
      output.multiply(y, o, 64 * both);
      end_products();
      await_copies<2>();  // this tile's gradient
      __syncwarp();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const number* from =
              static_cast<const number*>(a.grad) + (tile.row + g + 8 * h) * kOut + 64 * both + 32 * half + 8 * t;
          if (kAhead) {
            from = reinterpret_cast<const number*>(of_grad + row_vector<kOut>(g + 8 * h, 8 * both + 4 * half + t));
          }
          load8(from, grad[half][h]);
        }
      }
      await_products<0>();
      hold(z);
      hold(y);
      unsigned projected[2][2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int group = 2 * both + half;
        float of_gates[4][4], of_group[4][4];
        take_tiles(of_gates, z, half, gate_bias + 32 * group);
        take_tiles(of_group, y, half, a.output_bias + 32 * group);
        gate_gradients(a, tile, of_gates, of_group, grad[half], scale, projected[half], group, counts ? sums : nullptr);
      }
      begin_products();
#pragma unroll
      for (int s = 0; s < 4; ++s) output.multiply_turned(grad_o, projected[s / 2][s % 2], 64 * both + 16 * s);
      end_products();
      await_products<0>();
      hold(grad_o);
    }
    __syncwarp();
    fetch_grad(first + step);
    write_grad_o(a, tile, o, tiles_of(grad_o), inverse, here, store_turned);
  }
  await_copies<0>();
  write_slot<2 * kOut>(a.output_slots, all_sums, a.first);
}
