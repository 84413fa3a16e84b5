// Causal attention row by row in double precision: earlier chunks enter by their sums, the rows of a chunk by scores.
// Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "cuda/kernels/warp.cuh"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/exact_tiles.cuh"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
constexpr int kStrideD = stride_of(kD), kStrideDv = stride_of(kDv);
constexpr int kBytes = 64 * (kStrideD + kStrideDv);
constexpr int kTiles = kBytes <= 7000 ? 4 : kBytes <= 20000 ? 2 : 1, kRows = 8 * kTiles, kStride = stride_of(kRows);
/// Tiles of columns that a warp has of d and of dv.
constexpr int kAcrossD = (kD + 8 * kWarps - 1) / (8 * kWarps), kAcrossDv = (kDv + 8 * kWarps - 1) / (8 * kWarps);

/// A tile of rows within a chunk.
struct TilePlace {
  CausalChunk chunk;
  int head = 0, key_head = 0, of_flags = 0;  // of_flags: key head of all sequences
  long long queries = 0, keys = 0;           // where the chunk's rows begin
  const double* sums = nullptr;              // of the chunk
  int from = 0, rows = 0, count = 0;         // the tile, and rows of the chunk

  /// Grid: chunks x heads (kOfKeys: key heads), tiles of a chunk.
  __device__ __forceinline__ TilePlace(const RowArguments& a, const double* of_chunks, bool of_keys, int tile) {
    const int heads = of_keys ? a.shape.key_heads : a.shape.heads, group = a.shape.heads / a.shape.key_heads;
    const int slot = blockIdx.x / heads;
    chunk = causal_chunk(a.shape, a.rows, slot);
    key_head = of_keys ? blockIdx.x % heads : blockIdx.x % heads / group;
    head = of_keys ? key_head * group : blockIdx.x % heads;
    of_flags = chunk.sequence * a.shape.key_heads + key_head;
    queries = query_rows(a.shape, chunk.sequence, head).first + chunk.first;
    keys = key_rows(a.shape, chunk.sequence, key_head).first + chunk.first;
    sums = of_chunks + (static_cast<long long>(key_head) * a.chunks + slot) * kD * kAll;
    count = static_cast<int>(chunk.count);
    from = tile * kRows;
    rows = min(kRows, count - from);
  }
  __device__ __forceinline__ const number* weights(const RowArguments& a) const {
    if (!a.multiplicity) return nullptr;
    return static_cast<const number*>(a.multiplicity) + multiplicity_row(a.shape, chunk.sequence) + chunk.first;
  }
};

/// Rows of a chunk as a matrix: number `column` of row `row`, times factors[row * step] (null: ones), zeros from
/// `count`.
template <int kColumns, typename Factor>
struct ChunkMatrix {
  const number* first;
  int count;
  const Factor* factors;
  int step;
  __device__ __forceinline__ double operator()(int row, int column) const {
    if (row >= count) return 0.0;
    const double x = to_double(first[static_cast<long long>(row) * kColumns + column]);
    return factors ? x * to_double(factors[row * step]) : x;
  }
};
template <int kColumns, typename Factor>
__device__ __forceinline__ ChunkMatrix<kColumns, Factor> chunk_matrix(const void* tensor, long long row, int count,
                                                                      const Factor* factors, int step) {
  return {static_cast<const number*>(tensor) + row * kColumns, count, factors, step};
}

__device__ __forceinline__ void store_rows(void* tensor, long long row, int rows, int columns,
                                           const double (&sums)[kTiles][2], int column, const double* factors) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    const int mine = 8 * i + g;
    if (mine >= rows) continue;
    const double factor = factors ? factors[mine] : 1.0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int c = column + 2 * t + r;
      if (c < columns) static_cast<number*>(tensor)[(row + mine) * columns + c] = to_number(sums[i][r] * factor);
    }
  }
}

/// Outputs and norms. A block takes every `gridDim.y`-th tile: where only flagged queries are wanted, few blocks
/// return.
extern "C" __global__ void __launch_bounds__(128) causal_rows_of_queries(RowArguments a) {
  __shared__ double x[kRows * kStrideD], scores[kRows * kStride], part[kWarps][2][kRows], squares[kRows];
  __shared__ double inverse[kRows];
  if (a.head_flags && !a.head_flags[TilePlace(a, a.sums, false, 0).of_flags]) return;
  for (int tile = blockIdx.y; tile * kRows < a.rows; tile += gridDim.y) {
    __syncthreads();
    const TilePlace place(a, a.sums, false, tile);
    if (place.rows <= 0) continue;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int thread = static_cast<int>(threadIdx.x);
    const long long row = place.queries + place.from;
    if (a.flags && !__any_sync(0xffffffffu, lane < place.rows && a.flags[row + lane])) continue;
    const number* weights = place.weights(a);
    const double* gram = place.sums;
    const auto keys = chunk_matrix<kD>(a.k, place.keys, place.count, weights, 1);
    const auto values = chunk_matrix<kDv>(a.v, place.keys, place.count, static_cast<const number*>(nullptr), 0);
    double trace = trace_of<kD>(gram, kAll);  // of the keys that row `thread` sees
    stage<kD, kRows>(x, static_cast<const number*>(a.q), row, place.rows, static_cast<const number*>(nullptr), 0);
    __syncthreads();
    double form[kTiles] = {}, square[kTiles] = {}, sums[kAcrossDv][1][kTiles][2] = {};
    for (int column = 8 * warp; column < kD; column += 8 * kWarps) {
      double product_of_form[1][kTiles][2] = {};
      product<kD, kStrideD>(product_of_form, x, column, kD, [&](int k, int c) { return __ldg(gram + k * kAll + c); });
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const double q = x[(8 * i + g) * kStrideD + column + 2 * t + r];
          form[i] += product_of_form[0][i][r] * q;
          square[i] += q * q;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kAcrossDv; ++n) {
      product<kD, kStrideD>(sums[n], x, 8 * (warp + kWarps * n), kDv,
                            [&](int k, int c) { return __ldg(gram + k * kAll + kD + c); });
    }
    for (int block = 0; block <= place.from; block += kRows) {
      if (warp < kTiles) {
        double found[1][kTiles][2] = {};
        product<kD, kStrideD>(found, x, block + 8 * warp, place.count, [&](int k, int c) { return keys(c, k); });
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int mine = 8 * i + g, key = 8 * warp + 2 * t + r;
            const double score = block + key <= place.from + mine ? found[0][i][r] : 0.0;
            form[i] += score * score;
            scores[mine * kStride + key] = score;
          }
        }
      }
      for (int key = warp; key < kRows; key += kWarps) {
        double sum = 0.0;
        for (int c = lane; c < kD; c += 32) {
          const double y = keys(block + key, c);
          sum += y * y;
        }
        sum = warp_sum(sum);
        if (lane == 0) squares[key] = sum;
      }
      __syncthreads();
      for (int key = 0; key < kRows && thread < kRows && block + key <= place.from + thread; ++key)
        trace += squares[key];
#pragma unroll
      for (int n = 0; n < kAcrossDv; ++n) {
        product<kRows, kStride>(sums[n], scores, 8 * (warp + kWarps * n), kDv,
                                [&](int k, int c) { return values(block + k, c); });
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const double of_form = of_row(form[i]), of_square = of_row(square[i]);
      if (t == 0) {
        part[warp][0][8 * i + g] = of_form;
        part[warp][1][8 * i + g] = of_square;
      }
    }
    __syncthreads();
    if (thread < kRows) {
      double z = 0.0, square_norm = 0.0;
      for (int w = 0; w < kWarps; ++w) {
        z += part[w][0][thread];
        square_norm += part[w][1][thread];
      }
      if (z <= kNothing * trace * square_norm) z = 0.0;
      const double norm = sqrt(z + a.eps);
      inverse[thread] = norm == 0.0 ? 0.0 : 1.0 / norm;
      if (thread < place.rows && (!a.flags || a.flags[row + thread]))
        static_cast<real*>(a.norm)[row + thread] = static_cast<real>(norm);
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kAcrossDv; ++n) {
      const int column = 8 * (warp + kWarps * n);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int mine = 8 * i + g;
        if (mine >= place.rows || (a.flags && !a.flags[row + mine])) continue;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int c = column + 2 * t + r;
          if (c < kDv)
            static_cast<number*>(a.out)[(row + mine) * kDv + c] = to_number(sums[n][0][i][r] * inverse[mine]);
        }
      }
    }
  }
}

/// dq = c1 grad M^T + c2 q G.
extern "C" __global__ void __launch_bounds__(128) causal_gradients_of_queries(RowArguments a) {
  __shared__ double x[kRows * kStrideD], y[kRows * kStrideDv], weights_of[kRows * kStride];
  if (a.head_flags && !a.head_flags[TilePlace(a, a.sums, false, 0).of_flags]) return;
  for (int tile = blockIdx.y; tile * kRows < a.rows; tile += gridDim.y) {
    __syncthreads();
    const TilePlace place(a, a.sums, false, tile);
    if (place.rows <= 0) continue;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const long long row = place.queries + place.from;
    const double* gram = place.sums;
    const auto keys = chunk_matrix<kD>(a.k, place.keys, place.count, place.weights(a), 1);
    const auto values = chunk_matrix<kDv>(a.v, place.keys, place.count, static_cast<const number*>(nullptr), 0);
    stage<kD, kRows>(x, static_cast<const number*>(a.q), row, place.rows, a.coefficients + 2 * row + 1, 2);
    stage<kDv, kRows>(y, static_cast<const number*>(a.grad), row, place.rows, a.coefficients + 2 * row, 2);
    __syncthreads();
    double sums[kAcrossD][1][kTiles][2] = {};
#pragma unroll
    for (int n = 0; n < kAcrossD; ++n) {
      const int column = 8 * (warp + kWarps * n);
      product<kDv, kStrideDv>(sums[n], y, column, kD, [&](int k, int c) { return __ldg(gram + c * kAll + kD + k); });
      product<kD, kStrideD>(sums[n], x, column, kD, [&](int k, int c) { return __ldg(gram + k * kAll + c); });
    }
    for (int block = 0; block <= place.from; block += kRows) {
      if (warp < kTiles) {
        double found[1][kTiles][2] = {};
        const int column = block + 8 * warp;
        product<kD, kStrideD>(found, x, column, place.count, [&](int k, int c) { return keys(c, k); });
        product<kDv, kStrideDv>(found, y, column, place.count, [&](int k, int c) { return values(c, k); });
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int mine = 8 * i + g, key = 8 * warp + 2 * t + r;
            weights_of[mine * kStride + key] = block + key <= place.from + mine ? found[0][i][r] : 0.0;
          }
        }
      }
      __syncthreads();
#pragma unroll
      for (int n = 0; n < kAcrossD; ++n) {
        product<kRows, kStride>(sums[n], weights_of, 8 * (warp + kWarps * n), kD,
                                [&](int k, int c) { return keys(block + k, c); });
      }
      __syncthreads();
    }
#pragma unroll
    for (int n = 0; n < kAcrossD; ++n)
      store_rows(a.grad_q, row, place.rows, kD, sums[n][0], 8 * (warp + kWarps * n), nullptr);
  }
}

/// dk' = v dM^T + k' (dG + dG^T) with k' = m k, dk = m dk', dm = k . dk', dv = k' dM.
extern "C" __global__ void __launch_bounds__(128) causal_gradients_of_keys(RowArguments a) {
  __shared__ double x[kRows * kStrideD], y[kRows * kStrideDv], part[kWarps][kRows], factors[kRows];
  __shared__ double for_keys[kRows * kStride], for_values[kRows * kStride];
  if (a.head_flags && !a.head_flags[TilePlace(a, a.gradient_sums, true, 0).of_flags]) return;
  for (int tile = blockIdx.y; tile * kRows < a.rows; tile += gridDim.y) {
    __syncthreads();
    const TilePlace place(a, a.gradient_sums, true, tile);
    if (place.rows <= 0) continue;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int thread = static_cast<int>(threadIdx.x);
    const long long row = place.keys + place.from;
    const double* gram = place.sums;
    const number* k = static_cast<const number*>(a.k);
    const number* weights = place.weights(a);
    if (weights) weights += place.from;
    if (thread < kRows) factors[thread] = weights && thread < place.rows ? to_double(weights[thread]) : 1.0;
    stage<kD, kRows>(x, k, row, place.rows, weights, 1);
    stage<kDv, kRows>(y, static_cast<const number*>(a.v), row, place.rows, static_cast<const number*>(nullptr), 0);
    __syncthreads();
    double of_keys[kAcrossD][1][kTiles][2] = {}, of_values[kAcrossDv][1][kTiles][2] = {};
#pragma unroll
    for (int n = 0; n < kAcrossD; ++n) {
      const int column = 8 * (warp + kWarps * n);
      product<kDv, kStrideDv>(of_keys[n], y, column, kD, [&](int i, int c) { return __ldg(gram + c * kAll + kD + i); });
      product<kD, kStrideD>(of_keys[n], x, column, kD, [&](int i, int c) { return __ldg(gram + i * kAll + c); });
    }
#pragma unroll
    for (int n = 0; n < kAcrossDv; ++n) {
      product<kD, kStrideD>(of_values[n], x, 8 * (warp + kWarps * n), kDv,
                            [&](int i, int c) { return __ldg(gram + i * kAll + kD + c); });
    }
    for (int head = 0; head < a.shape.heads / a.shape.key_heads; ++head) {
      const long long first = place.queries + head * a.shape.queries;
      const double* coefficients = a.coefficients + 2 * first;
      const auto queries = chunk_matrix<kD>(a.q, first, place.count, static_cast<const number*>(nullptr), 0);
      const auto grads = chunk_matrix<kDv>(a.grad, first, place.count, static_cast<const number*>(nullptr), 0);
      for (int block = place.from; block < place.count; block += kRows) {
        if (warp < kTiles) {
          double of_scores[1][kTiles][2] = {}, of_grads[1][kTiles][2] = {};
          const int column = block + 8 * warp;
          product<kD, kStrideD>(of_scores, x, column, place.count, [&](int i, int c) { return queries(c, i); });
          product<kDv, kStrideDv>(of_grads, y, column, place.count, [&](int i, int c) { return grads(c, i); });
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int query = 8 * warp + 2 * t + r;
            const bool inside = block + query < place.count;
            const double c1 = inside ? coefficients[2 * (block + query)] : 0.0;
            const double c2 = inside ? coefficients[2 * (block + query) + 1] : 0.0;
#pragma unroll
            for (int i = 0; i < kTiles; ++i) {
              const int mine = 8 * i + g;
              const bool seen = place.from + mine <= block + query;
              const double score = of_scores[0][i][r];
              for_keys[mine * kStride + query] = seen ? c1 * of_grads[0][i][r] + c2 * score : 0.0;
              for_values[mine * kStride + query] = seen ? c1 * score : 0.0;
            }
          }
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < kAcrossD; ++n) {
          product<kRows, kStride>(of_keys[n], for_keys, 8 * (warp + kWarps * n), kD,
                                  [&](int i, int c) { return queries(block + i, c); });
        }
#pragma unroll
        for (int n = 0; n < kAcrossDv; ++n) {
          product<kRows, kStride>(of_values[n], for_values, 8 * (warp + kWarps * n), kDv,
                                  [&](int i, int c) { return grads(block + i, c); });
        }
        __syncthreads();
      }
    }
#pragma unroll
    for (int n = 0; n < kAcrossD; ++n)
      store_rows(a.grad_k, row, place.rows, kD, of_keys[n][0], 8 * (warp + kWarps * n), factors);
#pragma unroll
    for (int n = 0; n < kAcrossDv; ++n)
      store_rows(a.grad_v, row, place.rows, kDv, of_values[n][0], 8 * (warp + kWarps * n), nullptr);
    if (!a.grad_multiplicity) continue;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int mine = 8 * i + g;
      double sum = 0.0;
#pragma unroll
      for (int n = 0; n < kAcrossD; ++n) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int c = 8 * (warp + kWarps * n) + 2 * t + r;
          if (c < kD && mine < place.rows) sum += to_double(k[(row + mine) * kD + c]) * of_keys[n][0][i][r];
        }
      }
      sum = of_row(sum);
      if (t == 0) part[warp][mine] = sum;
    }
    __syncthreads();
    if (thread < place.rows) {
      double sum = 0.0;
      for (int w = 0; w < kWarps; ++w) sum += part[w][thread];
      static_cast<real*>(a.grad_multiplicity)[row + thread] = static_cast<real>(sum);
    }
  }
}
