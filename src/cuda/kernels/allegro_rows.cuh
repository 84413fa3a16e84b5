#pragma once
// Allegro's matrix products in fp32 on tensor cores, three products of tf32 for one of fp32 (emit/tf32_product.h). A
// block keeps the weight of a call, whole or some columns of it, in shared memory and stays; each of its warps walks
// through tiles of 16 rows on its own: copies of its next kStages - 1 slabs of x are on their way while it multiplies
// one, also while it stores results, and so is what a tile's results are added to or times. Warps wait for each other
// once, before the first product.
//
// allegro/allegro_rows.cpp writes before it
//   real, int64                    float and long long
//   kMove                          numbers that divide all widths and places: 1, 2 or 4
//   kDepth, kStages                columns of a slab, 16 or 32, and slabs that a warp has room for
//   kSplit                         the weight is kept as big and small numbers of tf32, in twice the room
//   kMostThreads                   a block's threads at most
//   Segment, segments, Call, calls what the calls multiply (allegro_dense.cpp)
//   split, multiply_add            write_tf32_functions
//
// A slab is kDepth numbers of kRows rows. Which lane has which k and column of a fragment is free, as long as both
// operands agree: a lane takes k = 2 t and 2 t + 1 of eight, and has four columns that follow each other of the 16 that
// two fragments make.
#include "cuda/kernels/allegro_rows.h"
#include "cuda/kernels/tf32_products.cuh"

using namespace clebsch::cuda;

constexpr int kRows = kAllegroTileRows, kSlab = kRows * kDepth;
/// Columns whose sums a warp has in registers, and those that it multiplies at a time.
constexpr int kTile = kAllegroTileColumns, kHalf = kAllegroHalfTile;
/// Numbers in shared memory of 8 x 16 of the weight, and of what a warp's results are added to or times.
constexpr int kGroup = kSplit ? 256 : 128, kBefore = kRows * kTile;

using Move = Pack<kMove>;

/// End of a call some of whose results are added to what is there.
constexpr int kAdded = kTimesSlope + 1;

/// Address where some columns begin in row 0, and bytes from row to row. Of x kDepth columns, info: how many there are,
/// or more. Of results kMove columns, info: whether they are added to what is there. Of slopes all of a block's
/// columns, info: whether they are kept.
struct __align__(16) Columns {
  int64 address;
  int stride, info;

  /// One instruction, as the product is of 64 bits.
  __device__ __forceinline__ real* row(int number) const {
    return reinterpret_cast<real*>(address + static_cast<int64>(number) * stride);
  }
};

/// x / (1 + exp(-x)) and its slope, each with an error of about two last bits: 1 + exp(-x) may become infinite, whose
/// reciprocal is zero.
__device__ __forceinline__ real silu(real v, real& slope) {
  const auto power = [](real x) {
    real y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  };
  const auto reciprocal = [](real x) {
    real y;
    asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  };
  const real gate = reciprocal(real(1) + power(v * real(-1.4426950408889634)));
  slope = gate * fma(v, real(1) - gate, real(1));
  return v * gate;
}

/// The weight as fragments: [eight of k][16 columns][big, small][lane][four numbers: two of k for each of two
/// fragments], or whole numbers without [big, small]. Of a group of 8 x 16 a lane brings four numbers that lie side by
/// side in memory; what is beyond the matrix is zero.
__device__ __forceinline__ void stage_weight(real* weights, const real* __restrict__ matrix, const Call& call,
                                             int first_column, int columns, int groups, int eights,
                                             const Columns* steps, const int* weight_rows) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int k_of_lane = call.transposed ? lane % 2 * 4 : lane / 4;
  const int c_of_lane = call.transposed ? lane / 2 : lane % 4 * 4;
#pragma unroll 4
  for (int group = threadIdx.x / 32; group < eights * groups; group += warps) {
    const int eight = group / groups, step = eight / (kDepth / 8);
    const int k = eight % (kDepth / 8) * 8 + k_of_lane, c = group % groups * 16 + c_of_lane;
    const int left = steps[step].info, row = weight_rows[step];
    real w[4];
#pragma unroll
    for (int v = 0; v < 4; v += kMove) {
      const int kv = call.transposed ? k + v : k, cv = call.transposed ? c : c + v;
      const int64 at = call.transposed ? static_cast<int64>(first_column + cv) * call.leading + row + kv
                                       : static_cast<int64>(row + kv) * call.leading + first_column + cv;
      const Move m = kv < left && cv < columns ? *reinterpret_cast<const Move*>(matrix + at) : Move();
#pragma unroll
      for (int u = 0; u < kMove; ++u) w[v + u] = m.v[u];
    }
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const int kv = k_of_lane + (call.transposed ? v : 0), cv = c_of_lane + (call.transposed ? 0 : v);
      const int reader = (cv / 4 * 2 + cv % 2) * 4 + kv / 2, fragment = cv / 2 % 2;
      real* const to = weights + group * kGroup + reader * 4 + fragment * 2 + kv % 2;
      if (kSplit) {
        unsigned big, small;
        split(w[v], big, small);
        to[0] = __uint_as_float(big);
        to[128] = __uint_as_float(small);
      } else {
        to[0] = w[v];
      }
    }
  }
}

/// Products of one slab: sum += x w for kHalves * kHalf columns of a tile.
template <int kHalves>
__device__ __forceinline__ void multiply_slab(real (&sum)[2][4][4], const real* slab, const real* weights, int groups) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const real* w_of_lane = weights + lane * 4;
#pragma unroll 1
  for (int eight = 0; eight < kDepth / 8; ++eight, w_of_lane += groups * kGroup) {
    const real* const x = slab + turned(g, eight * 8 + 2 * t);
    const Pack<2> upper = *reinterpret_cast<const Pack<2>*>(x);
    const Pack<2> lower = *reinterpret_cast<const Pack<2>*>(x + 8 * kDepth);
    unsigned big[4], small[4];
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      split(upper.v[v], big[2 * v], small[2 * v]);
      split(lower.v[v], big[2 * v + 1], small[2 * v + 1]);
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      unsigned big_w[4][2], small_w[4][2];
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const real* const from = w_of_lane + (half * 2 + pair) * kGroup;
        const Pack<4> w = *reinterpret_cast<const Pack<4>*>(from);
        const Pack<4> rest = kSplit ? *reinterpret_cast<const Pack<4>*>(from + 128) : Pack<4>();
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          unsigned &b = big_w[pair * 2 + v / 2][v % 2], &s = small_w[pair * 2 + v / 2][v % 2];
          if (kSplit) {
            b = __float_as_uint(w.v[v]);
            s = __float_as_uint(rest.v[v]);
          } else {
            split(w.v[v], b, s);
          }
        }
      }
      add_three_products(sum[half], big, small, big_w, small_w);
    }
  }
}

/// A lane's results in a tile: of two rows, g and g + 8, and of each 16 columns four that follow each other. Calls
/// visit(piece, column, row, is) for each kMove of them; piece: the first one's number of the lane's 32; is: whether
/// the matrix has it. What does not depend on `is` needs no branch.
template <typename F>
__device__ __forceinline__ void each_result(unsigned lane, int tile, int rows, int first, int columns, F&& visit) {
  const int row = tile * kRows + lane / 4;
#pragma unroll
  for (int group = 0; group < 4; ++group) {
#pragma unroll
    for (int v = 0; v < 4; v += kMove) {
      const unsigned c = first + group * 16 + lane % 4 * 4 + v;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool is = c < static_cast<unsigned>(columns) && row + i * 8 < rows;
        visit((group * 2 + i) * 4 + v, c, row + i * 8, is);
      }
    }
  }
}

/// Place of a piece among what a warp's results are added to or times: neighbouring lanes' are side by side.
__device__ __forceinline__ int before_place(int piece, unsigned lane) {
  return (piece / 4 * 32 + lane) * 4 + piece % 4;
}

/// Where a block's results go.
struct Results {
  const Columns *targets, *slopes;
  int rows, columns;
};

/// Begins copies of what a tile's results are added to or times: a lane brings what it will read.
template <int kEnd>
__device__ __forceinline__ void fetch_before(const Results& to, real* before, int tile, int first) {
  const unsigned lane = threadIdx.x % 32;
  const Columns slopes = *to.slopes;
  each_result(lane, tile, to.rows, first, to.columns, [&](int piece, unsigned c, int row, bool is) {
    const Columns from = kEnd == kTimesSlope ? slopes : to.targets[c / kMove];
    const bool read = is && (kEnd == kTimesSlope || from.info);
    copy_bytes_later<kMove * sizeof(real), true>(before + before_place(piece, lane),
                                                 from.row(row) + (kEnd == kTimesSlope ? c : 0),
                                                 read ? kMove * static_cast<int>(sizeof(real)) : 0);
  });
}

/// Stores a tile's results. before: of fetch_before.
template <int kEnd>
__device__ __forceinline__ void store_results(const real (&sum)[2][4][4], const Results& to, const real* before,
                                              int tile, int first) {
  // Hides that the places of results follow from the lane alone: kept over the products, they would not fit in
  // registers.
  unsigned lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));
  const Columns slopes = *to.slopes;
  each_result(lane, tile, to.rows, first, to.columns, [&](int piece, unsigned c, int row, bool is) {
    const Columns target = to.targets[c / kMove];
    Move x, slope, b;
    if (kEnd == kAdded || kEnd == kTimesSlope) b = *reinterpret_cast<const Move*>(before + before_place(piece, lane));
#pragma unroll
    for (int u = 0; u < kMove; ++u) {
      const int group = piece / 8, i = piece / 4 % 2, v = piece % 4 + u;
      x.v[u] = sum[group / 2][group % 2 * 2 + v / 2][i * 2 + v % 2];
      if (kEnd == kAdded && target.info) x.v[u] += b.v[u];
      if (kEnd == kTimesSlope) x.v[u] *= b.v[u];
      if (kEnd == kKeepSlope) x.v[u] = silu(x.v[u], slope.v[u]);
    }
    if (is) *reinterpret_cast<Move*>(target.row(row)) = x;
    if (kEnd == kKeepSlope && is && slopes.info) *reinterpret_cast<Move*>(slopes.row(row) + c) = slope;
  });
}

/// Grid: (any number of blocks, which share the row tiles; parts of `part` columns, a multiple of kTile or all).
extern "C" __global__ void __launch_bounds__(kMostThreads, 1) allegro_dense(AllegroRowsArguments a) {
  extern __shared__ float4 memory[];
  const Call& call = calls[a.call];
  const AllegroChunk range = a.chunks[a.chunk];
  const int rows = range.end_edge - range.first_edge, tiles = (rows + kRows - 1) / kRows;
  const int tid = threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int first_column = blockIdx.y * a.part, columns = min(a.part, call.columns - first_column);
  const int groups = (columns + kHalf - 1) / kHalf * 2;  // of 16 columns
  int step_count = 0;
  for (int i = call.in_begin; i < call.in_end; ++i) step_count += (segments[i].width + kDepth - 1) / kDepth;
  int end = call.end;
  for (int i = call.in_end; i < call.out_end; ++i) end = segments[i].add ? kAdded : end;
  const bool reads = end == kAdded || end == kTimesSlope;

  const int room = kStages * kSlab + (reads ? kBefore : 0);  // of a warp
  real* const ring = reinterpret_cast<real*>(memory) + warp * room;
  real* const before = ring + kStages * kSlab;
  real* const weights = reinterpret_cast<real*>(memory) + warps * room;
  Columns* const steps = reinterpret_cast<Columns*>(weights + step_count * (kDepth / 8) * groups * kGroup);
  Columns* const slopes = steps + step_count;
  Columns* const targets = slopes + 1;
  int* const weight_rows = reinterpret_cast<int*>(targets + (columns + kTile - 1) / kTile * kTile / kMove);
  constexpr int kBytes = sizeof(real);
  const auto columns_at = [&](int64 place, int stride, int info) {
    return Columns{reinterpret_cast<int64>(a.work + place), stride * kBytes, info};
  };
  for (int s = tid; s < step_count; s += blockDim.x) {
    int i = call.in_begin, begin = s * kDepth, base = 0;
    for (int padded; begin >= (padded = (segments[i].width + kDepth - 1) / kDepth * kDepth); ++i) {
      begin -= padded;
      base += segments[i].width;
    }
    const Segment& from = segments[i];
    steps[s] = columns_at(a.capacity * from.offset + from.first + begin, from.stride, from.width - begin);
    weight_rows[s] = base + begin;
  }
  for (int c = tid * kMove; c < columns; c += blockDim.x * kMove) {
    int i = call.in_end, column = first_column + c;
    while (column >= segments[i].width) column -= segments[i++].width;
    const Segment& to = segments[i];
    targets[c / kMove] = columns_at(a.capacity * to.offset + to.first + column, to.stride, to.add);
  }
  if (tid == 0) *slopes = columns_at(a.capacity * call.slope + first_column, call.slope_stride, a.gradients);
  __syncthreads();
  const int stride = gridDim.x * warps;
  int tile = blockIdx.x + gridDim.x * warp;
  const Results results{targets, slopes, rows, columns};

  int next_tile = tile, next_first = 0, next_step = 0;
  auto fetch = [&](int stage) {
    if (next_tile * kRows < rows) {
      const Columns s = steps[next_step];
      real* const slab = ring + stage * kSlab;
      // Neighbouring lanes copy what lies side by side.
      constexpr int kWide = kMove == 4 ? 4 : 1, kAcross = kDepth / kWide, kDown = 32 / kAcross;
      const int r = lane / kAcross, k = lane % kAcross * kWide;
      // Hidden, so that the place of k is not added once more for every row.
      Columns from{s.address + k * kBytes, s.stride, 0};
      asm volatile("" : "+l"(from.address));
      const int bytes = k < s.info ? kWide * kBytes : 0;
#pragma unroll(kMove == 4 ? kRows / kDown : 2)
      for (int i = 0; i < kRows / kDown; ++i) {
        // Rows beyond the last one are that one again: they are not stored.
        const int row = min(next_tile * kRows + r + i * kDown, rows - 1);
        const int to = kDown % 4 == 0 ? turned(r, k) + i * kDown * kDepth : turned(r + i * kDown, k);
        copy_bytes_later<kWide * kBytes, true>(slab + to, from.row(row), bytes);
      }
      if (++next_step == step_count) {
        next_step = 0;
        next_first += kTile;
        if (next_first >= columns) {
          next_first = 0;
          next_tile += stride;
        }
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage);
  stage_weight(weights, a.dense + call.weight, call, first_column, columns, groups, step_count * (kDepth / 8), steps,
               weight_rows);
  __syncthreads();

  int stage = 0;
  for (; tile < tiles; tile += stride) {
#pragma unroll 1
    for (int first = 0; first < columns; first += kTile) {
      // These copies are of the group that the next fetch ends.
      if (end == kAdded) fetch_before<kAdded>(results, before, tile, first);
      if (end == kTimesSlope) fetch_before<kTimesSlope>(results, before, tile, first);
      real sum[2][4][4];
#pragma unroll
      for (int i = 0; i < 32; ++i) sum[i / 16][i / 4 % 4][i % 4] = 0;
      const bool both = first + kHalf < columns;
      const real* w = weights + first / 16 * kGroup;
#pragma unroll 1
      for (int step = 0; step < step_count; ++step, w += kDepth / 8 * groups * kGroup) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
        __syncwarp();
        // All lanes have left the slab before, whose place the next copies take.
        fetch(stage == 0 ? kStages - 1 : stage - 1);
        if (both) {
          multiply_slab<2>(sum, ring + stage * kSlab, w, groups);
        } else {
          multiply_slab<1>(sum, ring + stage * kSlab, w, groups);
        }
        stage = stage == kStages - 1 ? 0 : stage + 1;
      }
      // Longer sums have waited for it before.
      if (reads && step_count < kStages) asm volatile("cp.async.wait_group 0;" ::: "memory");
      if (end == kPlain) store_results<kPlain>(sum, results, before, tile, first);
      if (end == kAdded) store_results<kAdded>(sum, results, before, tile, first);
      if (end == kKeepSlope) store_results<kKeepSlope>(sum, results, before, tile, first);
      if (end == kTimesSlope) store_results<kTimesSlope>(sum, results, before, tile, first);
    }
  }
}
