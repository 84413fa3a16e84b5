// Sums over rows of the gradients of x's projections and gates beside normalised rows, for d, hidden and out of 128.
// The gradients are made again here, from those of left and right, rather than written by one kernel and read by a
// product: a block has 64 channels of left or right, as projections and gates. A fifth kind of block has what
// output_gradients has written: one of its warpgroups the gates' gradients beside rows of x, the other those of what is
// projected beside rows of o. Blocks of the five kinds of a group take the same rows at about the same time, so that
// rows of x, which output_gradients has normalised, come from the L2 cache. gradients.cuh says how operands lie.
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"
#include "multilinear/triangle/kernels/input_gradients.cuh"

static_assert(kD == 128 && kHidden == 128 && kOut == 128, "five kinds of blocks");
constexpr int kRows = 64, kBlockOfRows = kRows * 128;  // bytes of 64 columns
// What a warpgroup has in shared memory, bytes: normalised rows twice, gradients (two times 64 columns), channels
// twice.
constexpr int kTileBytes = 2 * kBlockOfRows, kRowsStride = kTileBytes + kBlockOfRows, kGradientsAt = 2 * kRowsStride,
              kLinesAt = kGradientsAt + kTileBytes, kLinesBytes = 64 * 2 * kRows, kOwn = kLinesAt + 2 * kLinesBytes;
constexpr int kImageBytes = 2 * 128 * 128;
// What a warpgroup of the fifth kind has: three tiles of both operands, two of them on their way, and columns of ones.
// A tile's two blocks of 64 columns, and the ones as the third, lie at equal distances, other ones for each tile.
constexpr int kTilesOnTheirWay = 2, kStoredBlocks = 13, kStoredOnes = kStoredBlocks - 1;
static_assert(kGradientParts * kStoredBlocks * kBlockOfRows + 1024 == kWeightGradientsBytes, "the fifth kind's tiles");
static_assert(kImageBytes + kGradientParts * kOwn + 1024 <= kWeightGradientsBytes, "the other kinds'");

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

/// sums (64, 136) += gradients (64 rows, 64 columns)^T rows (64 rows, 136 columns).
__device__ __forceinline__ void multiply_rows(float (&sums)[68], unsigned gradients, unsigned rows,
                                              int across = kBlockOfRows) {
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    multiply_wide(sums, matrix_at(gradients + 2048 * step, kBlockOfRows), matrix_at(rows + 2048 * step, across));
  }
}

/// To a part of sums: rows of `first` on; in a part neighbouring columns, and rows for what was stored so, are swapped.
template <int kCount>
__device__ __forceinline__ void write_part(float* to, const float (&sums)[kCount], int first, bool swap_rows,
                                           bool swap_columns) {
  const int warp = threadIdx.x % 128 / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first + 16 * warp + 8 * h + g;
    float* of_row = to + (swap_rows ? row ^ 1 : row) * kD + 2 * t;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      const float low = sums[4 * n + 2 * h], high = sums[4 * n + 2 * h + 1];
      *reinterpret_cast<float2*>(of_row + 8 * n) = swap_columns ? make_float2(high, low) : make_float2(low, high);
    }
  }
}

__device__ __forceinline__ void meet_warpgroup() {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + static_cast<int>(threadIdx.x) / 128) : "memory");
}

/// Rows of 128 columns that lie as those of two matrices, `across` bytes from each other.
__device__ __forceinline__ void fetch_matrix(char* to, const void* tensor, long long tile, int across = kBlockOfRows) {
  const int thread = threadIdx.x % 128;
  const uint4* from = static_cast<const uint4*>(tensor) + tile * (kRows * kD / 8) + thread;
#pragma unroll
  for (int q = 0; q < 8; ++q) {
    const int vector = thread + 128 * q, of_tile = vector / 16, chunk = vector % 16;
    copy16(to + chunk / 8 * across + chunk_at(of_tile, chunk % 8), from + 128 * q);
  }
}

/// Where the blocks of a tile of the fifth kind lie: rows at the ones less once and twice `across`, gradients.
struct StoredTile {
  int rows, across, low, high;
  __device__ __forceinline__ explicit StoredTile(int buffer) {
    const int distance = buffer == 0 ? 1 : buffer + 2;  // 1, 3, 4
    across = distance * kBlockOfRows;
    rows = (kStoredOnes - 2 * distance) * kBlockOfRows;
    low = (buffer == 0 ? 0 : buffer == 1 ? 2 : 5) * kBlockOfRows;
    high = (buffer == 0 ? 1 : buffer == 1 ? 3 : 7) * kBlockOfRows;
  }
};

/// Blocks of columns of ones: what they are multiplied with is summed.
__device__ __forceinline__ void write_ones(char* to) {
  const unsigned ones = pack2(1.0f, 1.0f);
  for (int vector = threadIdx.x % 128; vector < kBlockOfRows / 16; vector += 128) {
    reinterpret_cast<uint4*>(to)[vector] = make_uint4(ones, ones, ones, ones);
  }
}

/// Sums over rows of the tiles first, first + step, ... of `gradients` (rows, 128) beside `rows` (rows, 128) to a part,
/// and of `gradients` alone to `of_ones` unless that is null; `swapped`: gradients have neighbouring columns swapped,
/// rows have not.
__device__ void sum_stored(char* own, const void* gradients, const void* rows, long long first, long long step,
                           long long tiles, float* to, float* of_ones, bool swapped) {
  float low_sums[68], high_sums[68];
  clear(low_sums);
  clear(high_sums);
  const auto fetch = [&](int buffer, long long tile) {
    if (tile < tiles) {
      const StoredTile at(buffer);
      fetch_matrix(own + at.rows, rows, tile, at.across);
      fetch_matrix(own + at.low, gradients, tile, at.high - at.low);
    }
    end_copies();
  };
  write_ones(own + kStoredOnes * kBlockOfRows);
#pragma unroll
  for (int ahead = 0; ahead < kTilesOnTheirWay; ++ahead) fetch(ahead, first + ahead * step);
  int buffer = 0;
#pragma unroll 1
  for (long long at = first; at < tiles; at += step) {
    await_products<0>();
    await_copies<kTilesOnTheirWay - 1>();
    fence_copies();
    meet_warpgroup();  // this tile is there, and nobody reads the last one's any more
    const StoredTile tile(buffer);
    const unsigned here = shared_address(own);
    begin_products();
    multiply_rows(low_sums, here + tile.low, here + tile.rows, tile.across);
    multiply_rows(high_sums, here + tile.high, here + tile.rows, tile.across);
    end_products();
    fetch(buffer == 0 ? kTilesOnTheirWay : buffer - 1, at + kTilesOnTheirWay * step);
    buffer = buffer == kTilesOnTheirWay ? 0 : buffer + 1;
  }
  await_products<0>();
  hold(low_sums);
  hold(high_sums);
  await_copies<0>();
  write_part(to, low_sums, 0, false, !swapped);
  write_part(to, high_sums, 64, false, !swapped);
  if (!of_ones || threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = 16 * static_cast<int>(threadIdx.x % 128 / 32) + 8 * h + static_cast<int>(threadIdx.x % 32 / 4);
    of_ones[swapped ? row ^ 1 : row] = low_sums[64 + 2 * h];
    of_ones[64 + (swapped ? row ^ 1 : row)] = high_sums[64 + 2 * h];
  }
}

/// Grid: groups of kGradientKinds blocks.
extern "C" __global__ void __launch_bounds__(kGradientThreads, 1) weight_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 all_memory[];
  char* const memory = reinterpret_cast<char*>(aligned_memory(all_memory));
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, thread = threadIdx.x % 128;
  const int kind = blockIdx.x % kGradientKinds, group = blockIdx.x / kGradientKinds,
            groups = gridDim.x / kGradientKinds;
  const long long square = a.shape.n * a.shape.n, tiles = a.shape.batch * square / kRows;
  if (kind == kGradientKinds - 1) {
    char* const own = memory + warp / 4 * kStoredBlocks * kBlockOfRows;
    const long long part = static_cast<long long>(group) * kOut * kD;
    float* const slot = a.stored_slots ? a.stored_slots + group * 2 * kOut : nullptr;
    if (warp < 4) {
      sum_stored(own, a.grad_gates, a.x_rows, group, groups, tiles, a.gate_parts + part, slot ? slot + kOut : nullptr,
                 false);
    } else {  // both are stored with neighbouring columns swapped
      sum_stored(own, a.grad_projected, a.o_normal, group, groups, tiles, a.output_parts + part, slot, true);
    }
    return;
  }
  const int first_channel = 64 * kind;  // of left and right
  char* const own = memory + kImageBytes + warp / 4 * kOwn;
  const unsigned at_own = shared_address(own), image = shared_address(memory);
  const long long step = static_cast<long long>(groups) * kGradientParts;
  long long at = static_cast<long long>(group) * kGradientParts + warp / 4;
  // 64 channels of 64 rows, in the order of their places.
  const auto fetch_lines = [&](long long tile, int buffer) {
    if (tile < tiles) {
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
  const auto fetch_rows = [&](long long tile, int buffer) {
    if (tile < tiles) fetch_matrix(own + buffer * kRowsStride, a.x_rows, tile);
    end_copies();
  };
  float next_mask[2];
  const auto read_mask = [&](long long tile) {
#pragma unroll
    for (int h = 0; h < 2; ++h) next_mask[h] = mask_at(a.mask, tile * kRows + 16 * (warp % 4) + 8 * h + g);
  };
  // Projections and gates of the block's channels, with columns as rows of x have them here: a vector of eight of them
  // comes from four of the image, whose columns are in the order of their places.
  const unsigned* from = static_cast<const unsigned*>(a.input_image);
  for (int word = threadIdx.x; word < kImageBytes / 4; word += kGradientThreads) {
    const int j = word % 4, chunk = word / 4 % 8, row = word / 32 % 128, block = word / 4096;
    const int of_image = row < 64 ? first_channel + row : 2 * kHidden + first_channel + row - 64;
    const int vector = (block * kGradientWidths + of_image) * 8 + ((chunk / 4 * 4 + j) ^ row % 8);
    reinterpret_cast<unsigned*>(memory)[(block * 1024 + row * 8 + (chunk ^ row % 8)) * 4 + j] =
        from[4 * vector + chunk % 4];
  }
  write_ones(own + kTileBytes);  // beside rows of x
  write_ones(own + kRowsStride + kTileBytes);
  fetch_lines(at, 0);
  fetch_rows(at, 0);
  if (at < tiles) read_mask(at);
  await_copies<0>();
  fence_copies();
  __syncthreads();
  float z_sums[68], gate_sums[68];
  clear(z_sums);
  clear(gate_sums);
#pragma unroll 1
  for (int buffer = 0; at < tiles; at += step, buffer ^= 1) {
    const unsigned rows = at_own + buffer * kRowsStride;
    const float mask[2] = {next_mask[0], next_mask[1]};
    if (at + step < tiles) read_mask(at + step);
    await_copies<0>();
    fence_copies();
    meet_warpgroup();  // this tile is there, and nobody reads the last one's channels any more
    fetch_lines(at + step, buffer ^ 1);
    float both[64];  // projections of 64 channels, their gates
    clear(both);
    begin_products();
#pragma unroll
    for (int s = 0; s < kD / 16; ++s) {
      multiply_scores(both, matrix_at(rows + s / 4 * kBlockOfRows + s % 4 * 32, 16),
                      matrix_at(image + s / 4 * (128 * 128) + s % 4 * 32, 16), s > 0 ? 1 : 0);
    }
    end_products();
    await_products<0>();
    hold(both);
    meet_warpgroup();  // nobody reads the last tile's rows and gradients any more
    fetch_rows(at + step, buffer ^ 1);
    if (at + 2 * step < tiles) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(a.x_rows) + (at + 2 * step) * kTileBytes +
                                                    128 * thread));
    }
    const float scale = first_channel < kHidden ? a.left_scale : 1.0f;
    float of_mask[2] = {0.0f, 0.0f};
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
      take_tiles(of_z, both, half, a.input_bias + first_channel + 32 * half);
      take_tiles(of_gate, both, 2 + half, a.input_bias + 2 * kHidden + first_channel + 32 * half);
      to_gradients(planes, scale, mask, of_z, of_gate, of_mask);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        char* to = own + kGradientsAt + chunk_at(16 * (warp % 4) + 8 * h + g, 4 * half + t);
        store_columns<false>(reinterpret_cast<operand*>(to), of_z, h);
        store_columns<false>(reinterpret_cast<operand*>(to + kBlockOfRows), of_gate, h);
      }
    }
    fence_copies();
    meet_warpgroup();
    const unsigned gradients = at_own + kGradientsAt;
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
  float* to = a.input_parts + static_cast<long long>(part) * 4 * kHidden * kD;
  write_part(to, z_sums, first_channel, true, true);
  write_part(to, gate_sums, 2 * kHidden + first_channel, true, true);
  if (t != 0) return;
  float* of_ones = a.input_slots + static_cast<long long>(part) * 4 * kHidden + first_channel + 16 * (warp % 4) + g;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    of_ones[8 * h] = z_sums[64 + 2 * h];
    of_ones[2 * kHidden + 8 * h] = gate_sums[64 + 2 * h];
  }
}
