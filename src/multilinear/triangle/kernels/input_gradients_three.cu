// As input_gradients_warpgroups.cu for d, hidden and out of 128, by three warpgroups: what one waits for is behind the
// others' work. Left is read rather than made: with l = m p s (mask, projection, sigmoid) the gradient of the
// projection is m s dl, that of the gate l (1 - s) dl, so that of x's products only left's gates are made again.
// Right's projections are made beside their gates, 16 channels of both in a product: reading all of them would be a
// unit of bytes more, making all of them again too many products. A step has 32 channels, in two halves. A half's
// products into grad_x are on their way while the next half becomes gradients; a warpgroup waits for the next gates
// alone, which are multiplied first. Gradients of g_out's gates come two steps ahead, 32 columns to every other step,
// and are multiplied by themselves. Rows of x are read behind the stores of the tile before.
#include "cuda/kernels/early_start.cuh"
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"

static_assert(kD == 128 && kHidden == 128 && kOut == 128, "shared memory and registers are counted for these widths");
constexpr int kImage = kGradientWidths * kD / 8;  // vectors
constexpr int kSteps = 2 * kHidden / 32;          // of 32 channels
constexpr int kLeftSteps = kHidden / 32, kUnits = 3 * kLeftSteps;
/// Whether a step has projections that are made again, 16 channels' beside their gates.
__device__ constexpr bool is_again(int of_tile) { return of_tile >= kLeftSteps; }
/// Copies are counted in units of 32 channels of a tensor: the first one of a step, and how many it has.
__device__ constexpr int first_unit(int of_tile) { return is_again(of_tile) ? kLeftSteps + of_tile : 2 * of_tile; }
__device__ constexpr int units_of(int of_tile) { return is_again(of_tile) ? 1 : 2; }
/// Rows of the image here: left's projections, then its gates; of right 16 of one and 16 of the other in turn.
__device__ constexpr int row_here(int row) {
  if (row >= 4 * kHidden) return row;
  const int channel = row % (2 * kHidden), gate = row / (2 * kHidden);
  return channel < kHidden ? gate * kHidden + channel
                           : 2 * kHidden + (channel - kHidden) / 16 * 32 + gate * 16 + channel % 16;
}
/// Of 16 channels: rows of projections, of gates.
__device__ constexpr int rows_of_projections(int k) { return row_here(16 * k); }
__device__ constexpr int rows_of_gates(int k) { return row_here(2 * kHidden + 16 * k); }
constexpr int kOfOut = 4 * kHidden;  // a row of the image
/// Bytes of 64 rows of 32 channels, and of what a warpgroup has on its way: four of them, and 32 columns of gradients
/// of g_out's gates.
constexpr unsigned kUnit = 4096, kOnTheirWay = 4 * kUnit + kUnit;

/// Where a lane's two vectors are of a tile that output_gradients has stored, columns 32 u on; the second is 64 on.
__device__ __forceinline__ const uint4* pairs_of(const void* tensor, int tile, int warp, int u) {
  const int own = lane_again();
  const unsigned vector = static_cast<unsigned>(lane_vector(warp % 4, own / 4, own % 4));
  return static_cast<const uint4*>(tensor) + static_cast<unsigned long long>(tile) * kVectorsOfTile +
         (u % 2 == 0 ? vector : vector ^ 4) + 512 * (u / 2);
}
/// These vectors as operands of two steps of 16 columns.
__device__ __forceinline__ void take_pairs(unsigned (&low)[4], unsigned (&high)[4], const uint4& all, int h) {
  low[h] = all.x;
  low[2 + h] = all.y;
  high[h] = all.z;
  high[2 + h] = all.w;
}

/// Of a warp's 16 rows and 16 channels, half of a step: gradients of left or right, and what these are, become
/// gradients of projections and of gates. `sums` are the step's gates without biases; `bias`, in shared memory, halves
/// of those of columns 8 t on.
__device__ __forceinline__ void half_of_step(int half, unsigned (&of_z)[4], unsigned (&of_gate)[4], float scale,
                                             const Masks& mask, const float (&sums)[16], const float* bias) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float2 of_open = *reinterpret_cast<const float2*>(bias + 2 * j);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      unsigned &grads = of_z[2 * j + h], &values = of_gate[2 * j + h];
      const unsigned pair = mask.keep(grads, h);
      float z[2], gate[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float turned = tanh_near(fmaf(0.5f, sums[8 * half + 4 * j + 2 * h + e], e == 0 ? of_open.x : of_open.y));
        const float grad = e == 0 ? low2(pair) : high2(pair), value = e == 0 ? low2(values) : high2(values);
        z[e] = fmaf(0.5f * grad, turned, 0.5f * grad);
        // What masks are and, in fp16, the factor of left are parts of what left and right are.
        gate[e] = (grad - z[e]) * value;
        if (kPrecision == kHalf) z[e] *= scale;
        if (CLEBSCH_MASK == 2) z[e] *= mask.number[h];
      }
      grads = pack2(z[0], z[1]);
      values = pack2(gate[0], gate[1]);
    }
  }
}

/// The same where projections are made again: `sums` are these, then the gates, of 16 channels.
__device__ __forceinline__ void half_again(unsigned (&of_z)[4], unsigned (&of_gate)[4], const Masks& mask,
                                           const float (&sums)[16], const float* of_open, const float* of_value) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float2 open = *reinterpret_cast<const float2*>(of_open + 2 * j),
                 value = *reinterpret_cast<const float2*>(of_value + 2 * j);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const unsigned pair = mask.keep(of_z[2 * j + h], h);
      float z[2], gate[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float turned = tanh_near(fmaf(0.5f, sums[8 + 4 * j + 2 * h + e], e == 0 ? open.x : open.y));
        const float grad = e == 0 ? low2(pair) : high2(pair),
                    both = sums[4 * j + 2 * h + e] + (e == 0 ? value.x : value.y);
        z[e] = fmaf(0.5f * grad, turned, 0.5f * grad);
        if (CLEBSCH_MASK == 2) z[e] *= mask.number[h];
        gate[e] = z[e] * both * fmaf(-0.5f, turned, 0.5f);
      }
      of_z[2 * j + h] = pack2(z[0], z[1]);
      of_gate[2 * j + h] = pack2(gate[0], gate[1]);
    }
  }
}

/// Sixteen bytes of shared memory.
__device__ __forceinline__ void load_vector_at(uint4& to, unsigned from) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "r"(from)
               : "memory");
}
/// An address to which constants are added, rather than several that are computed.
__device__ __forceinline__ unsigned one_address(unsigned at) {
  asm volatile("" : "+r"(at));
  return at;
}

/// Registers that products read stay as they are until here.
__device__ __forceinline__ void keep(unsigned (&operand)[4]) {
#pragma unroll
  for (int r = 0; r < 4; ++r) asm volatile("" : "+r"(operand[r])::"memory");
}

extern "C" __global__ void __launch_bounds__(kThreeThreads, 1) input_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 all_memory[];
  uint4* const memory = aligned_memory(all_memory);
  const int warp = warp_of_block();
  const unsigned at_ring = shared_address(memory + kImage) + warp / 4 * kOnTheirWay;
  float* const biases = reinterpret_cast<float*>(memory + kImage + kThreeGroups * (kOnTheirWay / 16));
  for (int at = threadIdx.x; at < kImage; at += kThreeThreads) {
    const int block = at / (8 * kGradientWidths), row = at / 8 % kGradientWidths;
    copy16(memory + (block * kGradientWidths + row_here(row)) * 8 + at % 8,
           static_cast<const uint4*>(a.input_image) + at);
  }
  for (int at = threadIdx.x; at < 2 * kHidden; at += kThreeThreads) biases[at] = 0.5f * a.input_bias[2 * kHidden + at];
  for (int at = threadIdx.x; at < kHidden; at += kThreeThreads) biases[2 * kHidden + at] = a.input_bias[kHidden + at];
  end_copies();  // also where a warpgroup has no tile and asks for nothing else
  const unsigned square = static_cast<unsigned>(a.shape.n * a.shape.n);
  // Tiles go to the first warpgroups of all blocks, then to the second ones.
  const int tiles = static_cast<int>(a.rows / 64), step = static_cast<int>(gridDim.x) * kThreeGroups;
  const int first = warp / 4 * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  const bool any = first < tiles;
  int at = any ? first : 0;
  const auto row_of = [&](int tile) { return static_cast<unsigned>(tile) * 64 + 16 * (warp % 4); };
  // What a thread copies of a unit: 8 rows of a channel, and of 16 channels on; `planes` are bytes from the first of
  // left.
  const auto planes_of = [&](int tile) {
    const unsigned row = static_cast<unsigned>(tile) * 64, batch = a.shape.batch == 1 ? 0 : row / square;
    const int own = thread_again() % 128;
    return 2 * (static_cast<long long>(batch) * kHidden * square + (row - batch * square) +
                static_cast<long long>(own / 8) * square + 8 * (own % 8));
  };
  // Where these vectors go, in units and in gradients of gates: lines of 128 bytes, vectors exchanged.
  const auto place = [&] {
    const int own = thread_again() % 128, line = place_of(own / 8);
    return one_address(at_ring + 128 * line + 16 * (own % 8 ^ line % 8));
  };
  const auto place_on = [&] { return place() ^ (4 * 128 + 4 * 16); };
  long long planes = planes_of(at);
  const auto fetch = [&](int unit) {
    const bool of_left = unit < 2 * kLeftSteps, of_values = of_left && unit % 2 == 1;
    const int channel = 32 * (of_left ? unit / 2 : unit - 2 * kLeftSteps);
    const void* tensor = of_values ? a.left : of_left ? a.grad_left : a.grad_right;
    const char* from = static_cast<const char*>(tensor) + planes + 2ll * channel * square;
    copy16_to(place() + unit % 4 * kUnit, from);
    copy16_to(place_on() + unit % 4 * kUnit, from + 32ll * square);
  };
  const auto fetch_out = [&](int tile, int u) {
    const uint4* gates = static_cast<const uint4*>(a.grad_gates) + static_cast<long long>(tile) * kVectorsOfTile;
    asm volatile("" : "+l"(gates));
    const int own = lane_again();
    const unsigned vector = one_address(static_cast<unsigned>(lane_vector(warp % 4, own / 4, own % 4)));
    const uint4* from = gates + (vector ^ static_cast<unsigned>(u % 2 * 4)) + 512 * (u / 2);
    copy16_to(place() + 4 * kUnit, from);
    copy16_to(place_on() + 4 * kUnit, from + 64);
  };
  const auto meet = [&] { asm volatile("bar.sync %0, 128;" ::"r"(1 + warp / 4) : "memory"); };
  Masks mask;
  unsigned x[kD / 16][4];
  if (any) {
#pragma unroll
    for (int unit = 0; unit < 4; ++unit) {
      fetch(unit);
      if (unit == 3) fetch_out(at, 0);
      if (unit % 2 == 1) end_copies();
    }
    const int own = lane_again();
    mask.read(a.mask, row_of(at) + own / 4);
#pragma unroll
    for (int u = 0; u < kD / 32; ++u) {
#pragma unroll
      for (int h = 0; h < 2; ++h) take_pairs(x[2 * u], x[2 * u + 1], pairs_of(a.x_rows, at, warp, u)[64 * h], h);
    }
  }
  await_copies<0>();
  fence_copies();
  __syncthreads();
  if (!any) return;
  const WarpgroupImage<kD, kGradientWidths> image{shared_address(memory)};
  float sums[16];
  clear(sums);
  begin_products();
  image.multiply(sums, x, rows_of_gates(0));
  end_products();
  await_products<0>();
  hold(sums);
  // This kernel reads nothing of fold_matrices, the one before it: it waits here for the one after it. fold_norms reads
  // what fold_matrices wrote, and may begin once that is there, on multiprocessors that have no block of this kernel.
  await_kernel_before();
  let_next_begin();
#pragma unroll 1
  while (true) {
    // After the last tile it is read once more.
    const bool is_last = at + step >= tiles;
    const int after = is_last ? at : at + step;
    mask.take();
    float grad_x[kD / 2];
    unsigned of_z[2][4], of_gate[2][4], of_out[2][4];
    clear(grad_x);
    // No branches while products are on their way, or ptxas waits for each.
#pragma unroll
    for (int k = 0; k < 2 * kSteps; ++k) {
      const int of_tile = k / 2, half = k % 2;
      auto &z = of_z[half], &gate = of_gate[half];
      // All but the half before is done.
      if (k > 0) {
        await_products<1>();
        if (half == 0 || is_again(of_tile)) hold(sums);
        keep(z);
        keep(gate);
        if (of_tile > 0 && of_tile % 2 == 0 && half == 0) {
          keep(of_out[0]);
          keep(of_out[1]);
        }
      }
      if (half == 0 && first_unit(of_tile) + 4 >= kUnits && first_unit(of_tile - 1) + 4 < kUnits) {
        planes = planes_of(after);
      }
      if (half == 0) {
        await_copies<1>();
        meet();
      }
      const int own = lane_again();
      const unsigned read_here =
          one_address(at_ring + 128 * (8 * (own / 16) + own % 8) + 16 * ((warp % 4 * 2 + own / 8 % 2) ^ own % 8)) +
          16 * 128 * half;
      const int unit = first_unit(of_tile);
      load_turned_at(z, read_here + unit % 4 * kUnit);
      if (!is_again(of_tile)) load_turned_at(gate, read_here + (unit + 1) % 4 * kUnit);
      if (half == 1) {
        meet();
        if (of_tile % 2 == 1) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            uint4 all;
            load_vector_at(all, (h == 0 ? place() : place_on()) + 4 * kUnit);
            take_pairs(of_out[0], of_out[1], all, h);
          }
          begin_products();
#pragma unroll
          for (int s = 0; s < 2; ++s) image.multiply_turned(grad_x, of_out[s], kOfOut + 16 * (of_tile - 1 + s));
          end_products();
          fetch_out(of_tile + 1 < kSteps ? at : after, (of_tile + 1) % kSteps / 2);
        }
        // Late, or they would have left the L2 cache before they are read.
        if (of_tile == kSteps - 3) ask_for_tile(a.x_rows, row_of(after), kD * 2);
#pragma unroll
        for (int u = 0; u < units_of(of_tile); ++u) fetch((unit + u + 4) % kUnits);
        end_copies();
      }
      const float* bias = biases + 32 * of_tile + own % 4 * 8 + 4 * half;
      if (is_again(of_tile)) {
        half_again(z, gate, mask, sums, bias, bias + kHidden);
      } else {
        half_of_step(half, z, gate, 32 * of_tile < kHidden ? a.left_scale : 1.0f, mask, sums, bias);
      }
      begin_products();
      if (k + 1 < 2 * kSteps && (half == 1 || is_again(of_tile))) {
        image.multiply(sums, x, is_again((k + 1) / 2) ? rows_of_projections(k + 1) : rows_of_gates(k + 1));
        end_products();
      }
      image.multiply_turned(grad_x, z, rows_of_projections(k), k > 0 ? 1 : 0);
      image.multiply_turned(grad_x, gate, rows_of_gates(k));
      end_products();
    }
    float inverse[2], along[2] = {0.0f, 0.0f};
    const int own = lane_again();
    const unsigned row = row_of(at) + own / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      inverse[h] = __ldg(a.x_inverse + row + 8 * h);
      if (kPrecision == kHalf) inverse[h] *= __ldg(a.grad_scale + 1);
    }
    mask.read(a.mask, row_of(after) + own / 4);
    await_products<0>();
    hold(grad_x);
    // The norm's gradient: (gradient - x times mean of gradient times x) / deviation. The gradient has no mean, since
    // the rows of the image have none.
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        const unsigned pair = pair_of(x, n / 4, n % 4, h);
        along[h] += grad_x[4 * n + 2 * h] * low2(pair) + grad_x[4 * n + 2 * h + 1] * high2(pair);
      }
      along[h] = -of_quad(along[h]) * (1.0f / kD) * inverse[h];
    }
#pragma unroll
    for (int u = 0; u < kD / 32; ++u) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float result[8];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const unsigned pair = pair_of(x, u, j, h);
          const float* grad = grad_x + 4 * (4 * u + j) + 2 * h;
          result[2 * j] = fmaf(grad[0], inverse[h], low2(pair) * along[h]);
          result[2 * j + 1] = fmaf(grad[1], inverse[h], high2(pair) * along[h]);
        }
        store8(static_cast<number*>(a.grad_x) + static_cast<long long>(row + 8 * h) * kD + 32 * u + own % 4 * 8,
               result);
      }
      // Loads from what may be what was just stored stay behind it: so there are registers.
#pragma unroll
      for (int h = 0; h < 2; ++h) take_pairs(x[2 * u], x[2 * u + 1], pairs_of(a.x_rows, after, warp, u)[64 * h], h);
    }
    begin_products();
    image.multiply(sums, x, rows_of_gates(0));
    end_products();
    await_products<0>();
    hold(sums);
    if (is_last) break;
    at = after;
  }
  await_copies<0>();
}
