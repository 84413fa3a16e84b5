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
// The order of 16 channels of a step is free, as long as both operands have the same: lane t of four reads channels
// 4 t to 4 t + 3 of a row, of which 4 t + 2 h and the next one are its two of product h. Likewise of columns: fragments
// 2 p and 2 p + 1 have columns 16 p + 4 t to 16 p + 4 t + 3, so that a lane's results follow each other.
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/node_linear.h"
#include "cuda/kernels/wgmma.cuh"

using namespace clebsch::cuda;

constexpr int kDepth = 16, kGroups = kThreads / 128;
#include "cuda/kernels/tf32_products.cuh"

/// A column tile: place in the row of out, columns, their number in products, components, distance of components,
/// first term and one past the last.
struct Tile {
  int out, columns, width, components, stride, first, last;
};
/// Place in the row of x, input channels, place and strides of the weight by input channel and by column, steps of
/// the tile before.
struct Term {
  int in, depth, weight, in_stride, out_stride, step;
};
__device__ __forceinline__ const Tile& tile_at(int i) { return reinterpret_cast<const Tile&>(tiles[i]); }
__device__ __forceinline__ const Term& term_at(int i) { return reinterpret_cast<const Term&>(terms[i]); }
__device__ __forceinline__ int steps_of(int depth) { return (depth + kDepth - 1) / kDepth; }

/// Reads four numbers that the first cache need not keep.
__device__ __forceinline__ void read_past(real (&to)[4], const real* from) {
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "l"(from)
               : "memory");
}

/// Consecutive units of a column tile whose rows have one type. A unit is 64 places times one component, components
/// first.
struct Units {
  int begin, end;
  int limit;  ///< rows from there on are zero
};

/// Bytes of 32 channels of a tile's weights: a line of 128 bytes a column with the big parts, as many small ones.
__device__ __forceinline__ int block_bytes(int width) { return 256 * width; }

/// Puts a tile's weights into shared memory: 16-byte part c of line n lies at c ^ n % 8; numbers that the tile does not
/// have are zero.
template <int kWidth>
__device__ __forceinline__ void write_image(char* image, const Tile& tile, int steps, const real* weight) {
  for (int item = threadIdx.x; item < kWidth * steps; item += kThreads) {
    const int step = item / kWidth, n = item % kWidth;
    int i = tile.first;
    while (i + 1 < tile.last && step >= term_at(i + 1).step) ++i;
    const Term& term = term_at(i);
    const int column = n / 16 * 16 + n % 8 / 2 * 4 + n / 8 % 2 * 2 + n % 2, k = (step - term.step) * kDepth;
    const real* from = weight + term.weight + k * term.in_stride + column * term.out_stride;
    real v[kDepth];
#pragma unroll
    for (int c = 0; c < kDepth; c += 4) {
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
    char* line = image + step / 2 * block_bytes(kWidth) + n * 128;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint4 big, small;
      split(v[c], big.x, small.x);
      split(v[c + 4], big.y, small.y);
      split(v[c + 8], big.z, small.z);
      split(v[c + 12], big.w, small.w);
      const int at = ((step % 2 * 4 + c) ^ n % 8) * 16;
      *reinterpret_cast<uint4*>(line + at) = big;
      *reinterpret_cast<uint4*>(line + kWidth * 128 + at) = small;
    }
  }
}

/// The row at a place of the order, -1: none.
__device__ __forceinline__ int row_at(const NodeLinearArguments& a, int place) {
  return a.order ? __ldg(a.order + place) : place < a.nodes ? place : -1;
}

/// A warpgroup's units in turn: unit, and the lane's first row of it; the other one is eight on.
struct Walk {
  const NodeLinearArguments& a;
  const Units& units;
  int components, unit, half, component;

  __device__ __forceinline__ Walk(const NodeLinearArguments& map, const Units& all, const Tile& tile, int group)
      : a(map), units(all), components(tile.components), unit(all.begin + group) {
    half = unit / components;
    component = unit % components;
  }
  __device__ __forceinline__ bool there() const { return unit < units.end; }
  __device__ __forceinline__ void next() {
    unit += kGroups;
    component += kGroups;
    while (component >= components) {
      component -= components;
      ++half;
    }
  }
  /// Of the lane's upper (0) or lower row; -1: none.
  __device__ __forceinline__ int row(int lower) const {
    const int own = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    return there() ? row_at(a, half * kKeptRows + own + 8 * lower) : -1;
  }
};

/// What a lane reads of x, step by step: four numbers of each of its two rows.
struct Reader {
  const Tile& tile;
  Walk walk;
  int term, left;  ///< channels of the term from the step's first on
  int rows[2], next_rows[2];
  const real* from[2];

  __device__ __forceinline__ Reader(const Walk& begin, const Tile& own) : tile(own), walk(begin), term(own.first) {
    next_rows[0] = walk.row(0);
    next_rows[1] = walk.row(1);
    begin_unit();
    begin_term();
  }
  /// Rows of the unit are known since the one before.
  __device__ __forceinline__ void begin_unit() {
    Walk after = walk;
    after.next();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // A row that is not computed is some other one here, and its results are not used.
      rows[i] = next_rows[i] < walk.units.limit ? max(next_rows[i], 0) : 0;
      next_rows[i] = after.row(i);
    }
  }
  __device__ __forceinline__ void begin_term() {
    const Term& t = term_at(term);
    left = walk.there() ? t.depth : 0;
    const int own = t.in + walk.component * t.depth + threadIdx.x % 4 * 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      from[i] = static_cast<const real*>(walk.a.x) + static_cast<int64>(rows[i]) * kInRow + own;
    }
  }
  __device__ __forceinline__ void read(real (&to)[2][4]) {
    const bool there = static_cast<int>(threadIdx.x % 4 * 4) < left;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (there) {
        read_past(to[i], from[i]);
      } else {
        to[i][0] = to[i][1] = to[i][2] = to[i][3] = 0;
      }
      from[i] += kDepth;
    }
    left -= kDepth;
    if (left > 0 || !walk.there()) return;
    if (++term == tile.last) {
      term = tile.first;
      walk.next();
      begin_unit();
    }
    begin_term();
  }
};

/// Tensor cores cut off what does not fit a sum, which would bias a long one: the products of a step begin from zero,
/// small ones first, and go to the sum in fp32. Of two eights' products the first is cut off once more with half of
/// the sum on average.
constexpr real kCutOffStep = 1.5f * kCutOff;

/// The rows of `units` times the tile's weights, of which an image comes into shared memory first.
template <int kWidth>
__device__ __forceinline__ void multiply_rows(const NodeLinearArguments& a, const Units& units, const Tile& tile,
                                              const real* weight, char* memory) {
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), t = threadIdx.x % 4;
  const unsigned image = shared_address(memory);
  Walk walk(a, units, tile, group);
  const Term& end = term_at(tile.last - 1);
  const int steps = end.step + steps_of(end.depth);
  Reader reader(walk, tile);
  // Steps whose rows are on their way in registers: as many as there is room for.
  constexpr int kAhead = kWidth <= 64 ? 4 : 3;
  real x[kAhead][2][4];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) reader.read(x[i]);
  int rows[2] = {walk.row(0), walk.row(1)}, step = 0;
  write_image<kWidth>(memory, tile, steps, weight);
  fence_copies();
  __syncthreads();
  real sum[kWidth / 2];
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) sum[i] = 0;
#pragma unroll 1
  while (walk.there()) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      unsigned big[2][4], small[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int v = 0; v < 4; ++v) split(x[slot][v % 2][2 * h + v / 2], big[h][v], small[h][v]);
      }
      const unsigned at = image + step / 2 * block_bytes(kWidth) + step % 2 * 64;
      const unsigned long long big_w = matrix_at(at, 16), small_w = matrix_at(at + 128 * kWidth, 16);
      constexpr int kEight = 32 / 16;  // an eight of channels in a descriptor's address
      real c[kWidth / 2];
      begin_products();
      multiply_group(c, small[0], big_w, 0);
      multiply_group(c, small[1], big_w + kEight, 1);
      multiply_group(c, big[0], small_w, 1);
      multiply_group(c, big[1], small_w + kEight, 1);
      multiply_group(c, big[0], big_w, 1);
      multiply_group(c, big[1], big_w + kEight, 1);
      end_products();
      reader.read(x[slot]);
      await_products<0>();
      hold(c);
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) sum[i] += c[i];

      if (++step < steps) continue;
      step = 0;
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int row = rows[lower];
        if (row < 0) continue;
        Pack<4>* out = static_cast<Pack<4>*>(a.out) + static_cast<int64>(row) * (kOutRow / 4) +
                       (tile.out + walk.component * tile.stride) / 4 + t;
#pragma unroll
        for (int p = 0; p < kWidth / 16; ++p) {
          Pack<4> values;
#pragma unroll
          for (int v = 0; v < 4; ++v) {
            const real s = sum[8 * p + v / 2 * 4 + lower * 2 + v % 2];
            values.v[v] = row < units.limit ? fma(s, kCutOffStep, s) : 0;
          }
          if (16 * p + 4 * t < tile.columns) out[p * 4] = values;
        }
      }
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) sum[i] = 0;
      walk.next();
      if (!walk.there()) break;
      rows[0] = walk.row(0);
      rows[1] = walk.row(1);
    }
  }
}

/// The same for tiles of kWidth columns, where there are any.
template <int kWidth>
__device__ __forceinline__ void multiply_rows_of(const NodeLinearArguments& a, const Units& units, const Tile& tile,
                                                 const real* weight, char* memory) {
  if constexpr ((kWidths >> kWidth / 16 & 1) != 0) {
    if (tile.width == kWidth) multiply_rows<kWidth>(a, units, tile, weight, memory);
  }
}

/// Zeros for units that are not computed.
__device__ __forceinline__ void clear_rows(const NodeLinearArguments& a, const Units& units, const Tile& tile) {
  const int columns = tile.columns / 4, count = (units.end - units.begin) * kKeptRows * columns;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int unit = units.begin + i / columns / kKeptRows;
    const int row = row_at(a, unit / tile.components * kKeptRows + i / columns % kKeptRows);
    if (row < 0) continue;
    Pack<4>* out = static_cast<Pack<4>*>(a.out) + static_cast<int64>(row) * (kOutRow / 4) +
                   (tile.out + unit % tile.components * tile.stride) / 4;
    out[i % columns] = {{0, 0, 0, 0}};
  }
}

/// Part `part` of `parts` of the units from `from` to `to`.
__device__ __forceinline__ Units part_of(int from, int to, int part, int parts, int limit) {
  const int64 count = to - from;
  return {from + static_cast<int>(count * part / parts), from + static_cast<int>(count * (part + 1) / parts), limit};
}

/// Grid: blocks of a.tile. Dynamic shared memory: 1024 bytes and the largest tile's image.
extern "C" __global__ void __launch_bounds__(kThreads, 1) node_linear(NodeLinearKept a) {
  extern __shared__ Pack<4> memory[];
  __shared__ int found;
  const int nodes = a.map.nodes, limit = a.map.row_limit ? min(__ldg(a.map.row_limit), nodes) : nodes;
  const int part = a.part[blockIdx.x], parts = a.parts[blockIdx.x];
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
    multiply_rows_of<16>(a.map, units, tile, weight, image);
    multiply_rows_of<32>(a.map, units, tile, weight, image);
    multiply_rows_of<48>(a.map, units, tile, weight, image);
    multiply_rows_of<64>(a.map, units, tile, weight, image);
    multiply_rows_of<80>(a.map, units, tile, weight, image);
  }
}
