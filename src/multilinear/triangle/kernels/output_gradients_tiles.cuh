#pragma once
// Tiles in shared memory of output_gradients_three.cu. A warpgroup has three of 64 rows and 128 columns, 16 KB each.
//
// The first has x, as its rows lie in memory afterwards (gradient_warpgroups.cuh): rows as they come, normalised, then
// tanh of gates, then the gates' gradients, each vector of a lane in the place of the one before.
//
// The second has o, by channel as it comes: 128 bytes of each; then normalised rows with columns in the order of their
// places.
//
// The third has the gradient of out, as x's; then that of what is projected, with columns in the order of their places;
// then that of o, by channel.
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"

constexpr int kTileBlock = 64 * 128;  // bytes of 64 columns

/// Of the warp's 16 rows, where a lane's 16 bytes lie: of row g columns 8 t on (lane 4 g + t), which is 32 u columns
/// and 8 h rows before vector_of_row().
__device__ __forceinline__ int row_of_lane() {
  const int own = thread_again();
  return 16 * lane_vector(own / 32 % 4, own / 4 % 8, own % 4);
}
/// The same of row crossed(g): of two quads that are read or written at once one has its vectors in the other half of
/// the banks.
__device__ __forceinline__ int crossed(int g) { return g % 2 * 4 + g / 2; }
__device__ __forceinline__ int crossed_row_of_lane() {
  const int own = thread_again();
  return 16 * lane_vector(own / 32 % 4, crossed(own / 4 % 8), own % 4);
}
__device__ __forceinline__ int vector_of_row(int row_of_lane, int u, int h) {
  return (row_of_lane ^ u % 2 * 64) + kTileBlock * (u / 2) + 1024 * h;
}
/// For stmatrix of four matrices of eight rows and eight places each, 32 u places and 8 h rows on: where line r of
/// matrix i lies (lane 8 i + r).
__device__ __forceinline__ int places_of_lane() {
  const int own = thread_again();
  return 16 * lane_vector(own / 32 % 4, own % 8, own / 8 % 4);
}
/// For the four matrices of an operand of 16 rows and 16 places; the next ones are operand_of_lane() + s.
__device__ __forceinline__ int operand_of_lane() {
  const int own = thread_again();
  return 16 * (lane_vector(own / 32 % 4, own % 8, own / 16 % 2) + own / 8 % 2 * 64);
}
__device__ __forceinline__ int operand_at(int operand_of_lane, int s) {
  return (operand_of_lane ^ s % 4 * 32) + kTileBlock * (s / 4);
}

/// Lines of 64 rows of a place's channel: where 16 bytes lie.
__device__ __forceinline__ int line_at(int place, int chunk) { return place * 128 + (chunk ^ place % 8) * 16; }
/// Of the warp's 16 rows, as matrices of eight rows and eight places: where lane 8 i + r has line r of matrix i. The
/// next 16 places are 2,048 bytes on.
__device__ __forceinline__ int lines_of_lane() {
  const int own = thread_again();
  return line_at(own / 16 % 2 * 8 + own % 8, own / 32 % 4 * 2 + own / 8 % 2);
}
/// Lines in whole vectors: a warp has four channels at once, a warpgroup 16. Where a lane's vector of the first of them
/// lies, and with kLinesOn of the sixteenth after it; 32 channels are 4,096 bytes on.
__device__ __forceinline__ int channel_of_lane() { return thread_again() / 8 % 16; }
__device__ __forceinline__ int vector_of_lane() { return line_at(place_of(channel_of_lane()), thread_again() % 8); }
constexpr int kLinesOn = 4 * 128 ^ 4 * 16;

__device__ __forceinline__ void store_turned_at(unsigned to, const unsigned (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}
__device__ __forceinline__ void store_places_at(unsigned to, const unsigned (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3])
               : "memory");
}

/// sums of kCount / 2 columns = rows of a tile times rows of an image, from `row` on.
template <int kCount>
__device__ __forceinline__ void multiply_tile(float (&sums)[kCount], unsigned tile, unsigned long long image, int row) {
#pragma unroll
  for (int s = 0; s < 8; ++s) {
    multiply_group<0>(sums, matrix_at(tile + s / 4 * kTileBlock + s % 4 * 32, 16),
                      WarpgroupImage<128, 128>::later(image, s / 4 * (128 * 128) + row * 128 + s % 4 * 32),
                      s > 0 ? 1 : 0);
  }
}
/// sums of 128 columns = rows of a tile, whose columns are rows of an image, times the image.
__device__ __forceinline__ void multiply_tile_turned(float (&sums)[64], unsigned tile,
                                                     unsigned long long turned_image) {
#pragma unroll
  for (int s = 0; s < 8; ++s) {
    multiply_rows_by(sums, matrix_at(tile + s / 4 * kTileBlock + s % 4 * 32, 16),
                     WarpgroupImage<128, 128>::later(turned_image, 16 * s * 128), s > 0 ? 1 : 0);
  }
}

/// Sums of two columns as halves, which keep a tanh to 2^-12.
__device__ __forceinline__ unsigned pack_halves(float x, float y) { return pack(x, y, Half{}); }
__device__ __forceinline__ float half_of(unsigned pair, int e) {
  return to_real(Half{static_cast<unsigned short>(e == 0 ? pair & 0xffffu : pair >> 16)});
}

/// Of two 16-bit numbers: what is not 0 becomes no number.
__device__ __forceinline__ unsigned zero_or_none(unsigned pair) {
  return ((pair & 0x7fffu) != 0 ? 0x7fffu : 0u) | ((pair & 0x7fff0000u) != 0 ? 0x7fff0000u : 0u);
}
