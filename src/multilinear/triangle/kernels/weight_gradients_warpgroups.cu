// Sums over rows of the gradients of x's projections and gates beside normalised rows, for d, hidden and out of 128.
// The gradients are made again here, from those of left and right, rather than written by one kernel and read by a
// product: a block has 64 channels of left or right, as projections and gates, or all gates of out, whose gradients are
// there; blocks of the five kinds of a group take the same rows at about the same time, so that x comes from the L2
// cache. gradients.cuh says how operands lie.
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"
#include "multilinear/triangle/kernels/input_gradients.cuh"

static_assert(kD == 128 && kHidden == 128 && kOut == 128, "five kinds of blocks");
constexpr int kRows = 64, kBlockOfRows = kRows * 128;  // bytes of 64 columns
// What a warpgroup has in shared memory, bytes: normalised rows, gradients (two times 64 columns), channels twice.
constexpr int kGradientsAt = 2 * kBlockOfRows, kLinesAt = kGradientsAt + 2 * kBlockOfRows, kLinesBytes = 64 * 2 * kRows;
constexpr int kOwn = kLinesAt + 2 * kLinesBytes;
constexpr int kImageBytes = 2 * 128 * 128;

/// The 16 bytes `chunk` of a row of 128 bytes.
__device__ __forceinline__ int chunk_at(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }

/// sums (64, 128) += gradients (64 rows, 64 columns)^T rows (64 rows, 128 columns).
__device__ __forceinline__ void multiply_rows(float (&sums)[64], unsigned gradients, unsigned rows) {
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    multiply_group(sums, matrix_at(gradients + 2048 * step, kBlockOfRows), matrix_at(rows + 2048 * step, kBlockOfRows),
                   1);
  }
}

/// To a part of sums: rows of `first` on.
__device__ __forceinline__ void write_part(float* to, const float (&sums)[64], int first, bool swapped) {
  const int warp = threadIdx.x % 128 / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first + 16 * warp + 8 * h + g;
    float* of_row = to + (swapped ? row ^ 1 : row) * kD + 2 * t;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      *reinterpret_cast<float2*>(of_row + 8 * n) = make_float2(sums[4 * n + 2 * h + 1], sums[4 * n + 2 * h]);
    }
  }
}

/// Grid: groups of kGradientKinds blocks.
extern "C" __global__ void __launch_bounds__(kGradientThreads, 1) weight_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 all_memory[];
  char* const memory = reinterpret_cast<char*>(aligned_memory(all_memory));
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, thread = threadIdx.x % 128;
  const int kind = blockIdx.x % kGradientKinds, group = blockIdx.x / kGradientKinds,
            groups = gridDim.x / kGradientKinds;
  const bool of_gates = kind == kGradientKinds - 1;
  const int first_channel = 64 * kind;  // of left and right
  char* const own = memory + kImageBytes + warp / 4 * kOwn;
  const unsigned rows = shared_address(own), gradients = rows + kGradientsAt;
  const int barrier = 1 + warp / 4;
  const long long square = a.shape.n * a.shape.n, tiles = a.shape.batch * square / kRows;
  const long long step = static_cast<long long>(groups) * kGradientParts;
  long long at = static_cast<long long>(group) * kGradientParts + warp / 4;
  // 64 channels of 64 rows, in the order of their places.
  const auto fetch = [&](long long tile, int buffer) {
    if (tile < tiles && !of_gates) {
      const bool of_left = first_channel < kHidden;
      const unsigned row = static_cast<unsigned>(tile) * kRows, batch = row / static_cast<unsigned>(square);
      const unsigned short* from = static_cast<const unsigned short*>(of_left ? a.grad_left : a.grad_right) +
                                   (static_cast<long long>(batch) * kHidden + first_channel % kHidden) * square +
                                   (row - batch * static_cast<unsigned>(square));
      char* to = own + kLinesAt + buffer * kLinesBytes;
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int channel = thread / 8 + 16 * q, chunk = thread % 8;
        copy16(to + chunk_at(place_of(channel), chunk), from + channel * square + 8 * chunk);
      }
    }
    end_copies();
  };
  if (!of_gates) {
    for (int vector = threadIdx.x; vector < kImageBytes / 16; vector += kGradientThreads) {
      const int block = vector / 1024, row = vector % 1024 / 8;
      const int of_image = row < 64 ? first_channel + row : 2 * kHidden + first_channel + row - 64;
      copy16(memory + 16 * vector,
             static_cast<const uint4*>(a.input_image) + (block * kGradientWidths + of_image) * 8 + vector % 8);
    }
  }
  fetch(at, 0);
  await_copies<0>();
  fence_copies();
  __syncthreads();
  const WarpgroupImage<kD, 128> image{shared_address(memory)};
  float z_sums[64], gate_sums[64];
  clear(z_sums);
  clear(gate_sums);
#pragma unroll 1
  for (int buffer = 0; at < tiles; at += step, buffer ^= 1) {
    fetch(at + step, buffer ^ 1);
    const long long row = at * kRows + 16 * (warp % 4);
    if (at + step < tiles) {
      constexpr int kRowBytes = kD * static_cast<int>(sizeof(number));
      const char* next = static_cast<const char*>(a.x) + (at + step) * kRows * kRowBytes;
      for (int line = thread; line < kRows * kRowBytes / 128; line += 128) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(next + 128 * line));
      }
    }
    float mask[2], inverse[2], of_mask[2] = {0.0f, 0.0f};
#pragma unroll
    for (int h = 0; h < 2; ++h) mask[h] = mask_at(a.mask, row + g + 8 * h);
    unsigned x[kD / 16][4];
    load_x(x, inverse, a, row, mask, nullptr);
    // Nobody reads the last tile's rows and gradients any more; this tile's channels are there.
    await_products<0>();
    await_copies<1>();
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int of_tile = 16 * (warp % 4) + 8 * h + g;
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) {
        uint4 all;
        all.x = pair_of(x, u, 0, h);
        all.y = pair_of(x, u, 1, h);
        all.z = pair_of(x, u, 2, h);
        all.w = pair_of(x, u, 3, h);
        *reinterpret_cast<uint4*>(own + u / 2 * kBlockOfRows + chunk_at(of_tile, 4 * (u % 2) + t)) = all;
      }
    }
    if (of_gates) {
      const uint4* from = static_cast<const uint4*>(a.grad_gates) + at * kRows * (kOut / 8);
#pragma unroll
      for (int q = 0; q < 8; ++q) {
        const int vector = thread + 128 * q, of_tile = vector / 16, chunk = vector % 16;
        *reinterpret_cast<uint4*>(own + kGradientsAt + chunk / 8 * kBlockOfRows + chunk_at(of_tile, chunk % 8)) =
            __ldg(from + vector);
      }
    } else {
      float z[32], gate[32];
      clear(z);
      clear(gate);
      begin_products();
      image.multiply(z, x, 0);
      image.multiply(gate, x, 64);
      end_products();
      await_products<0>();
      hold(z);
      hold(gate);
      const float scale = first_channel < kHidden ? a.left_scale : 1.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unsigned planes[2][4];
        const int i = lane / 8, r = lane % 8;
        const char* lines = own + kLinesAt + buffer * kLinesBytes;
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          load_turned(planes[p], reinterpret_cast<const unsigned short*>(
                                     lines + chunk_at(32 * half + 16 * p + 8 * (i / 2) + r, 2 * (warp % 4) + i % 2)));
        }
        float of_z[4][4], of_gate[4][4];
        take_tiles(of_z, z, half, a.input_bias + first_channel + 32 * half);
        take_tiles(of_gate, gate, half, a.input_bias + 2 * kHidden + first_channel + 32 * half);
        to_gradients(planes, scale, mask, of_z, of_gate, of_mask);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          char* to = own + kGradientsAt + chunk_at(16 * (warp % 4) + 8 * h + g, 4 * half + t);
          store_columns<false>(reinterpret_cast<operand*>(to), of_z, h);
          store_columns<false>(reinterpret_cast<operand*>(to + kBlockOfRows), of_gate, h);
        }
      }
    }
    fence_copies();
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
    begin_products();
    multiply_rows(z_sums, gradients, rows);
    multiply_rows(gate_sums, gradients + kBlockOfRows, rows);
    end_products();
  }
  await_products<0>();
  hold(z_sums);
  hold(gate_sums);
  await_copies<0>();
  const int part = group * kGradientParts + warp / 4;
  if (of_gates) {
    float* to = a.gate_parts + static_cast<long long>(part) * kOut * kD;
    write_part(to, z_sums, 0, false);
    write_part(to, gate_sums, 64, false);
  } else {
    float* to = a.input_parts + static_cast<long long>(part) * 4 * kHidden * kD;
    write_part(to, z_sums, first_channel, true);
    write_part(to, gate_sums, 2 * kHidden + first_channel, true);
  }
}
