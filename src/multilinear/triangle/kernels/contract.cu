// o = left right^T (outgoing) or left^T right (incoming) for every batch and channel, where n is a multiple of 8 and
// too small for cuBLAS to fill a GPU. Compiled with CLEBSCH_NUMBER (2 IEEE half, 3 bfloat16) and CLEBSCH_INCOMING.
#ifndef CLEBSCH_NUMBER
// For tools that compile a file as it stands; device_contract.cpp says what a problem has.
#define CLEBSCH_NUMBER 3
#define CLEBSCH_D 128
#define CLEBSCH_DV 128
#define CLEBSCH_INCOMING 0
#endif
#include "multilinear/attention/kernels/half_tiles.cuh"
#include "multilinear/triangle/kernels/contract.h"

using namespace clebsch::triangle;

constexpr bool kIncoming = CLEBSCH_INCOMING;
constexpr int kThreads = kContractThreads, kEdge = kContractEdge, kDepth = kContractDepth, kStages = kContractStages;
constexpr int kTileVectors = kEdge * kDepth / 8;

/// Where 8 numbers of a tile lie: of an operand's row along the inner index (outgoing), or of an inner index along
/// rows.
__device__ __forceinline__ int place_of(int line, int unit) {
  return kIncoming ? line * (kEdge / 8) + (unit ^ (line & 7)) : line * (kDepth / 8) + (unit ^ (line & 1) << 2);
}

/// Starts to copy a stage of one operand: rows from `row`, inner indices from `inner`, zeros beyond n.
__device__ __forceinline__ void fetch(uint4* tile, const unsigned short* matrix, int row, int inner, int n) {
  constexpr int kUnits = (kIncoming ? kEdge : kDepth) / 8;
  const int first_line = kIncoming ? inner : row, first_unit = kIncoming ? row : inner;
#pragma unroll
  for (int part = 0; part < kTileVectors / kThreads; ++part) {
    const int at = part * kThreads + static_cast<int>(threadIdx.x), line = at / kUnits, unit = at % kUnits;
    const bool there = first_line + line < n && first_unit + 8 * unit < n;
    copy_vector(tile + place_of(line, unit),
                matrix + (there ? static_cast<long long>(first_line + line) * n + first_unit + 8 * unit : 0), there);
  }
}

/// Step s of 16 inner places of 16 rows of left, incoming.
__device__ __forceinline__ void load_left_step(unsigned (&to)[4], const uint4* tile, int row, int s) {
  const int lane = threadIdx.x % 32, inner = 16 * s + lane / 16 * 8 + lane % 8, unit = row / 8 + lane / 8 % 2;
  load_transposed(to, reinterpret_cast<const unsigned short*>(tile + place_of(inner, unit)));
}
/// The same of 16 rows of right, as two operands: rows 8 n + g.
__device__ __forceinline__ void load_right_step(unsigned (&to)[2][2], const uint4* tile, int row, int s) {
  const int lane = threadIdx.x % 32, inner = 16 * s + lane / 8 % 2 * 8 + lane % 8, unit = row / 8 + lane / 16;
  unsigned both[4];
  load_transposed(both, reinterpret_cast<const unsigned short*>(tile + place_of(inner, unit)));
  to[0][0] = both[0];
  to[0][1] = both[1];
  to[1][0] = both[2];
  to[1][1] = both[3];
}

/// Steps 2 c and 2 c + 1 of 16 rows of left, outgoing. Inner places are those of fused.cuh: eight adjacent numbers of a
/// lane are places of two steps.
__device__ __forceinline__ void load_left(unsigned (&to)[2][4], const uint4* tile, int row, int c) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint4 low = tile[place_of(row + g, 4 * c + t)], high = tile[place_of(row + g + 8, 4 * c + t)];
  to[0][0] = low.x;
  to[0][1] = high.x;
  to[0][2] = low.y;
  to[0][3] = high.y;
  to[1][0] = low.z;
  to[1][1] = high.z;
  to[1][2] = low.w;
  to[1][3] = high.w;
}
/// The same of 8 rows of right: a lane's sums of four operands are then of eight adjacent rows.
__device__ __forceinline__ uint4 load_right(const uint4* tile, int row, int n, int c) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  return tile[place_of(row + 32 * (n / 4) + 8 * (g / 2) + 2 * (n % 4) + g % 2, 4 * c + t)];
}

/// sums += the warp's rows of left and right of one stage.
__device__ __forceinline__ void multiply_stage(float (&sums)[4][8][4], const uint4* left, const uint4* right, int row,
                                               int column) {
  if (kIncoming) {
#pragma unroll
    for (int s = 0; s < kDepth / 16; ++s) {
      unsigned x[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) load_left_step(x[i], left, row + 16 * i, s);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        unsigned y[2][2];
        load_right_step(y, right, column + 16 * pair, s);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 2; ++j) multiply_half(sums[i][2 * pair + j], x[i], y[j]);
        }
      }
    }
    return;
  }
#pragma unroll
  for (int c = 0; c < kDepth / 32; ++c) {
    unsigned x[4][2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) load_left(x[i], left, row + 16 * i, c);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const uint4 y = load_right(right, column, n, c);
      const unsigned columns[2][2] = {{y.x, y.y}, {y.z, y.w}};
#pragma unroll
      for (int step = 0; step < 2; ++step) {  // sums of different rows do not wait for each other
#pragma unroll
        for (int i = 0; i < 4; ++i) multiply_half(sums[i][n], x[i][step], columns[step]);
      }
    }
  }
}

/// A lane's pairs of columns 8 n + 2 t of four operands to the four pairs of columns 8 t: a transposition in its quad.
__device__ __forceinline__ void turn(unsigned (&pairs)[4]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int bits = 1; bits < 4; bits *= 2) {
#pragma unroll
    for (int low = 0; low < 4; ++low) {
      if (low & bits) continue;
      const int high = low | bits;
      const bool upper = t & bits;
      const unsigned got = __shfl_xor_sync(0xffffffffu, upper ? pairs[low] : pairs[high], bits);
      if (upper) {
        pairs[low] = got;
      } else {
        pairs[high] = got;
      }
    }
  }
}

/// A block makes kEdge x kEdge numbers of o. Grid: matrices x tiles down x tiles across.
extern "C" __global__ void __launch_bounds__(kThreads, 2) contract(ContractArguments a) {
  extern __shared__ __align__(16) uint4 memory[];
  const int n = a.n, tiles = (n + kEdge - 1) / kEdge, tile = static_cast<int>(blockIdx.x % (tiles * tiles));
  const long long matrix = static_cast<long long>(blockIdx.x / (tiles * tiles)) * n * n;
  const int down = tile / tiles * kEdge, across = tile % tiles * kEdge;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row = warp / 2 * 64, column = warp % 2 * 64;
  const unsigned short *left = static_cast<const unsigned short*>(a.left) + matrix,
                       *right = static_cast<const unsigned short*>(a.right) + matrix;
  const int stages = (n + kDepth - 1) / kDepth;
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < stages) {
      fetch(memory + 2 * s * kTileVectors, left, down, s * kDepth, n);
      fetch(memory + (2 * s + 1) * kTileVectors, right, across, s * kDepth, n);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  float sums[4][8][4] = {};
#pragma unroll 1
  for (int s = 0; s < stages; ++s) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
    const int next = s + kStages - 1;
    if (next < stages) {
      uint4* to = memory + 2 * (next % kStages) * kTileVectors;
      fetch(to, left, down, next * kDepth, n);
      fetch(to + kTileVectors, right, across, next * kDepth, n);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    const uint4* of_left = memory + 2 * (s % kStages) * kTileVectors;
    multiply_stage(sums, of_left, of_left + kTileVectors, row, column);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        unsigned pairs[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) pairs[r] = pack(sums[i][4 * q + r][2 * h], sums[i][4 * q + r][2 * h + 1]);
        if (kIncoming) turn(pairs);
        const int to_row = down + row + 16 * i + 8 * h + g, to_column = across + column + 32 * q + 8 * t;
        if (to_row >= n || to_column >= n) continue;
        uint4 all;
        all.x = pairs[0];
        all.y = pairs[1];
        all.z = pairs[2];
        all.w = pairs[3];
        *reinterpret_cast<uint4*>(static_cast<unsigned short*>(a.o) + matrix + static_cast<long long>(to_row) * n +
                                  to_column) = all;
      }
    }
  }
}
