// Sums over keys and over queries in double precision on tensor cores, and the factors of queries in the latter; for
// every number type. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "cuda/kernels/matrix_product.cuh"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
/// A block has 64 x 64 of the sums and takes 32 rows at a time, half of them in each group of four warps; a warp has 32
/// x 32.
constexpr int kBlock = 64, kSteps = 32, kThreads = 256, kLine = 2 * kBlock;
constexpr int kAcross = (kAll + kBlock - 1) / kBlock, kTiles = (kD + kBlock - 1) / kBlock * kAcross;

/// Numbers that a thread reads at once: 16 bytes, or less where rows are not multiples of them.
constexpr int kBoth = kD | kDv, kMost = 16 / static_cast<int>(sizeof(number));
constexpr int kUnit = kBoth % kMost == 0 ? kMost : kBoth % 4 == 0 && kMost > 4 ? 4 : kBoth % 2 == 0 ? 2 : 1;
/// Pairs of 16-bit numbers stay together, as they came: taking them apart would wait for them.
constexpr bool kPairs = sizeof(number) == 2 && kUnit % 2 == 0;
template <bool kPaired>
struct WordOf {
  using type = number;
};
template <>
struct WordOf<true> {
  using type = unsigned;
};
struct alignas(kUnit * sizeof(number)) Unit {
  WordOf<kPairs>::type x[kPairs ? kUnit / 2 : kUnit];
  __device__ __forceinline__ number at(int u) const {
    return static_cast<number>(kPairs ? static_cast<unsigned>(x[u / 2]) >> u % 2 * 16 : x[u]);
  }
};
constexpr int kUnits = kBlock / kUnit;                 // of a row, on the left or on the right
constexpr int kEach = kSteps * 2 * kUnits / kThreads;  // of a stage for a thread
constexpr int kWaiting = kEach > 4 ? 1 : 2;            // stages that wait in registers: as many as these hold
static_assert(kEach >= 1 && kBlock % kUnit == 0, "a stage is a whole number of units for every thread");

// A stage in shared memory: lines of a row's left and right columns. The first numbers of all units come first, then
// the second ones, so that threads that write units side by side meet different banks, and four rows, which products
// read at once, are shifted against each other.
__device__ __forceinline__ int column_at(int place) { return place % kUnits * kUnit + place / kUnits; }
__device__ __forceinline__ int shift_of(int row) { return row % 2 * 8 + row / 2 % 2 * 4; }
/// Where the sums of a block are put together: rows and columns that a warp writes at once meet different banks.
__device__ __forceinline__ int sum_at(int row, int column) {
  return row * kBlock + (column ^ ((row / 8 ^ row) % 4 + column / 16 * 4));
}

constexpr int kStageStep = kThreads / (2 * kUnits);  // rows from a thread's unit to its next one
__device__ __forceinline__ int step_of(int e) { return static_cast<int>(threadIdx.x) / (2 * kUnits) + e * kStageStep; }

/// The factor of a row of queries, or the multiplicity of one of keys.
template <bool kOfQueries>
struct FactorOf {
  using type = number;
};
template <>
struct FactorOf<true> {
  using type = double;
};
/// What a thread has read of a stage and not yet written into shared memory; nothing looks at it before.
template <bool kOfQueries>
struct Waiting {
  using Factor = typename FactorOf<kOfQueries>::type;
  Unit unit[kEach];
  Factor of[kEach];
};

/// Where a thread reads: its units of all rows are in the same columns.
template <bool kOfQueries>
struct Source {
  using Factor = typename Waiting<kOfQueries>::Factor;
  const number* from;     ///< its columns in its next row
  const Factor* factors;  ///< of its next row
  int width, factor_step;
  bool ones;  ///< factors are ones, and not read
  int left;   ///< rows from its next one on; none where the thread has no columns

  /// Of the next stage.
  __device__ __forceinline__ void read(Waiting<kOfQueries>& to) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      to.unit[e] = {};
      to.of[e] = {};
      if (e * kStageStep < left) to.unit[e] = *reinterpret_cast<const Unit*>(from + e * kStageStep * width);
      if (e * kStageStep < left && !ones) to.of[e] = factors[e * kStageStep * factor_step];
    }
    from += kSteps * width;
    factors += kSteps * factor_step;
    left -= kSteps;
  }
};

/// Sums of the left columns (row_block and on) times columns (column_block and on) of [left, right], over runs of rows.
struct SumTile {
  int row_block, column_block;
  double sums[2][4][4] = {};

  /// The thread's columns of `count` rows. kOfQueries: factors c2 and c1 of the columns on the right; else `weights`
  /// (null: ones) of the columns of `first`.
  template <bool kOfQueries>
  __device__ __forceinline__ Source<kOfQueries> source(const number* first, const number* second,
                                                       const typename Waiting<kOfQueries>::Factor* factors,
                                                       int factor_step, int count) const {
    const int unit = threadIdx.x % (2 * kUnits), row = step_of(0);
    const bool right = unit >= kUnits;
    const int column = unit % kUnits * kUnit + (right ? column_block : row_block);
    const bool of_second = column >= kD;
    Source<kOfQueries> mine;
    mine.width = of_second ? kDv : kD;
    mine.from = (of_second ? second - kD : first) + column + row * mine.width;
    mine.left = column < (right ? kAll : kD) ? count - row : 0;
    mine.factor_step = factor_step;
    mine.factors = factors + row * factor_step + (kOfQueries && !of_second ? 1 : 0);
    mine.ones = kOfQueries ? !right : of_second || !factors;
    return mine;
  }

  /// What a unit's numbers are multiplied by.
  template <bool kOfQueries>
  static __device__ __forceinline__ void factors_of(double (&by)[kEach], const Waiting<kOfQueries>& from, bool ones) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const double of = ones ? 1.0 : to_double(from.of[e]);
      by[e] = kOfQueries ? of : of * kRawScale;
    }
  }

  /// Part `part` of kParts of what waits, into a stage.
  static constexpr int kParts = 8, kNumbers = kEach * kUnit;
  template <bool kOfQueries>
  __device__ __forceinline__ void write(double* stage, const Waiting<kOfQueries>& from, const double (&by)[kEach],
                                        int part) const {
    const int unit = threadIdx.x % kUnits, side = threadIdx.x / kUnits % 2;
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      if (i * kParts / kNumbers != part) continue;
      const int e = i / kUnit, u = i % kUnit;
      // A shift of 8 is to the place of the unit's next number, or of the one before, where a row has eight units.
      const int shift = shift_of(step_of(e)) ^ 8 * side,
                swap = kUnits == 8 ? (u % 2 == 0 ? shift / 8 : -(shift / 8)) : 0;
      const double raw = raw_double(from.unit[e].at(u));
      stage[step_of(e) * kLine + side * kBlock + (unit ^ shift % kUnits) + (u + swap) * kUnits] =
          (kOfQueries ? raw * kRawScale : raw) * by[e];
    }
  }

  /// Multiplies a stage; between the products the next one is written, which the tensor cores leave time for.
  template <bool kOfQueries>
  __device__ __forceinline__ void multiply(const double* stage, double* next, const Waiting<kOfQueries>& from,
                                           bool ones) {
    double by[kEach];
    factors_of<kOfQueries>(by, from, ones);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int shift = shift_of(t), places[2] = {g ^ shift, (g + 8) ^ shift};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const double* line = stage + (warp / 4 * 16 + half * 8 + t) * kLine;
      const double *of_rows = line + warp / 2 % 2 * 32, *of_columns = line + kBlock + warp % 2 * 32;
      double a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) a[i][r] = of_rows[r / 2 * 4 * kLine + 16 * i + places[r % 2]];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const double* at = of_columns + j / 2 * 16 + places[1 - j % 2];
        const double b[2] = {at[0], at[4 * kLine]};
        multiply_large_tile(sums[0][j], a[0], b);
        multiply_large_tile(sums[1][j], a[1], b);
        write<kOfQueries>(next, from, by, 4 * half + j);
      }
    }
  }

  /// Adds both groups' sums and stores them; `parts` is the stages' memory.
  __device__ __forceinline__ void store(double* to, double* parts) const {
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    for (int mine = 1; mine >= 0; --mine) {
      __syncthreads();
      if (group != mine) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            double* at = parts + sum_at(column_at(warp / 2 * 32 + 16 * i + lane / 4 + 8 * (r / 2)),
                                        column_at(warp % 2 * 32 + 8 * j + 2 * (lane % 4) + r % 2));
            *at = mine == 1 ? sums[i][j][r] : sums[i][j][r] + *at;
          }
        }
      }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < kBlock * kBlock; at += kThreads) {
      const int row = at / kBlock, column = at % kBlock;
      if (row_block + row < kD && column_block + column < kAll)
        to[(row_block + row) * kAll + column_block + column] = parts[sum_at(row, column)];
    }
  }
};

/// Factors of a head's rows, from its first row on.
template <bool kOfQueries>
__device__ __forceinline__ const typename FactorOf<kOfQueries>::type* factors_of_rows(const SumArguments& a, Rows all,
                                                                                      int sequence) {
  if constexpr (kOfQueries) {
    return a.coefficients + a.coefficient_step * all.first;
  } else {
    const number* weights = static_cast<const number*>(a.multiplicity);
    return weights ? weights + multiplicity_row(a.shape, sequence) : nullptr;
  }
}

template <bool kOfQueries>
__device__ __forceinline__ void sums_of_rows(const SumArguments& a) {
  extern __shared__ __align__(16) double2 memory[];
  double* const stages[2] = {&memory->x, &memory->x + kSteps * kLine};
  const int tile = blockIdx.x % kTiles, chunk = blockIdx.x / kTiles % a.chunks, place = blockIdx.x / kTiles / a.chunks;
  const int group = a.shape.heads / a.shape.key_heads;
  int sequence = place / a.shape.key_heads, key_head = place % a.shape.key_heads, runs = 1, head = key_head;
  Rows mine;
  if (a.rows > 0) {
    const CausalChunk of_slot = causal_chunk(a.shape, a.rows, chunk);
    sequence = of_slot.sequence;
    key_head = place;
    mine = {of_slot.first, of_slot.count};
    if (kOfQueries) runs = group;
    head = kOfQueries ? key_head * group : key_head;
  } else if (kOfQueries) {
    const int chunks = a.chunks / group;
    head = key_head * group + chunk / chunks;
    mine = chunk_of(query_rows(a.shape, sequence, head).count, chunks, chunk % chunks, kSteps);
  } else {
    mine = chunk_of(key_rows(a.shape, sequence, head).count, a.chunks, chunk, kSteps);
  }
  if (a.head_flags && !a.head_flags[sequence * a.shape.key_heads + key_head]) return;
  SumTile sums;
  sums.row_block = tile / kAcross * kBlock;
  sums.column_block = tile % kAcross * kBlock;
  for (int run = 0; run < runs; ++run) {
    const Rows all = kOfQueries ? query_rows(a.shape, sequence, head + run) : key_rows(a.shape, sequence, head);
    const number* first = static_cast<const number*>(kOfQueries ? a.q : a.k) + all.first * kD;
    const number* second = static_cast<const number*>(kOfQueries ? a.grad : a.v) + all.first * kDv;
    const int step = kOfQueries ? a.coefficient_step : 1;
    const auto* factors = factors_of_rows<kOfQueries>(a, all, sequence);
    Source<kOfQueries> source =
        sums.source<kOfQueries>(first + mine.first * kD, second + mine.first * kDv,
                                factors ? factors + mine.first * step : nullptr, step, static_cast<int>(mine.count));
    Waiting<kOfQueries> waiting[kWaiting];  // one stage does not take as long as memory needs to answer
#pragma unroll
    for (int w = 0; w < kWaiting; ++w) source.read(waiting[w]);
    double by[kEach];
    SumTile::factors_of<kOfQueries>(by, waiting[0], source.ones);
#pragma unroll
    for (int part = 0; part < SumTile::kParts; ++part) sums.write<kOfQueries>(stages[0], waiting[0], by, part);
    source.read(waiting[0]);
    __syncthreads();
    for (int row = 0; row < mine.count; row += 2 * kSteps) {
#pragma unroll
      for (int stage = 0; stage < 2; ++stage) {
        Waiting<kOfQueries>& next = waiting[(1 - stage) % kWaiting];
        sums.multiply<kOfQueries>(stages[stage], stages[1 - stage], next, source.ones);
        source.read(next);
        __syncthreads();
      }
    }
  }
  const long long size = kD * kAll;
  sums.store(
      static_cast<double*>(a.partial) + place * (a.partial_step ? a.partial_step : a.chunks * size) + chunk * size,
      stages[0]);
}

/// Grid: key heads of all sequences (causal: key heads) x chunks x tiles.
extern "C" __global__ void __launch_bounds__(kThreads) sums_of_keys(SumArguments a) { sums_of_rows<false>(a); }
extern "C" __global__ void __launch_bounds__(kThreads) sums_of_queries(SumArguments a) { sums_of_rows<true>(a); }

/// c1 = 1 / norm and c2 = (grad_norm - grad . out / norm) / norm of every query; zeros where the norm is zero. Eight
/// lanes a row. Grid: sequences x heads, parts.
extern "C" __global__ void __launch_bounds__(128) coefficients(RowArguments a) {
  constexpr int kLanes = 8, kRows = 128 / kLanes;
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  if (a.head_flags && !a.head_flags[key_head]) return;
  const Rows all = query_rows(a.shape, sequence, head);
  const int lane = threadIdx.x % kLanes;
  for (long long from = static_cast<long long>(blockIdx.y) * kRows; from < all.count;
       from += static_cast<long long>(gridDim.y) * kRows) {
    const long long at = from + threadIdx.x / kLanes;
    const bool there = at < all.count;
    const long long row = all.first + (there ? at : 0);
    const Unit* grad = reinterpret_cast<const Unit*>(static_cast<const number*>(a.grad) + row * kDv);
    const Unit* out = reinterpret_cast<const Unit*>(static_cast<const number*>(a.out) + row * kDv);
    double sum = 0.0;
#pragma unroll
    for (int part = 0; part < (kDv / kUnit + kLanes - 1) / kLanes; ++part) {
      const int unit = part * kLanes + lane;
      if (unit >= kDv / kUnit) continue;
      const Unit x = grad[unit], y = out[unit];
#pragma unroll
      for (int u = 0; u < kUnit; ++u) sum += to_double(x.at(u)) * to_double(y.at(u));
    }
    for (int bits = kLanes / 2; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
    if (!there || lane != 0) continue;
    const double norm = static_cast<double>(static_cast<const real*>(a.norm)[row]);
    const double of_norm = a.grad_norm ? static_cast<double>(static_cast<const real*>(a.grad_norm)[row]) : 0.0;
    double* to = a.coefficients + row * a.coefficient_step;
    to[0] = norm == 0.0 ? 0.0 : 1.0 / norm;
    to[1] = norm == 0.0 ? 0.0 : (of_norm - sum / norm) / norm;
  }
}

/// Chunks added in a fixed order, a quarter of them by every group of 64 threads. Grid: key heads x ceil(d (d + dv) /
/// 64).
extern "C" __global__ void __launch_bounds__(256) add_chunks(SumArguments a) {
  constexpr int kBlocks = (kD * kAll + 63) / 64;
  __shared__ double parts[4][64];
  const int head = blockIdx.x / kBlocks, group = threadIdx.x / 64, mine = threadIdx.x % 64;
  const int at = blockIdx.x % kBlocks * 64 + mine;
  if (a.head_flags && !a.head_flags[head]) return;
  const long long size = kD * kAll;
  const double* from =
      static_cast<const double*>(a.partial) + head * (a.partial_step ? a.partial_step : a.chunks * size) + at;
  double sum = 0.0;
  if (at < size) {
#pragma unroll 8
    for (int chunk = group; chunk < a.chunks; chunk += 4) sum += __ldcg(from + chunk * size);
  }
  parts[group][mine] = sum;
  __syncthreads();
  if (group == 0 && at < size)
    a.sums[head * size + at] = (parts[0][mine] + parts[1][mine]) + (parts[2][mine] + parts[3][mine]);
}

/// In place of a chunk's sums those of all chunks of its sequence before it, or behind it. Grid: key heads of all
/// sequences x ceil(d (d + dv) / 64).
extern "C" __global__ void __launch_bounds__(64) causal_add(SumArguments a) {
  constexpr int kBlocks = (kD * kAll + 63) / 64, kTogether = 8;
  const int place = blockIdx.x / kBlocks, at = blockIdx.x % kBlocks * 64 + threadIdx.x;
  const int sequence = place / a.shape.key_heads, key_head = place % a.shape.key_heads;
  if (at >= kD * kAll || (a.head_flags && !a.head_flags[place])) return;
  const long long size = kD * kAll;
  const Rows chunks = causal_chunks(a.shape, a.rows, sequence);
  double* sums =
      static_cast<double*>(a.partial) + (static_cast<long long>(key_head) * a.chunks + chunks.first) * size + at;
  double running = 0.0;
  for (long long from = 0; from < chunks.count; from += kTogether) {
    double* to[kTogether];
    double x[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const long long chunk = a.backwards ? chunks.count - 1 - from - i : from + i;
      to[i] = sums + chunk * size;
      x[i] = from + i < chunks.count ? *to[i] : 0.0;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (from + i < chunks.count) *to[i] = running;
      running += x[i];
    }
  }
}
