#pragma once
// Products of four warps together (wgmma, compute capability 9.0) with images of weights as second operands. A warp has
// 16 of the 64 rows, in the same registers as where it multiplies alone, so that all else is gradients.cuh's. Compiled
// as that says.
#if CLEBSCH_PRECISION == 4
#define CLEBSCH_HALF "f16"
#endif
#include "cuda/kernels/bulk_copies.cuh"
#include "cuda/kernels/wgmma.cuh"
#include "multilinear/triangle/kernels/gradients.cuh"

template <int kColumns, int kRows>
struct WarpgroupImage {
  static constexpr int kBlock = 128 * kRows;  // bytes of 64 columns
  unsigned long long straight, turned;        ///< descriptions of the image from its first row on

  /// Of an address in shared memory, a multiple of 1024.
  __device__ __forceinline__ explicit WarpgroupImage(unsigned image)
      : straight(matrix_at(image, 16)), turned(matrix_at(image, kBlock)) {}

  /// A part that begins some bytes on: in units of 16 they are added to the address, which stays below 2^18.
  static __device__ __forceinline__ unsigned long long later(unsigned long long matrix, int bytes) {
    return matrix + static_cast<unsigned>(bytes >> 4);
  }
  /// sums of 64 places from `row` of the image on = rows times the image's transpose; or of 32 or 128.
  template <int kCount>
  __device__ __forceinline__ void multiply(float (&sums)[kCount], const unsigned (&x)[kColumns / 16][4],
                                           int row) const {
#pragma unroll
    for (int s = 0; s < kColumns / 16; ++s) {
      multiply_group(sums, x[s], later(straight, s / 4 * kBlock + row * 128 + s % 4 * 32), s > 0 ? 1 : 0);
    }
  }
  /// sums of all columns [+]= a step of 16 inner places, rows of the image from `row` on.
  __device__ __forceinline__ void multiply_turned(float (&sums)[kColumns / 2], const unsigned (&step)[4], int row,
                                                  int more = 1) const {
    multiply_group<1>(sums, step, later(turned, row * 128), more);
  }
};

/// copy16 and load_turned with addresses in shared memory, which take one register each.
__device__ __forceinline__ void copy16_to(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void load_turned_at(unsigned (&to)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

/// Four tiles of 8 x 8 numbers as load_rows, from an address in shared memory.
__device__ __forceinline__ void load_rows_at(unsigned (&to)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

/// threadIdx.x % 32, read again: what follows from it is computed where it is used, rather than once and kept.
__device__ __forceinline__ int lane_again() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane & 31;
}

__device__ __forceinline__ int thread_again() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread & 1023;
}

/// threadIdx.x / 32 or / 128 in a register that all of a warp share.
__device__ __forceinline__ int warp_of_block() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
}
__device__ __forceinline__ int warpgroup_of_block() { return warp_of_block() / 4; }

/// Bytes of a vector of planes, exclusive or, to that of the channel that is sixteen on: four places on, where vectors
/// are exchanged the other way.
constexpr int kSixteenOn = 128 ^ 16;

/// Tensors that kernels for three warpgroups hand to each other have tiles of 64 rows and 128 columns as shared memory
/// has them for products: 64 columns after the other, a row of them in 128 bytes, its vectors exchanged. A lane's
/// vector of row 16 warp + g, columns 8 t on; of columns 32 u on and of row 8 h on it is stored_vector() from there.
__device__ __forceinline__ int lane_vector(int warp, int g, int t) { return 128 * warp + 8 * g + (t ^ g); }
__device__ __forceinline__ int stored_vector(int lane_vector, int u, int h) {
  return (lane_vector ^ u % 2 * 4) + 512 * (u / 2) + 64 * h;
}
constexpr int kVectorsOfTile = 1024;

/// Where eight columns of a row of a tile are: of two neighbouring rows in different halves of the banks.
template <int kColumns>
__device__ __forceinline__ int row_vector(int row, int chunk) {
  return row * (kColumns / 8) + (chunk ^ row % 2 * 4);
}
/// Starts to copy a tile of rows of 16-bit numbers.
template <int kColumns, typename Number = number>
__device__ __forceinline__ void fetch_rows(uint4* to, const void* tensor, long long first) {
  constexpr int kOfRow = kColumns / 8;
  const uint4* from = reinterpret_cast<const uint4*>(static_cast<const Number*>(tensor) + first * kColumns);
#pragma unroll
  for (int q = 0; q < kGradientRows * kOfRow / 32; ++q) {
    const int at = static_cast<int>(threadIdx.x % 32) + 32 * q;
    copy16(to + row_vector<kColumns>(at / kOfRow, at % kOfRow), from + at);
  }
}

/// Four tiles of eight columns of sums from tile 4 part on, plus the biases of their columns.
template <int kCount>
__device__ __forceinline__ void take_tiles(float (&to)[4][4], const float (&sums)[kCount], int part,
                                           const float* bias) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 both = *reinterpret_cast<const float2*>(bias + 8 * (threadIdx.x % 4) + 2 * j);
#pragma unroll
    for (int r = 0; r < 4; ++r) to[j][r] = sums[16 * part + 4 * j + r] + (r % 2 == 0 ? both.x : both.y);
  }
}

template <int kCount>
__device__ __forceinline__ void clear(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = 0.0f;
}

/// Sums as tiles of eight columns.
template <int kCount>
__device__ __forceinline__ const float (&tiles_of(const float (&sums)[kCount]))[kCount / 4][4] {
  return reinterpret_cast<const float(&)[kCount / 4][4]>(sums);
}

/// Entries of the mask for rows g and g + 8 of a tile: read one tile ahead, and not looked at before they are there.
struct Masks {
  unsigned read_[2], kept[2];  ///< kept: all ones or zeros, of bytes
  float number[2];

  __device__ __forceinline__ void read(const void* mask, long long row) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (CLEBSCH_MASK == 1) read_[h] = __ldg(static_cast<const unsigned char*>(mask) + row + 8 * h);
      if (CLEBSCH_MASK == 2) read_[h] = __float_as_uint(__ldg(static_cast<const float*>(mask) + row + 8 * h));
    }
  }
  /// What was read becomes this tile's.
  __device__ __forceinline__ void take() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (CLEBSCH_MASK == 1) kept[h] = read_[h] != 0 ? ~0u : 0u;
      if (CLEBSCH_MASK == 2) number[h] = __uint_as_float(read_[h]);
    }
  }
  __device__ __forceinline__ unsigned keep(unsigned pair, int h) const {
    if (CLEBSCH_MASK == 2) return number[h] != 0.0f ? pair : 0u;  // what it hides may be infinite
    return CLEBSCH_MASK == 1 ? pair & kept[h] : pair;
  }
};

/// The beginning of shared memory that is a multiple of 1024.
__device__ __forceinline__ uint4* aligned_memory(uint4* memory) {
  return memory + (1024 - shared_address(memory) % 1024) % 1024 / 16;
}
