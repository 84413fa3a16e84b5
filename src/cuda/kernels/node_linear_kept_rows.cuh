#pragma once
// Of node_linear_kept.cuh: column tiles and their terms, the units of rows that a block takes, and what a lane reads of
// rows of x.

/// A column tile: place in the row of out, columns, their number in products, components, distance of components,
/// first term and one past the last.
struct Tile {
  int out, columns, width, components, stride, first, last;
};
/// Place in the row of x, input channels, place and strides of the weight by input channel and by column, steps (of 32
/// input channels) of the tile before.
struct Term {
  int in, depth, weight, in_stride, out_stride, step;
};
__device__ __forceinline__ const Tile& tile_at(int i) { return reinterpret_cast<const Tile&>(tiles[i]); }
__device__ __forceinline__ const Term& term_at(int i) { return reinterpret_cast<const Term&>(terms[i]); }

/// Reads four numbers that the first cache need not keep.
__device__ __forceinline__ void read_past(real (&to)[4], const real* from) {
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "l"(from)
               : "memory");
}

/// Consecutive units of a column tile whose rows have one type. A unit is one component of 64 rows that follow each
/// other; first come all components of the first 64 rows, then those of the next.
struct Units {
  int begin, end;
  int limit;  ///< rows from there on are zero
};

/// Which rows two of a warp's units have, where rows are read in an order of their own. The numbers come by a copy to
/// shared memory, not by a read to registers: to wait for such a read would be to wait for open reads of x as well,
/// which share its counter (when_there).
typedef int RowNumbers[2][16];

/// What a lane reads of x, through a warpgroup's units and their steps in turn: four numbers of each of its two rows in
/// each half of a step.
struct Reader {
  const NodeLinearArguments& a;
  const Units& units;
  const Tile& tile;
  RowNumbers& numbers;  ///< of the warp
  int components, unit, half, component, turn = 0;
  int term, left;  ///< channels of the term from the step's first on
  int rows[2];     ///< the lane's in the unit, eight apart; -1: none
  const real* from[2];

  __device__ __forceinline__ Reader(const NodeLinearArguments& map, const Units& all, const Tile& own, RowNumbers& rows,
                                    int group)
      : a(map), units(all), tile(own), numbers(rows), components(own.components), unit(all.begin + group) {
    half = unit / components;
    component = unit % components;
    ask();
    begin_unit();
  }
  __device__ __forceinline__ bool there() const { return unit < units.end; }
  /// The place of the warp's first row.
  __device__ __forceinline__ int place() const { return half * kKeptRows + threadIdx.x % 128 / 32 * 16; }
  __device__ __forceinline__ void next_unit() {
    turn ^= 1;
    unit += kGroups;
    component += kGroups;
    while (component >= components) {
      component -= components;
      ++half;
    }
  }
  /// Begins to copy the unit's row numbers.
  __device__ __forceinline__ void ask() const {
    const int lane = threadIdx.x % 32;
    if (a.order && there() && lane < 16) copy_number_later(&numbers[turn][lane], a.order + place() + lane);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ __forceinline__ static void copy_number_later(int* to, const int* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
  }
  /// Its row numbers were asked for by the one before.
  __device__ __forceinline__ void begin_unit() {
    const int own = threadIdx.x % 32 / 4;
    if (a.order) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncwarp();
      rows[0] = numbers[turn][own];
      rows[1] = numbers[turn][own + 8];
      Reader after = *this;
      after.next_unit();
      after.ask();
    } else {
      rows[0] = place() + own < a.nodes ? place() + own : -1;
      rows[1] = place() + own + 8 < a.nodes ? place() + own + 8 : -1;
    }
    term = tile.first;
    begin_term();
  }
  __device__ __forceinline__ void begin_term() {
    left = 0;
    if (!there()) return;
    const Term& t = term_at(term);
    left = t.depth;
    const int own = t.in + component * t.depth + threadIdx.x % 4 * 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // A row that is not computed is some other one here, and its results are not used.
      const int row = rows[i] < units.limit ? max(rows[i], 0) : 0;
      from[i] = static_cast<const real*>(a.x) + static_cast<int64>(row) * kInRow + own;
    }
  }
  __device__ __forceinline__ bool has_second() const { return left > kHalf; }
  __device__ __forceinline__ void next() {
    from[0] += kDepth;
    from[1] += kDepth;
    left -= kDepth;
    if (left > 0) return;
    if (++term < tile.last) {
      begin_term();
    } else {
      next_unit();
      begin_unit();
    }
  }
  /// Reads what a step multiplies; zeros beyond the term's channels. `later` is 0, but comes from when_there(): the
  /// address depends on it, so these reads begin after those that when_there() waits for.
  __device__ __forceinline__ void read(real (&to)[2][2][4], int later) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool there = static_cast<int>(threadIdx.x % 4 * 4) + half * kHalf + later < left;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        to[half][i][0] = to[half][i][1] = to[half][i][2] = to[half][i][3] = 0;
        if (there) read_past(to[half][i], from[i] + half * kHalf);
      }
    }
  }
};

/// 0, once these numbers have been read: computed from them and from `zero`, which is 0 without the compiler knowing. A
/// multiprocessor counts a warp's open reads with few counters, and the compiler takes one for all reads of a loop. A
/// read that began before these numbers had come would be waited for together with them; one that depends on this
/// result begins later.
__device__ __forceinline__ int when_there(const real (&x)[2][2][4], int zero) {
  return (__float_as_int(x[0][0][0]) | __float_as_int(x[0][1][0]) | __float_as_int(x[1][0][0]) |
          __float_as_int(x[1][1][0])) &
         zero;
}
