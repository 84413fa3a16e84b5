// As input_gradients.cu, by warpgroups: four warps multiply together, and do all else each for itself.
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"
#include "multilinear/triangle/kernels/input_gradients.cuh"

constexpr int kImage = kGradientWidths * kD / 8, kGroups = 2 * kHidden / 32;
/// Rows of x are copied one tile ahead.
constexpr bool kAhead = input_takes_rows_ahead(kD, kHidden, kOut, sizeof(number));
constexpr int kRing = groups_on_their_way(kHidden, kAhead), kRowsOfX = kAhead ? kGradientRows * kD / 8 : 0;
static_assert(!kAhead || kRing == 2, "the first two groups of a tile come before rows that are copied after them");

extern "C" __global__ void __launch_bounds__(kGradientThreads, 1) input_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 all_memory[];
  uint4* const memory = aligned_memory(all_memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint4* ring = memory + kImage + warp * kRing * 64;
  uint4* const of_x = memory + kImage + kGradientWarps * kRing * 64 + warp * kRowsOfX;
  float* all_sums = reinterpret_cast<float*>(memory + kImage + kGradientWarps * (kRing * 64 + kRowsOfX));
  float* sums = all_sums + warp * 4 * kHidden;
  for (int at = threadIdx.x; at < kImage; at += kGradientThreads) {
    copy16(memory + at, static_cast<const uint4*>(a.input_image) + at);
  }
  for (int at = lane; at < 4 * kHidden; at += 32) sums[at] = 0;
  const long long tiles = a.rows / kGradientRows, step = static_cast<long long>(gridDim.x) * kGradientWarps;
  const long long square = a.shape.n * a.shape.n;
  // Warps of a warpgroup go on together; one without a tile does the last once more, and adds nothing to sums.
  long long first = static_cast<long long>(blockIdx.x) * kGradientWarps + warp / 4 * 4;
  const auto tile_at = [&](long long from) { return min(from + warp % 4, tiles - 1); };
  const auto fetch = [&](bool there, long long planes, int group, int slot) {
    if (there) {
      const bool of_left = 32 * group < kHidden;
      const unsigned short* from = static_cast<const unsigned short*>(of_left ? a.grad_left : a.grad_right) + planes;
      fetch_planes(ring + 64 * slot, from + (of_left ? 32 * group : 32 * group - kHidden) * square, square);
    }
    end_copies();
  };
  long long planes_of_next = GradientTile(a, tile_at(first)).planes;
#pragma unroll
  for (int group = 0; group < kRing; ++group) fetch(first < tiles, planes_of_next, group, group);
  const auto row_at = [&](long long from) { return a.first_row + tile_at(from) * kGradientRows; };
  const auto fetch_x = [&](long long from) {
    if (!kAhead) return;
    if (from < tiles) fetch_rows<kD>(of_x, a.x, row_at(from));
    end_copies();
  };
  float next_mask[2];
  const auto read_mask = [&](long long from) {
#pragma unroll
    for (int h = 0; h < 2; ++h) next_mask[h] = mask_at(a.mask, row_at(from) + g + 8 * h);
  };
  fetch_x(first);
  read_mask(first);
  await_copies<0>();
  fence_copies();
  __syncthreads();
  const WarpgroupImage<kD, kGradientWidths> image{shared_address(memory)};
  const float unscale = a.grad_scale ? a.grad_scale[1] : 1.0f;
  int slot = 0;
#pragma unroll 1
  for (; first < tiles; first += step) {
    const GradientTile tile(a, tile_at(first));
    const bool next = first + step < tiles, counts = first + warp % 4 < tiles;
    if (next) {
      const GradientTile after(a, tile_at(first + step));
      planes_of_next = after.planes;
      if (!kAhead) ask_for_tile(a.x, after.row, kD * static_cast<int>(sizeof(number)));
      ask_for_tile(a.grad_gates, after.row, kOut * 2);
    }
    const long long row = tile.row - a.first_row + g;
    const float mask[2] = {next_mask[0], next_mask[1]};
    float inverse[2], of_mask[2] = {0.0f, 0.0f};
    if (next) read_mask(first + step);
    operand* const normal = a.x_normal ? static_cast<operand*>(a.x_normal) + (row - g) * kD : nullptr;
    unsigned x[kD / 16][4];
    if (kAhead) {  // they came before this tile's last groups
      __syncwarp();
      const auto read = [&](int h, int u, float(&v)[8]) {
        load8(reinterpret_cast<const number*>(of_x + row_vector<kD>(g + 8 * h, 4 * u + t)), v);
      };
      norm_x(x, inverse, a.eps, read, mask, normal);
      __syncwarp();
    } else {
      load_x(x, inverse, a, tile.row, mask, normal);
    }
    fetch_x(first + step);
    float grad_x[kD / 2];
    clear(grad_x);
    constexpr int kTurns = kGroups / 2 % 2 == 0 ? 2 : 1;
#pragma unroll 1
    for (int first_turn = 0; first_turn < kGroups / 2; first_turn += kTurns) {
      float z[32], gate[32];
      const auto project = [&](int both) {
        image.multiply(z, x, 64 * both);
        image.multiply(gate, x, 2 * kHidden + 64 * both);
      };
      clear(z);
      clear(gate);
      begin_products();
      project(first_turn);
      end_products();
      await_products<0>();
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int both = first_turn + turn;
        hold(z);
        hold(gate);
        unsigned of_z[2][2][4], of_gate[2][2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int group = 2 * both + half;
          if (kAhead && both == 0) {
            await_copies<kRing>();  // rows of x are on their way, too
          } else {
            await_copies<kRing - 1>();
          }
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
          float of_group[4][4], of_gates[4][4];
          take_tiles(of_group, z, half, a.input_bias + 32 * group);
          take_tiles(of_gates, gate, half, a.input_bias + 2 * kHidden + 32 * group);
          projection_gradients(a, planes, scale, mask, of_group, of_gates, of_mask, of_z[half], of_gate[half], row,
                               group, counts ? sums : nullptr);
        }
        begin_products();
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          image.multiply_turned(grad_x, of_z[s / 2][s % 2], 64 * both + 16 * s);
          image.multiply_turned(grad_x, of_gate[s / 2][s % 2], 2 * kHidden + 64 * both + 16 * s);
        }
        if (turn + 1 < kTurns) project(both + 1);
        end_products();
        await_products<0>();
        hold(grad_x);
      }
    }
    unsigned gates[kOut / 16][4];
#pragma unroll
    for (int group = 0; group < kOut / 32; ++group) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4 all = *reinterpret_cast<const uint4*>(static_cast<const operand*>(a.grad_gates) +
                                                          (tile.row + g + 8 * h) * kOut + 32 * group + 8 * t);
        gates[2 * group][h] = all.x;
        gates[2 * group][2 + h] = all.y;
        gates[2 * group + 1][h] = all.z;
        gates[2 * group + 1][2 + h] = all.w;
      }
    }
    begin_products();
#pragma unroll
    for (int s = 0; s < kOut / 16; ++s) image.multiply_turned(grad_x, gates[s], 4 * kHidden + 16 * s);
    end_products();
    await_products<0>();
    hold(grad_x);
    write_grad_x(a, tile, x, tiles_of(grad_x), inverse, of_mask, unscale);
  }
  await_copies<0>();
  write_slot<4 * kHidden>(a.input_slots, all_sums, a.first);
}
