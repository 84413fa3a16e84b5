// node_linear.cuh's maps of many nodes in fp32 on the tensor cores of compute capability 9.0 (wgmma), where all
// multiplicities are multiples of four. A block keeps the weights of one column tile in shared memory, as two numbers
// of tf32 each, and its warpgroups read rows from global memory into registers as fragments of 64 rows: no row passes
// through shared memory, and between warpgroups nothing waits.
//
// nodes/node_linear_kept.cpp writes before it what depends on the problem:
//   real                           float
//   kThreads                       of a block
//   kInRow, kOutRow, kWeights      numbers of a row of x, of a row of out, of a type's weights
//   kWeightByRow                   the weight's fastest index is the input channel
//   kWidths                        bit i: there are tiles of 16 i columns
//   tiles[][7]    column tiles, see Tile
//   terms[][6]    what a tile sums, see Term
//   split         write_tf32_functions
//   multiply_group                 write_group_product of every width
//
// The order of 16 channels is free, as long as both operands have the same: lane t of four reads channels
// 4 t to 4 t + 3 of a row, of which 4 t + 2 h and the next one are its two of product h. Likewise of columns: fragments
// 2 p and 2 p + 1 have columns 16 p + 4 t to 16 p + 4 t + 3, so that a lane's results follow each other.
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/node_linear.h"
#include "cuda/kernels/wgmma.cuh"

using namespace clebsch::cuda;

constexpr int kDepth = 32, kHalf = 16, kGroups = kThreads / 128;
#include "cuda/kernels/node_linear_kept_rows.cuh"
#include "cuda/kernels/tf32_products.cuh"

/// Bytes of a step's weights: a line of 128 bytes a column with the big parts, as many with the small ones.
__device__ __forceinline__ int block_bytes(int width) { return 256 * width; }

/// Puts a tile's weights into shared memory: 16-byte part c of line n lies at c ^ n % 8; numbers that the tile does not
/// have are zero.
template <int kWidth>
__device__ __forceinline__ void write_image(char* image, const Tile& tile, int steps, const real* weight) {
  for (int item = threadIdx.x; item < kWidth * 2 * steps; item += kThreads) {
    const int step = item / kWidth / 2, half = item / kWidth % 2, n = item % kWidth;
    int i = tile.first;
    while (i + 1 < tile.last && step >= term_at(i + 1).step) ++i;
    const Term& term = term_at(i);
    const int column = n / 16 * 16 + n % 8 / 2 * 4 + n / 8 % 2 * 2 + n % 2;
    const int k = (step - term.step) * kDepth + half * kHalf;
    const real* from = weight + term.weight + k * term.in_stride + column * term.out_stride;
    real v[kHalf];
#pragma unroll
    for (int c = 0; c < kHalf; c += 4) {
      const bool there = column < tile.columns && k + c < term.depth;
      if (kWeightByRow) {
        const Pack<4> four = there ? *reinterpret_cast<const Pack<4>*>(from + c) : Pack<4>{{0, 0, 0, 0}};
#pragma unroll
        for (int e = 0; e < 4; ++e) v[c + e] = four.v[e];
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) v[c + e] = there ? __ldg(from + (c + e) * term.in_stride) : real(0);
      }
    }
    char* line = image + step * block_bytes(kWidth) + n * 128;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint4 big, small;
      split(v[c], big.x, small.x);
      split(v[c + 4], big.y, small.y);
      split(v[c + 8], big.z, small.z);
      split(v[c + 12], big.w, small.w);
      const int at = ((half * 4 + c) ^ n % 8) * 16;
      *reinterpret_cast<uint4*>(line + at) = big;
      *reinterpret_cast<uint4*>(line + kWidth * 128 + at) = small;
    }
  }
}

/// Tensor cores cut off what does not fit a sum, which would bias a long one: the products of 16 channels begin from
/// zero, small ones first, and go to the sum in fp32. Of two eights' products the first is cut off once more with half
/// of the sum on average.
constexpr real kCutOffHalf = 1.5f * kCutOff;

/// The sums of half a step: 16 channels, of which x has the lane's; `big_w` and `small_w` describe them in the image.
template <int kWidth>
__device__ __forceinline__ void begin_half(real (&c)[kWidth / 2], const real (&x)[2][4], unsigned long long big_w,
                                           unsigned long long small_w) {
  unsigned big[2][4], small[2][4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int v = 0; v < 4; ++v) split(x[v % 2][2 * h + v / 2], big[h][v], small[h][v]);
  }
  constexpr int kEight = 32 / 16;  // an eight of channels in a descriptor's address
  begin_products();
  multiply_group(c, small[0], big_w, 0);
  multiply_group(c, small[1], big_w + kEight, 1);
  multiply_group(c, big[0], small_w, 1);
  multiply_group(c, big[1], small_w + kEight, 1);
  multiply_group(c, big[0], big_w, 1);
  multiply_group(c, big[1], big_w + kEight, 1);
  end_products();
}

/// Adds sums that were begun.
template <int kCount>
__device__ __forceinline__ void add_half(real (&sum)[kCount], real (&c)[kCount]) {
  await_products<0>();
  hold(c);
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum[i] += c[i];
}

/// The rows of `units` times the tile's weights, of which an image comes into shared memory first.
template <int kWidth>
__device__ __forceinline__ void multiply_rows(const NodeLinearArguments& a, const Units& units, const Tile& tile,
                                              const real* weight, char* memory, RowNumbers* numbers, int zero) {
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), t = threadIdx.x % 4;
  const unsigned image = shared_address(memory);
  const Term& end = term_at(tile.last - 1);
  const int steps = end.step + (end.depth + kDepth - 1) / kDepth;
  Reader reader(a, units, tile, numbers[warp], warp / 4);
  // A step's rows are in registers, and the next one's on their way.
  real x[2][2][2][4];
  bool second[2];
  reader.read(x[0], 0);
  second[0] = reader.has_second();
  write_image<kWidth>(memory, tile, steps, weight);
  fence_copies();
  __syncthreads();
  int columns = tile.columns, stride = tile.stride, out_place = tile.out + 4 * t, rows[2], own_place = 0, step = 0;
  asm volatile("" : "+r"(columns), "+r"(stride), "+r"(out_place));  // else they are read, and waited for, in the loop
  real sum[kWidth / 2];
  bool more = true;
#pragma unroll 1
  while (more) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int later = when_there(x[slot], zero);
      if (step == 0) {
        more = reader.there();
        if (!more) break;
        rows[0] = reader.rows[0];
        rows[1] = reader.rows[1];
        own_place = out_place + reader.component * stride;
#pragma unroll
        for (int i = 0; i < kWidth / 2; ++i) sum[i] = 0;
      }
      reader.next();
      second[1 - slot] = reader.has_second();
      reader.read(x[1 - slot], later);
      const unsigned at = image + step * block_bytes(kWidth);
      real c[kWidth / 2];
      begin_half<kWidth>(c, x[slot][0], matrix_at(at, 16), matrix_at(at + 128 * kWidth, 16));
      add_half(sum, c);
      if (second[slot]) {
        begin_half<kWidth>(c, x[slot][1], matrix_at(at + 64, 16), matrix_at(at + 64 + 128 * kWidth, 16));
        add_half(sum, c);
      }
      if (++step < steps) continue;
      step = 0;
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int row = rows[lower];
        if (row < 0) continue;
        Pack<4>* out =
            reinterpret_cast<Pack<4>*>(static_cast<real*>(a.out) + static_cast<int64>(row) * kOutRow + own_place);
#pragma unroll
        for (int p = 0; p < kWidth / 16; ++p) {
          Pack<4> values;
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            const real s = sum[8 * p + v / 2 * 4 + lower * 2 + v % 2];
            values.v[v] = row < units.limit ? fma(s, kCutOffHalf, s) : 0;
          }
          if (16 * p + 4 * t < columns) out[p * 4] = values;
        }
      }
    }
  }
}

/// The same for tiles of kWidth columns, where there are any.
template <int kWidth>
__device__ __forceinline__ void multiply_rows_of(const NodeLinearArguments& a, const Units& units, const Tile& tile,
                                                 const real* weight, char* memory, RowNumbers* numbers, int zero) {
  if constexpr ((kWidths >> kWidth / 16 & 1) != 0) {
    if (tile.width == kWidth) multiply_rows<kWidth>(a, units, tile, weight, memory, numbers, zero);
  }
}

/// Zeros for units that are not computed.
__device__ __forceinline__ void clear_rows(const NodeLinearArguments& a, const Units& units, const Tile& tile) {
  const int columns = tile.columns / 4, count = (units.end - units.begin) * kKeptRows * columns;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int unit = units.begin + i / columns / kKeptRows;
    const int place = unit / tile.components * kKeptRows + i / columns % kKeptRows;
    const int row = a.order ? __ldg(a.order + place) : place < a.nodes ? place : -1;
    if (row < 0) continue;
    Pack<4>* out = static_cast<Pack<4>*>(a.out) + static_cast<int64>(row) * (kOutRow / 4) +
                   (tile.out + unit % tile.components * tile.stride) / 4;
    out[i % columns] = {{0, 0, 0, 0}};
  }
}

/// Part `part` of `parts` of the units from `from` to `to`.
__device__ __forceinline__ Units part_of(int from, int to, unsigned part, unsigned parts, int limit) {
  const unsigned count = to - from;
  return {from + static_cast<int>(count * part / parts), from + static_cast<int>(count * (part + 1) / parts), limit};
}

/// Grid: blocks of a.tile. Dynamic shared memory: 1024 bytes and the largest tile's image.
extern "C" __global__ void __launch_bounds__(kThreads, 1) node_linear(NodeLinearKept a) {
  extern __shared__ Pack<4> memory[];
  __shared__ RowNumbers numbers[kThreads / 32];
  __shared__ int found;
  const int nodes = a.map.nodes, limit = a.map.row_limit ? min(__ldg(a.map.row_limit), nodes) : nodes;
  const unsigned part = a.part[blockIdx.x], parts = a.parts[blockIdx.x];
  const Tile& tile = tile_at(a.tile[blockIdx.x]);
  char* image = reinterpret_cast<char*>(memory) + (1024 - shared_address(memory) % 1024) % 1024;

  // Halves with rows to compute come first.
  int halves = min(a.halves, (limit + kKeptRows - 1) / kKeptRows), used = a.halves;
  if (a.map.order) {
    __shared__ int last;
    if (threadIdx.x == 0) found = last = a.halves;
    __syncthreads();
    for (int group = threadIdx.x; 2 * group < a.halves; group += kThreads) {
      const int type = __ldg(a.map.group_type + group);
      if (type < 0 || type >= a.map.type_count) atomicMin(&found, 2 * group);
      if (type < 0) atomicMin(&last, 2 * group);
    }
    __syncthreads();
    halves = found;
    used = last;
  }
  if (tile.first == tile.last) halves = 0;
  clear_rows(a.map, part_of(halves * tile.components, used * tile.components, part, parts, limit), tile);

  const Units all = part_of(0, halves * tile.components, part, parts, limit);
#pragma unroll 1
  for (int begin = all.begin; begin < all.end;) {
    Units units{begin, all.end, limit};
    int type = 0;
    if (a.map.order) {
      // Up to where another type begins. All have left the image and the number before first.
      const int group = begin / tile.components / 2, last = (all.end - 1) / tile.components / 2;
      __syncthreads();
      if (threadIdx.x == 0) found = last + 1;
      __syncthreads();
      type = __ldg(a.map.group_type + group);
      for (int other = group + 1 + threadIdx.x; other <= last; other += kThreads) {
        if (__ldg(a.map.group_type + other) != type) atomicMin(&found, other);
      }
      __syncthreads();
      units.end = min(units.end, found * 2 * tile.components);
    }
    begin = units.end;
    const real* weight = static_cast<const real*>(a.map.weight) + type * static_cast<int64>(kWeights);
    multiply_rows_of<16>(a.map, units, tile, weight, image, numbers, a.zero);
    multiply_rows_of<32>(a.map, units, tile, weight, image, numbers, a.zero);
    multiply_rows_of<48>(a.map, units, tile, weight, image, numbers, a.zero);
    multiply_rows_of<64>(a.map, units, tile, weight, image, numbers, a.zero);
  }
}
