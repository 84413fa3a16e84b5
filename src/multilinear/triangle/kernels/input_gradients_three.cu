// As input_gradients_warpgroups.cu for d, hidden and out of 128, by three warpgroups: what one waits for, its products
// most of all, is behind the others' work. There are 168 registers a thread, so that a step has 32 channels of left or
// right: 32 projections and their 32 gates are one product. Rows of x and gradients of gates go into registers at the
// beginning of a tile; what output_gradients has normalised is read, and nothing is stored for sums (weight_gradients).
#include "cuda/kernels/early_start.cuh"
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"

static_assert(kD == 128 && kHidden == 128 && kOut == 128, "shared memory and registers are counted for these widths");
constexpr int kImage = kGradientWidths * kD / 8;  // vectors
constexpr int kSteps = 2 * kHidden / 32;          // of 32 channels
constexpr int kRing = kThreeRing;                 // steps whose gradients are on their way

/// Where a row of the image is here: 32 projections, then their gates; those of g_out last.
__device__ __forceinline__ int row_here(int row) {
  if (row >= 4 * kHidden) return row;
  const int channel = row % (2 * kHidden);
  return channel / 32 * 64 + row / (2 * kHidden) * 32 + channel % 32;
}

/// A lane's rows of a tile that output_gradients has stored, as operands.
__device__ __forceinline__ void load_operand(unsigned (&rows)[8][4], const void* tensor, int tile, int lane_vector) {
  const uint4* from = static_cast<const uint4*>(tensor) + static_cast<long long>(tile) * kVectorsOfTile;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const uint4 all = __ldg(from + stored_vector(lane_vector, u, h));
      pair_of(rows, u, 0, h) = all.x;
      pair_of(rows, u, 1, h) = all.y;
      pair_of(rows, u, 2, h) = all.z;
      pair_of(rows, u, 3, h) = all.w;
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreeThreads, 1) input_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 all_memory[];
  uint4* const memory = aligned_memory(all_memory);
  const int warp = warp_of_block();
  uint4* const ring = memory + kImage + warp * kRing * 64;
  // Biases of projections, halves of those of gates.
  float* const biases = reinterpret_cast<float*>(memory + kImage + kThreeThreads / 32 * kRing * 64);
  for (int at = threadIdx.x; at < kImage; at += kThreeThreads) {
    const int block = at / (8 * kGradientWidths), row = at / 8 % kGradientWidths;
    copy16(memory + (block * kGradientWidths + row_here(row)) * 8 + at % 8,
           static_cast<const uint4*>(a.input_image) + at);
  }
  for (int at = threadIdx.x; at < 4 * kHidden; at += kThreeThreads) {
    biases[at] = (at < 2 * kHidden ? 1.0f : 0.5f) * a.input_bias[at];
  }
  // Images and biases are older than the kernel before this one. What follows is, too, but would take the memory's rate
  // from it, and blocks that begin early do not end the kernel earlier.
  await_kernel_before();
  const unsigned square = static_cast<unsigned>(a.shape.n * a.shape.n);
  const int tiles = static_cast<int>(a.rows / 64), step = static_cast<int>(gridDim.x) * kThreeGroups;
  int at = static_cast<int>(blockIdx.x) * kThreeGroups + warp / 4;
  const auto row_of = [&](int tile) { return static_cast<unsigned>(tile) * 64 + 16 * (warp % 4); };
  // What a lane copies of a step: 16 rows of channels lane / 2 and 16 more; `planes` counts from the first of left.
  const auto planes_of = [&](int tile) {
    const unsigned row = row_of(tile), batch = a.shape.batch == 1 ? 0 : row / square;
    return static_cast<long long>(batch) * kHidden * square + (row - batch * square) +
           static_cast<long long>(lane_again() / 2) * square + 8 * (lane_again() % 2);
  };
  const unsigned at_ring = shared_address(ring);
  constexpr unsigned kSlot = 1024;  // 32 channels of 16 rows
  long long planes = planes_of(at < tiles ? at : 0);
  const auto fetch = [&](bool there, int of_tile) {
    if (there) {
      const bool of_left = 32 * of_tile < kHidden;
      const unsigned short* from = static_cast<const unsigned short*>(of_left ? a.grad_left : a.grad_right) + planes +
                                   static_cast<long long>(of_left ? 32 * of_tile : 32 * of_tile - kHidden) * square;
      const int own = lane_again();
      const unsigned to =
          at_ring + 16 * plane_vector(place_of(own / 2), own % 2) + kSlot * (static_cast<unsigned>(of_tile) % kRing);
      copy16_to(to, from);
      copy16_to(to ^ kSixteenOn, from + 16 * static_cast<long long>(square));
    }
    end_copies();
  };
#pragma unroll
  for (int of_tile = 0; of_tile < kRing; ++of_tile) fetch(at < tiles, of_tile);
  Masks mask;
  mask.read(a.mask, row_of(at < tiles ? at : 0) + lane_again() / 4);
  await_copies<0>();
  fence_copies();
  __syncthreads();
  const WarpgroupImage<kD, kGradientWidths> image{shared_address(memory)};
#pragma unroll 1
  for (; at < tiles; at += step) {
    const unsigned first = row_of(at);
    const bool next = at + step < tiles;
    const long long next_rows = 64ll * step;
    float inverse[2], of_mask[2] = {0.0f, 0.0f};
    unsigned x[kD / 16][4];
    float grad_x[kD / 2], sums[32];
    clear(grad_x);
    {
      unsigned gates[kOut / 16][4];
      const int own = lane_again(), own_vector = lane_vector(warp % 4, own / 4, own % 4);
      load_operand(gates, a.grad_gates, at, own_vector);
      load_operand(x, a.x_rows, at, own_vector);
      begin_products();
#pragma unroll
      for (int s = 0; s < kOut / 16; ++s) {
        image.multiply_turned(grad_x, gates[s], 4 * kHidden + 16 * s);
      }
      end_products();
      await_products<0>();
      hold(grad_x);
    }
    mask.take();
    if (next) {
      ask_for_tile(a.x_rows, static_cast<long long>(first) + next_rows, kD * 2);
      ask_for_tile(a.grad_gates, static_cast<long long>(first) + next_rows, kOut * 2);
    }
    clear(sums);
    begin_products();
    image.multiply(sums, x, 0);
    end_products();
    await_products<0>();
    hold(sums);
    const auto gradients = [&](int of_tile, unsigned(&of_z)[2][4], unsigned(&of_gate)[2][4]) {
      await_copies<kRing - 1>();
      __syncwarp();
      unsigned of_planes[2][4];
      const int own = lane_again();
      const unsigned read_here = at_ring + 16 * plane_vector(8 * (own / 16) + own % 8, own / 8 % 2);
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        load_turned_at(of_planes[p], read_here + kSlot * (static_cast<unsigned>(of_tile) % kRing) + 512 * p);
      }
      __syncwarp();
      if (of_tile + kRing == kSteps && next) planes = planes_of(at + step);
      fetch(of_tile + kRing < kSteps || next, (of_tile + kRing) % kSteps);
      step_gradients<2 * kHidden>(of_planes, 32 * of_tile < kHidden ? a.left_scale : 1.0f, mask, sums, 0, 16,
                                  biases + 32 * of_tile + own % 4 * 8, of_mask, of_z, of_gate);
    };
    const auto multiply = [&](int of_tile, const unsigned(&of_z)[2][4], const unsigned(&of_gate)[2][4]) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        image.multiply_turned(grad_x, of_z[s], 64 * of_tile + 16 * s);
        image.multiply_turned(grad_x, of_gate[s], 64 * of_tile + 32 + 16 * s);
      }
    };
#pragma unroll
    for (int of_tile = 0; of_tile < kSteps - 1; ++of_tile) {
      unsigned of_z[2][4], of_gate[2][4];
      gradients(of_tile, of_z, of_gate);
      begin_products();
      multiply(of_tile, of_z, of_gate);
      end_products();
      await_products<0>();
      hold(grad_x);
      clear(sums);
      begin_products();
      image.multiply(sums, x, 64 * (of_tile + 1));
      end_products();
      await_products<0>();
      hold(sums);
    }
    {
      unsigned of_z[2][4], of_gate[2][4];
      gradients(kSteps - 1, of_z, of_gate);
      begin_products();
      multiply(kSteps - 1, of_z, of_gate);
      end_products();
      if (next) mask.read(a.mask, first + lane_again() / 4 + next_rows);
#pragma unroll
      for (int h = 0; h < 2; ++h) inverse[h] = __ldg(a.x_inverse + first + lane_again() / 4 + 8 * h);
      await_products<0>();
      hold(grad_x);
    }
    const float unscale = a.grad_scale ? a.grad_scale[1] : 1.0f;
    inverse[0] *= unscale;
    inverse[1] *= unscale;
    const int own = lane_again();
    const unsigned row = first + own / 4;
    // The norm's gradient, and that of the mask.
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (CLEBSCH_MASK == 2 && a.grad_mask) {
        const float sum = of_quad(of_mask[h]);
        if (own % 4 == 0) a.grad_mask[row + 8 * h] = sum * unscale;
      }
      float sum = 0, along = 0;
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        const unsigned pair = pair_of(x, n / 4, n % 4, h);
        sum += grad_x[4 * n + 2 * h] + grad_x[4 * n + 2 * h + 1];
        along += grad_x[4 * n + 2 * h] * low2(pair) + grad_x[4 * n + 2 * h + 1] * high2(pair);
      }
      // (gradient - mean of it - x times mean of gradient times x) / deviation
      sum = -of_quad(sum) * (1.0f / kD) * inverse[h];
      along = -of_quad(along) * (1.0f / kD) * inverse[h];
      if (!a.grad_x) continue;
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) {
        float result[8];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const unsigned pair = pair_of(x, u, j, h);
          const float* grad = grad_x + 4 * (4 * u + j) + 2 * h;
          result[2 * j] = fmaf(grad[0], inverse[h], fmaf(low2(pair), along, sum));
          result[2 * j + 1] = fmaf(grad[1], inverse[h], fmaf(high2(pair), along, sum));
        }
        store8(static_cast<number*>(a.grad_x) + static_cast<long long>(row + 8 * h) * kD + 32 * u + own % 4 * 8,
               result);
      }
    }
  }
  await_copies<0>();
}
