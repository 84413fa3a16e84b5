#pragma once
// Shared memory of output_gradients_three.cu, and what its makers copy: three tiles of 64 rows each.
#include "multilinear/triangle/kernels/output_gradients_tiles.cuh"
#include "multilinear/triangle/kernels/weight_gradients_stored.cuh"

/// Rows of x and of the gradient are copied one tile ahead where they have 16 bits.
constexpr bool kAhead = sizeof(number) == 2;
constexpr int kMakers = kThreeGroups, kMakerRegisters = 112, kSummerRegisters = 176;
// Shared memory: images of g_out and p_out, of every maker tiles of o, x and the gradient, ones, biases (the gates'
// halved, quarters of those of what is projected), of every row of makers' tiles an entry of the mask and 1 / deviation
// of o.
constexpr int kImageBytes = 128 * 128 * 2, kMakersAt = 2 * kImageBytes, kMakerBytes = 3 * kTileBytes,
              kOnesAt = kMakersAt + kMakers * kMakerBytes, kBiasesAt = kOnesAt + 1024,
              kMasksAt = kBiasesAt + 2 * kOut * 4, kInversesAt = kMasksAt + 64 * kThreeWarps;
static_assert(kInversesAt + 64 * kThreeWarps + 1024 <= kOutputThreeBytes, "all of a block");

/// What a maker copies, in three groups a tile, some of them empty: x and mask, o, the gradient.
struct MakerCopies {
  const GradientArguments& a;
  char *memory, *tiles;  ///< the block's, the maker's

  __device__ __forceinline__ unsigned row_of(int tile) const {
    return static_cast<unsigned>(tile) * 64 + thread_again() / 32 % 4 * 16;
  }
  /// Before the thread's vector of a tile's lines of channels.
  __device__ __forceinline__ long long lines_of(int tile) const {
    const unsigned square = static_cast<unsigned>(a.shape.n * a.shape.n), row = static_cast<unsigned>(tile) * 64,
                   batch = a.shape.batch == 1 ? 0 : row / square;
    return static_cast<long long>(batch * kHidden + channel_of_lane()) * square + (row - batch * square) +
           thread_again() % 8 * 8;
  }
  __device__ __forceinline__ long long sixteen_channels() const { return 16 * (a.shape.n * a.shape.n); }

  /// kCrossed: rows in the places where crossed_row_of_lane() has those of a lane's quad.
  template <bool kCrossed>
  __device__ __forceinline__ void fetch_rows(bool there, int at, const void* tensor, int tile) const {
    if (kAhead && there) {
      const int own = lane_again(), first = own / 16 * (kCrossed ? 4 : 1),
                to = thread_again() / 32 % 4 * 2048 + own % 16 / 8 * kTileBlock + first * 128 + (own % 8 ^ first) * 16;
      const number* from = static_cast<const number*>(tensor) + static_cast<long long>(row_of(tile)) * 128 + 8 * own;
#pragma unroll
      for (int q = 0; q < kGradientRows / 2; ++q) {
        const int on = q % 4 * (kCrossed ? 1 : 2);
        copy16(tiles + at + (to ^ on * 16) + on * 128 + q / 4 * 1024, from + 256 * q);
      }
    }
    end_copies();
  }
  __device__ __forceinline__ void fetch_x(bool there, int tile) const {
    constexpr int kEntry = CLEBSCH_MASK == 1 ? 1 : 4, kVectors = kGradientRows * kEntry / 16;
    const int own = lane_again();
    if (CLEBSCH_MASK != 0 && there && own < kVectors) {
      copy16(memory + kMasksAt + thread_again() / 32 * 64 + 16 * own,
             static_cast<const char*>(a.mask) + static_cast<long long>(row_of(tile)) * kEntry + 16 * own);
    }
    fetch_rows<false>(there, kTileBytes, a.x, tile);
  }
  __device__ __forceinline__ void fetch_gradient(bool there, int tile) const {
    fetch_rows<true>(there, 2 * kTileBytes, a.grad, tile);
  }
  __device__ __forceinline__ void fetch_o(bool there, int tile) const {
    if (there) {
      const int vector = vector_of_lane();
      const unsigned short* from = static_cast<const unsigned short*>(a.o) + lines_of(tile);
#pragma unroll
      for (int q = 0; q < kHidden / 16; ++q, from += sixteen_channels()) {
        copy16(tiles + (q % 2 == 0 ? vector : vector ^ kLinesOn) + 4096 * (q / 2), from);
      }
    }
    end_copies();
  }
  /// Of rows crossed(g) + 8 h of the warp's.
  __device__ __forceinline__ bool is_masked(int h) const {
    if (CLEBSCH_MASK == 0) return false;
    const int own = thread_again(), entry = crossed(own / 4 % 8) + 8 * h;
    const char* const of_mask = memory + kMasksAt + own / 32 * 64;
    if (CLEBSCH_MASK == 1) return of_mask[entry] == 0;
    return reinterpret_cast<const float*>(of_mask)[entry] == 0.0f;
  }
  __device__ __forceinline__ float& inverse_at(int h) const {
    const int own = thread_again();
    return reinterpret_cast<float*>(memory + kInversesAt)[own / 32 * 16 + own / 4 % 8 + 8 * h];
  }
};

__device__ __forceinline__ void meet_makers() { meet(kOwnPlace + thread_again() / 128); }
/// Starts to store a tile, by one thread.
__device__ __forceinline__ void store_tile(void* tensor, int tile, unsigned from) {
  if (thread_again() % 128 != 0) return;
  store_bulk(static_cast<char*>(tensor) + static_cast<long long>(tile) * kTileBytes, from, kTileBytes);
  end_stores();
}
