// The gradient of a bias in double precision. A block owns a tile of it and goes through all pairs that share it, one
// after another: the order of every sum is fixed.
#include "multilinear/attention/kernels/stream_exact.cuh"

/// Rows of the sequence that a row, counted over the whole tensor, belongs to.
__device__ __forceinline__ Rows sequence_of(const Shape& shape, long long row) {
  int low = 0, high = shape.sequences;  // offsets[low] <= row < offsets[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (shape.offsets[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return {shape.offsets[low], shape.offsets[low + 1] - shape.offsets[low]};
}

/// Grid: sequences x heads x tiles of rows of the bias, tiles of its keys. Pairs of two sequences have zeros.
extern "C" __global__ void __launch_bounds__(128) stream_bias_gradient(StreamArguments a) {
  __shared__ double products[kOwn * kStride], of_values[kOwn * kStride];
  const PairGradient& bias = a.grad_bias;
  // The whole tensor as one sequence; offsets say which pairs there are.
  Shape shape = a.shape;
  shape.offsets = nullptr;
  if (a.shape.offsets) shape.sequences = 1;
  const bool one_row = bias.sizes[2] == 1, one_key = bias.sizes[3] == 1;
  const long long row_tiles = (bias.sizes[2] + kOwn - 1) / kOwn;
  const int place = static_cast<int>(blockIdx.x / row_tiles), head_place = place % static_cast<int>(bias.sizes[1]);
  const int sequence_place = place / static_cast<int>(bias.sizes[1]);
  const int sequence_end = bias.sizes[0] == 1 ? shape.sequences : sequence_place + 1;
  const int head_end = bias.sizes[1] == 1 ? shape.heads : head_place + 1;
  const int row = threadIdx.x / kOfRow, first = threadIdx.x % kOfRow * kMine;
  const long long i_begin = one_row ? 0 : blockIdx.x % row_tiles * kOwn;
  const long long i_end = one_row ? shape.queries : min(shape.queries, i_begin + kOwn);
  for (long long tile = blockIdx.y; tile * kOther < bias.sizes[3]; tile += gridDim.y) {
    const long long j_begin = one_key ? 0 : tile * kOther;
    const long long j_end = one_key ? shape.keys : min(shape.keys, j_begin + kOther);
    double sums[kMine] = {};
    for (int sequence = sequence_place; sequence < sequence_end; ++sequence) {
      for (int head = head_place; head < head_end; ++head) {
        StreamArguments whole = a;
        whole.shape = shape;
        const HeadPairs pairs(whole, sequence, head);
        const Rows queries = query_rows(shape, sequence, head);
        const Rows keys = key_rows(shape, sequence, head / (shape.heads / shape.key_heads));
        for (long long i0 = i_begin; i0 < i_end; i0 += kOwn) {
          const Run q = run_of(a.q, kD, queries.first + i0, i_end - i0, kOwn);
          const Run g = run_of(a.grad, kDv, queries.first + i0, i_end - i0, kOwn);
          Rows seen{0, shape.keys};
          if (a.shape.offsets && row < q.count) seen = sequence_of(a.shape, i0 + row);
          for (long long j0 = j_begin; j0 < j_end; j0 += kOther) {
            const Run k = run_of(a.k, kD, keys.first + j0, j_end - j0, kOther);
            const Run v = run_of(a.v, kDv, keys.first + j0, j_end - j0, kOther);
            __syncthreads();
            inner_products<kD>(products, q, k);
            inner_products<kDv>(of_values, g, v);
            __syncthreads();
#pragma unroll
            for (int r = 0; r < kMine; ++r) {
              const int at = row * kStride + first + r;
              const long long i = i0 + row, j = j0 + first + r;
              if (row >= q.count || first + r >= k.count || j < seen.first || j >= seen.first + seen.count) continue;
              const long long c = 2 * (queries.first + i);
              const PairRow<double> of_row{__ldg(a.coefficients + c), __ldg(a.coefficients + c + 1)};
              sums[r] += gradients_of(whole, pairs, of_row, i, j, products[at], of_values[at]).dx;
            }
          }
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kMine; ++r) products[row * kStride + first + r] = sums[r];
    __syncthreads();
    const int rows = one_row ? 1 : static_cast<int>(i_end - i_begin);
    const int columns = one_key ? 1 : static_cast<int>(j_end - j_begin);
    for (int at = threadIdx.x; at < rows * columns; at += 32 * kWarps) {
      const int i = at / columns, j = at % columns;
      double sum = 0.0;
      for (int r = one_row ? 0 : i; r < (one_row ? kOwn : i + 1); ++r) {
        for (int c = one_key ? 0 : j; c < (one_key ? kOther : j + 1); ++c) sum += products[r * kStride + c];
      }
      const long long to = (place * bias.sizes[2] + (one_row ? 0 : i_begin) + i) * bias.sizes[3];
      static_cast<number*>(bias.data)[to + (one_key ? 0 : j_begin) + j] = to_number(sum);
    }
  }
}
