#pragma once
// What kernels that sum over rows have in common, and the blocks of weight_gradients_three.cu that take what
// output_gradients_three.cu has stored: two warpgroups sum the gates' gradients beside rows of x, every other tile
// each.
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"

constexpr int kRows = 64, kBlockOfRows = kRows * 128;  // bytes of 64 columns
constexpr int kTileBytes = 2 * kBlockOfRows;
// A warpgroup of those blocks has shared memory for three tiles, two of which are being copied: of each tile two blocks
// of 64 columns of x and two of gradients. One block of ones stands behind all tiles. wgmma reads the two blocks of x
// and the ones as one operand, for which they must lie at equal distances; each tile has a distance of its own.
constexpr int kStoredMakers = 2, kStoredTiles = 3, kStoredBlocks = 13, kStoredOnes = kStoredBlocks - 1;

/// The 16 bytes `chunk` of a row of 128 bytes.
__device__ __forceinline__ int chunk_at(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }

/// sums (64, 136) += gradients (64 rows, 64 columns)^T rows (64 rows, 136 columns).
__device__ __forceinline__ void multiply_rows(float (&sums)[68], unsigned gradients, unsigned rows,
                                              int across = kBlockOfRows) {
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    multiply_wide(sums, matrix_at(gradients + 2048 * step, kBlockOfRows), matrix_at(rows + 2048 * step, across));
  }
}

/// To a part of sums: rows of `first` on. In a part neighbouring columns are swapped, and rows for what was stored so
/// (fold_gradients.cu).
template <int kCount>
__device__ __forceinline__ void write_part(float* to, const float (&sums)[kCount], int first, bool swap_rows) {
  const int warp = threadIdx.x % 128 / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first + 16 * warp + 8 * h + g;
    float* of_row = to + (swap_rows ? row ^ 1 : row) * kD + 2 * t;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      *reinterpret_cast<float2*>(of_row + 8 * n) = make_float2(sums[4 * n + 2 * h + 1], sums[4 * n + 2 * h]);
    }
  }
}

/// Barriers of named places: of a warpgroup alone; of a maker and the summer, of which one waits.
__device__ __forceinline__ void meet(int place) { asm volatile("bar.sync %0, 128;" ::"r"(place) : "memory"); }
__device__ __forceinline__ void await_other(int place) { asm volatile("bar.sync %0, 256;" ::"r"(place) : "memory"); }
__device__ __forceinline__ void tell_other(int place) { asm volatile("bar.arrive %0, 256;" ::"r"(place) : "memory"); }
constexpr int kOwnPlace = 1, kMadePlace = 5, kUsedPlace = 8;  // a warpgroup's or a maker's number on
__device__ __forceinline__ void meet_warpgroup() { meet(kOwnPlace + static_cast<int>(threadIdx.x / 128)); }

/// Starts to copy a tile of rows of 128 columns, by one thread, to two matrices `across` bytes from each other.
__device__ __forceinline__ void fetch_matrix(unsigned to, const void* tensor, int tile, int across, unsigned barrier) {
  const char* from = static_cast<const char*>(tensor) + static_cast<long long>(tile) * kTileBytes;
  copy_bulk(to, from, kBlockOfRows, barrier);
  copy_bulk(to + across, from + kBlockOfRows, kBlockOfRows, barrier);
}

/// Where the blocks of a tile of what is stored lie: rows at the ones less once and twice `across`, gradients.
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
/// and of `gradients` alone to `of_ones`.
__device__ void sum_stored(char* own, unsigned barriers, const void* gradients, const void* rows, int first, int step,
                           int tiles, float* to, float* of_ones) {
  float low_sums[68], high_sums[68];
  clear(low_sums);
  clear(high_sums);
  const unsigned here = shared_address(own);
  const auto fetch = [&](int buffer, int tile) {
    if (tile >= tiles || threadIdx.x % 128 != 0) return;
    const StoredTile at(buffer);
    barrier_expect(barriers + 8 * buffer, 2 * kTileBytes);
    fetch_matrix(here + at.rows, rows, tile, at.across, barriers + 8 * buffer);
    fetch_matrix(here + at.low, gradients, tile, at.high - at.low, barriers + 8 * buffer);
  };
  write_ones(own + kStoredOnes * kBlockOfRows);
  fence_copies();
#pragma unroll
  for (int ahead = 0; ahead < kStoredTiles - 1; ++ahead) fetch(ahead, first + ahead * step);
  int buffer = 0;
  unsigned parity = 0;
#pragma unroll 1
  for (int at = first; at < tiles; at += step) {
    await_products<0>();
    meet_warpgroup();  // nobody reads the last tile any more
    fetch(buffer == 0 ? kStoredTiles - 1 : buffer - 1, at + (kStoredTiles - 1) * step);
    barrier_wait(barriers + 8 * buffer, parity);
    const StoredTile tile(buffer);
    begin_products();
    multiply_rows(low_sums, here + tile.low, here + tile.rows, tile.across);
    multiply_rows(high_sums, here + tile.high, here + tile.rows, tile.across);
    end_products();
    if (++buffer == kStoredTiles) {
      buffer = 0;
      parity ^= 1;
    }
  }
  await_products<0>();
  hold(low_sums);
  hold(high_sums);
  write_part(to, low_sums, 0, false);
  write_part(to, high_sums, 64, false);
  if (threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = 16 * static_cast<int>(threadIdx.x % 128 / 32) + 8 * h + static_cast<int>(threadIdx.x % 32 / 4);
    of_ones[row] = low_sums[64 + 2 * h];
    of_ones[64 + row] = high_sums[64 + 2 * h];
  }
}
