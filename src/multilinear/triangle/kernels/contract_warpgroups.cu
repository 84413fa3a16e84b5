// c = a b for a batch of matrices of 16-bit numbers, sums in 32 bits, on the tensor cores of compute capability 9.0.
// Compiled with CLEBSCH_NUMBER, 2 (half) or 3 (bfloat16), CLEBSCH_TURNED_A and _B, whether the operand lies by rows of
// the inner index, CLEBSCH_COLUMNS of a tile, a multiple of 32 up to 256, CLEBSCH_STAGES of the ring of slabs, and
// CLEBSCH_HEAD, slabs that the first warpgroup is ahead of the second, CLEBSCH_SHARES (contract.h), and
// CLEBSCH_SPLIT, parts of a tile's columns that are tiles of their own in the last round, which is seldom full.
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
#define CLEBSCH_SPLIT 4
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
constexpr int kBlock = 64 * 128;                   ///< bytes of 64 rows of 64 numbers
constexpr int kNarrow = kColumns / CLEBSCH_SPLIT;  ///< columns of a tile of the last round
/// Bytes of a slab of so many columns.
__host__ __device__ constexpr int bytes_of_b(int columns) {
  return kTurnedB ? (columns + 63) / 64 * kBlock : columns * 128;
}
constexpr int kBytesOfA = kGroups * kBlock, kStageBytes = kBytesOfA + bytes_of_b(kColumns);
constexpr int kBoxColumns = kColumns % 64 == 0 ? 64 : 32, kBoxBytes = 16 * 2 * kBoxColumns;
constexpr int kStoresAt = kStages * kStageBytes, kBarriersAt = kStoresAt + kWarps * kContractBuffers * kBoxBytes;
static_assert(kColumns % 32 == 0 && kColumns <= 256 && kStageBytes % 1024 == 0, "whole lines of eight rows");
static_assert(kNarrow * CLEBSCH_SPLIT == kColumns && kNarrow % kBoxColumns == 0, "whole boxes");

/// The kernel after this one may begin.
__device__ __forceinline__ void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// What the kernels before this one wrote is there, and they read no more.
__device__ __forceinline__ void await_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

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

/// Where a tile lies; of tiles of blocks that share something this block's. Tiles of a matrix follow each other by 16
/// tiles of rows of a column: what blocks work on at the same time is about as wide as high, and comes from memory
/// once.
struct Tile {
  int matrix, row, column;
  __device__ __forceinline__ Tile(const ContractArguments& a, int tile, int part = 0) {
    constexpr int kHigh = kShares == kSharesColumns ? 8 : 16;
    const int of_matrix = a.row_tiles * a.column_tiles, block = blockIdx.x % kTogether;
    matrix = tile / of_matrix;
    const int at = tile - matrix * of_matrix, first = at / (kHigh * a.column_tiles) * kHigh,
              high = min(kHigh, a.row_tiles - first), in_part = at - first * a.column_tiles;
    column = in_part / high * kColumns;
    row = (first + in_part % high) * kContractRows;
    if (kShares == kSharesColumns) row = 2 * row + block * kContractRows;
    if (kShares == kSharesRows) column = 2 * column + block * kColumns;
    column += part * kNarrow;
  }
};

/// Calls whole(tile) for this block's tiles, then narrow(tile) for those of the last round. Any grid of whole clusters.
template <typename Whole, typename Narrow>
__device__ __forceinline__ void each_tile(const ContractArguments& a, const Whole& whole, const Narrow& narrow) {
  const int begin = static_cast<int>(blockIdx.x) / kTogether, step = static_cast<int>(gridDim.x) / kTogether;
  for (int at = begin; at < a.whole_tiles; at += step) whole(Tile(a, at));
  if constexpr (CLEBSCH_SPLIT > 1) {
    for (int at = begin; at < (a.tiles - a.whole_tiles) * CLEBSCH_SPLIT; at += step) {
      narrow(Tile(a, a.whole_tiles + at / CLEBSCH_SPLIT, at % CLEBSCH_SPLIT));
    }
  }
}

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

/// Brings the slabs of tiles; one thread.
struct Bringer {
  const ContractArguments& a;
  unsigned shared, there, used;
  Place place;

  template <int kWidth>
  __device__ __forceinline__ void bring_tile(const Tile& tile) {
    for (int slab = 0; slab < a.slabs; ++slab) {
      const unsigned barrier = there + 8 * place.at, of_a = shared + place.at * kStageBytes;
      const int inner = slab * kContractSlab;
      barrier_wait(used + 8 * place.at, place.parity ^ 1);  // the ring begins as used
      barrier_expect(barrier, kBytesOfA + bytes_of_b(kWidth));
      bring<kTurnedA, kShares == kSharesRows, kContractRows>(of_a, &a.a, tile.row, inner, tile.matrix, barrier);
      bring<kTurnedB, kShares == kSharesColumns, kWidth>(of_a + kBytesOfA, kWidth == kColumns ? &a.b : &a.narrow_b,
                                                         tile.column, inner, tile.matrix, barrier);
      place.next();
    }
  }
};

/// Products and stores of a warp of the two warpgroups.
struct Multiplier {
  const ContractArguments& a;
  unsigned shared, there, used, stores;
  int warp, lane;
  bool waits = kHead > 0;  ///< the second warpgroup for the first
  int boxes = 0;           ///< that were stored
  Place place;

  /// Tells those who bring that this warp has used a slab.
  __device__ __forceinline__ void give_back(unsigned barrier) const {
    if (kTogether == 1) {
      if (lane == 0) barrier_arrive(barrier);
    } else {
      if (lane < kTogether) barrier_arrive_at(barrier, lane);
    }
  }

  template <int kCount>
  __device__ __forceinline__ void multiply_tile(const Tile& tile, float (&sums)[kCount]) {
    // A step of 16 inner indices is 16 numbers of a row, or 16 rows.
    constexpr int kStepOfA = (kTurnedA ? 16 * 128 : 32) / 16, kStepOfB = (kTurnedB ? 16 * 128 : 32) / 16;
    const int group = warp / 4;
    const unsigned long long first_a = matrix_at(shared + group * kBlock, kBlock),
                             first_b = matrix_at(shared + kBytesOfA, kBlock);
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
        TileProduct<kTurnedA, kTurnedB, kCount>::add(sums, of_a + part * kStepOfA, of_b + part * kStepOfB, slab + part);
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
#pragma unroll
    for (int box = 0; box < 2 * kCount / kBoxColumns; ++box) {
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
};
template <int kCount>
__device__ __forceinline__ void clear(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = 0.0f;
}

extern "C" CLEBSCH_CLUSTER __global__ void __launch_bounds__(kThreads, 1)
    contract_warpgroups(const __grid_constant__ ContractArguments a) {
  extern __shared__ unsigned char memory[];
  unsigned char* const base = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const unsigned shared = shared_address(base), there = shared + kBarriersAt, used = there + 8 * kStages;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
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
      Bringer bringer{a, shared, there, used, {}};
      each_tile(
          a, [&](const Tile& tile) { bringer.bring_tile<kColumns>(tile); },
          [&](const Tile& tile) { bringer.bring_tile<kNarrow>(tile); });
    }
    __syncwarp();
  } else {
    Multiplier multiplier{a, shared, there, used, shared + kStoresAt + warp * kContractBuffers * kBoxBytes, warp, lane};
    float sums[kColumns / 2], narrow[kNarrow / 2];
    clear(sums);
    clear(narrow);
    each_tile(
        a, [&](const Tile& tile) { multiplier.multiply_tile(tile, sums); },
        [&](const Tile& tile) { multiplier.multiply_tile(tile, narrow); });
    if (lane == 0) await_stores();
  }
  // The other block tells this one what it has used.
  if (kTogether > 1) meet_cluster();
}
