// c = a b for a batch of matrices of 16-bit numbers, sums in 32 bits, on the tensor cores of compute capability 9.0.
// Compiled with CLEBSCH_NUMBER, 2 (half) or 3 (bfloat16), CLEBSCH_TURNED_A and _B, whether the operand lies by rows of
// the inner index, CLEBSCH_COLUMNS of a tile, a multiple of 32 up to 256, CLEBSCH_STAGES of the ring of slabs, and
// CLEBSCH_HEAD, slabs that the first warpgroup is ahead of the second, and CLEBSCH_SHARES (contract.h).
//
// A block stays and takes tiles of 128 rows. One thread brings slabs of 64 inner indices by tensor copies, and is as
// far ahead as the ring allows, over the ends of tiles too. Two warpgroups have 64 rows each. The first is ahead, so
// that one stores its tile while the other has the tensor cores.
//
// What a multiprocessor reads from the L2 cache bounds the kernel, 768 bytes for 32,768 products. So two blocks share
// an operand: each brings half of it for both, once both have used what lay there.
//
// First, since it says which type products have:
#include "multilinear/attention/kernels/warpgroup.cuh"

#include "cuda/kernels/early_start.cuh"
#include "cuda/kernels/tensor_copies.cuh"
#include "cuda/kernels/wgmma_tiles.cuh"
#include "multilinear/attention/kernels/half_tiles.cuh"
#include "multilinear/triangle/kernels/contract.h"

// For tools that compile a file as it stands; device_contract.cpp says what a problem has.
#ifndef CLEBSCH_COLUMNS
#define CLEBSCH_TURNED_A 0
#define CLEBSCH_TURNED_B 0
#define CLEBSCH_COLUMNS 256
#define CLEBSCH_STAGES 4
#define CLEBSCH_HEAD 2
#define CLEBSCH_SHARES 1
#endif
#if CLEBSCH_SHARES
#define CLEBSCH_CLUSTER_BLOCKS 2
#define CLEBSCH_CLUSTER __cluster_dims__(CLEBSCH_CLUSTER_BLOCKS, 1, 1)
#else
#define CLEBSCH_CLUSTER
#endif

using namespace clebsch::triangle;

constexpr int kTurnedA = CLEBSCH_TURNED_A, kTurnedB = CLEBSCH_TURNED_B, kColumns = CLEBSCH_COLUMNS,
              kStages = CLEBSCH_STAGES, kHead = CLEBSCH_HEAD, kShares = CLEBSCH_SHARES;
constexpr int kTogether = kShares == kSharesNothing ? 1 : 2;  ///< blocks that share something
constexpr int kGroups = kContractRows / 64, kWarps = 4 * kGroups, kThreads = 32 * (kWarps + 1);
constexpr int kBlock = 64 * 128;  ///< bytes of 64 rows of 64 numbers
constexpr int kColumnBlocks = (kColumns + 63) / 64;
constexpr int kBytesOfA = kGroups * kBlock, kBytesOfB = kTurnedB ? kColumnBlocks * kBlock : kColumns * 128;
constexpr int kStageBytes = kBytesOfA + kBytesOfB;
constexpr int kBoxColumns = kColumns % 64 == 0 ? 64 : 32, kBoxBytes = 16 * 2 * kBoxColumns;
constexpr int kStoresAt = kStages * kStageBytes, kBarriersAt = kStoresAt + kWarps * kContractBuffers * kBoxBytes;
static_assert(kColumns % 32 == 0 && kColumns <= 256 && kStageBytes % 1024 == 0, "whole lines of eight rows");

/// The kernel after this one may begin.
__device__ __forceinline__ void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// What the kernels before this one wrote is there, for copies too, and they read no more.
__device__ __forceinline__ void await_kernel_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}

/// The place in the ring, and how often it came round.
struct Place {
  int at = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void next() {
    if (++at == kStages) {
      at = 0;
      parity ^= 1;
    }
  }
};

/// Where a tile lies, of those of blocks that share something this block's. Tiles of a matrix follow each other by 16
/// tiles of rows of a column: what blocks work on at the same time is about as wide as high, and comes from memory
/// once.
struct Tile {
  int matrix, row, column;
  __device__ __forceinline__ Tile(const ContractArguments& a, int tile) {
    constexpr int kHigh = kShares == kSharesColumns ? 8 : 16;
    const int of_matrix = a.row_tiles * a.column_tiles, block = blockIdx.x % kTogether;
    matrix = tile / of_matrix;
    const int at = tile - matrix * of_matrix, first = at / (kHigh * a.column_tiles) * kHigh,
              high = min(kHigh, a.row_tiles - first), in_part = at - first * a.column_tiles;
    column = in_part / high * kColumns;
    row = (first + in_part % high) * kContractRows;
    if (kShares == kSharesColumns) row = 2 * row + block * kContractRows;
    if (kShares == kSharesRows) column = 2 * column + block * kColumns;
  }
};

/// Brings this block's part of a slab of one operand, kLines rows or columns from `first` on: all of it, or half of it
/// for both blocks.
template <bool kTurned, bool kShared, int kLines>
__device__ __forceinline__ void bring(unsigned to, const clebsch::cuda::TensorMap* map, int first, int inner,
                                      int matrix, unsigned barrier) {
  const auto copy = [&](unsigned place, int x, int y) {
    if (kShared) {
      copy_box_to_both(place, map, x, y, matrix, barrier);
    } else {
      copy_box(place, map, x, y, matrix, barrier);
    }
  };
  const int mine = kShared ? blockIdx.x % 2 : 0;
  if (kTurned) {
    constexpr int kParts = (kLines + 63) / 64;
    for (int part = mine; part < kParts; part += kShared ? 2 : 1) copy(to + part * kBlock, first + 64 * part, inner);
  } else {
    constexpr int kHalf = kLines / 2;
    copy(to + mine * kHalf * 128, inner, first + mine * kHalf);
  }
}

/// Tiles of eight columns, rows 0 to 7 and 8 to 15 of the warp, two tiles: `to` is of the lane's row.
__device__ __forceinline__ void store_matrices(unsigned to, unsigned x, unsigned y, unsigned z, unsigned w) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x), "r"(y), "r"(z),
               "r"(w)
               : "memory");
}

/// Products and stores of a warp of the two warpgroups, tiles begin, begin + step ..
__device__ __forceinline__ void multiply(const ContractArguments& a, unsigned shared, int warp, int lane, int begin,
                                         int step) {
  const int group = warp / 4;
  // A step of 16 inner indices is 16 numbers of a row, or 16 rows.
  constexpr int kStepOfA = (kTurnedA ? 16 * 128 : 32) / 16, kStepOfB = (kTurnedB ? 16 * 128 : 32) / 16;
  const unsigned long long first_a = matrix_at(shared + group * kBlock, kBlock),
                           first_b = matrix_at(shared + kBytesOfA, kBlock);
  const unsigned there = shared + kBarriersAt, used = there + 8 * kStages,
                 stores = shared + kStoresAt + warp * kContractBuffers * kBoxBytes;
  float sums[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sums[i] = 0.0f;
  // Tells those who bring that this warp has used a slab.
  const auto give_back = [&](unsigned barrier) {
    if (kTogether == 1) {
      if (lane == 0) barrier_arrive(barrier);
    } else {
      if (lane < kTogether) barrier_arrive_at(barrier, lane);
    }
  };
  Place place;
  int boxes = 0;  // that this warp has stored
  bool waits = kHead > 0;
  for (int at = begin; at < a.tiles; at += step) {
    if (waits && group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
    unsigned last = 0;
#pragma unroll 1
    for (int slab = 0; slab < a.slabs; ++slab) {
      const unsigned long long of_a = first_a + place.at * (kStageBytes / 16),
                               of_b = first_b + place.at * (kStageBytes / 16);
      barrier_wait(there + 8 * place.at, place.parity);
      begin_products();
#pragma unroll
      for (int part = 0; part < kContractSlab / 16; ++part) {
        TileProduct<kTurnedA, kTurnedB, kColumns / 2>::add(sums, of_a + part * kStepOfA, of_b + part * kStepOfB,
                                                           slab + part);
      }
      end_products();
      await_products<1>();
      if (slab > 0) give_back(last);
      if (waits && group == 0 && slab + 1 == min(kHead, a.slabs)) asm volatile("bar.arrive 1, 256;" ::: "memory");
      last = used + 8 * place.at;
      place.next();
    }
    waits = false;
    await_products<0>();
    give_back(last);
    hold(sums);
    const Tile tile(a, at);
#pragma unroll
    for (int box = 0; box < kColumns / kBoxColumns; ++box) {
      // Of 16-byte parts of a line of 128 bytes, which is one row or two, part c is at c ^ line % 8 or c ^ line % 4.
      const unsigned to = stores + boxes % kContractBuffers * kBoxBytes;
      const int row = lane % 16, line = kBoxColumns == 64 ? row % 8 : row / 2 % 4;
      if (lane == 0) await_stores_read<kContractBuffers - 1>();
      __syncwarp();
#pragma unroll
      for (int pair = 0; pair < kBoxColumns / 16; ++pair) {
        const int first = box * kBoxColumns / 2 + 8 * pair;
        store_matrices(to + row * 2 * kBoxColumns + ((2 * pair + lane / 16) ^ line) * 16,
                       pack(sums[first], sums[first + 1]), pack(sums[first + 2], sums[first + 3]),
                       pack(sums[first + 4], sums[first + 5]), pack(sums[first + 6], sums[first + 7]));
      }
      fence_copies();
      __syncwarp();
      if (lane == 0) {
        store_box(&a.c, tile.column + box * kBoxColumns, tile.row + 16 * warp, tile.matrix, to);
        end_stores();
      }
      ++boxes;
    }
  }
  if (lane == 0) await_stores();
}

/// Any grid, of whole clusters.
extern "C" CLEBSCH_CLUSTER __global__ void __launch_bounds__(kThreads, 1)
    contract_warpgroups(const __grid_constant__ ContractArguments a) {
  extern __shared__ unsigned char memory[];
  unsigned char* const base = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const unsigned shared = shared_address(base), there = shared + kBarriersAt, used = there + 8 * kStages;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int begin = static_cast<int>(blockIdx.x) / kTogether, step = static_cast<int>(gridDim.x) / kTogether;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_begin(there + 8 * stage, 1);
      barrier_begin(used + 8 * stage, kWarps * kTogether);
    }
    fence_copies();
  }
  if (kTogether > 1) meet_cluster();
  __syncthreads();
  let_next_begin();
  if (warp == kWarps) {
    if (lane == 0) {
      fetch_map(&a.a);
      fetch_map(&a.b);
      fetch_map(&a.c);
      await_kernel_before();
      Place place;
      for (int at = begin; at < a.tiles; at += step) {
        const Tile tile(a, at);
        for (int slab = 0; slab < a.slabs; ++slab) {
          const unsigned barrier = there + 8 * place.at, of_a = shared + place.at * kStageBytes;
          const int inner = slab * kContractSlab;
          barrier_wait(used + 8 * place.at, place.parity ^ 1);  // the ring begins as used
          barrier_expect(barrier, kStageBytes);
          bring<kTurnedA, kShares == kSharesRows, kContractRows>(of_a, &a.a, tile.row, inner, tile.matrix, barrier);
          bring<kTurnedB, kShares == kSharesColumns, kColumns>(of_a + kBytesOfA, &a.b, tile.column, inner, tile.matrix,
                                                               barrier);
          place.next();
        }
      }
    }
    __syncwarp();
  } else {
    multiply(a, shared, warp, lane, begin, step);
  }
  // The other block tells this one what it has used.
  if (kTogether > 1) meet_cluster();
}
