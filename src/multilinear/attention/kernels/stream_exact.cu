// Streamed attention in double precision: outputs and gradients, of any numbers and head sizes up to 256.
#include "cuda/kernels/warp.cuh"
#include "multilinear/attention/kernels/stream_exact.cuh"

/// The largest and the sum over the threads of a tile's row, in all of them.
__device__ __forceinline__ double row_most(double x) {
  for (int bits = 1; bits < kOfRow; bits *= 2) x = fmax(x, __shfl_xor_sync(0xffffffffu, x, bits));
  return x;
}
__device__ __forceinline__ double row_sum(double x) {
  for (int bits = 1; bits < kOfRow; bits *= 2) x += __shfl_xor_sync(0xffffffffu, x, bits);
  return x;
}

/// out and norm. Grid: sequences x heads, tiles; a block takes every gridDim.y-th tile of its head's queries.
extern "C" __global__ void __launch_bounds__(128) stream_forward(StreamArguments a) {
  __shared__ double weights[kOwn * kStride], factors[kOwn];
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const Rows queries = query_rows(a.shape, sequence, head);
  const Rows keys = key_rows(a.shape, sequence, head / (a.shape.heads / a.shape.key_heads));
  const HeadPairs pairs(a, sequence, head);
  const int row = threadIdx.x / kOfRow, first = threadIdx.x % kOfRow * kMine;
  constexpr double kNone = -1e300;  // no key was seen
  for (long long i0 = static_cast<long long>(blockIdx.y) * kOwn; i0 < queries.count;
       i0 += static_cast<long long>(gridDim.y) * kOwn) {
    const Run q = run_of(a.q, kD, queries.first + i0, queries.count - i0, kOwn);
    Sums<kDv> sums;
    double z = 0.0, most = kNone;
    for (long long j0 = 0; j0 < keys.count; j0 += kOther) {
      const Run k = run_of(a.k, kD, keys.first + j0, keys.count - j0, kOther);
      const Run v = run_of(a.v, kDv, keys.first + j0, keys.count - j0, kOther);
      __syncthreads();
      inner_products<kD>(weights, q, k);
      __syncthreads();
      double x[kMine], largest = most;
#pragma unroll
      for (int r = 0; r < kMine; ++r) {
        x[r] = kNorm == kL2 ? 0.0 : 2.0 * kNone;
        if (row >= q.count || first + r >= k.count) continue;
        const long long i = i0 + row, j = j0 + first + r;
        const double score = score_of(a, pairs, i, j, weights[row * kStride + first + r]);
        const double mask = mask_of(a, pairs, i, j);
        if (kNorm == kL2) {
          x[r] = mask * score;
        } else if (mask != 0.0) {
          x[r] = score;
          largest = fmax(largest, score);
        }
      }
      if (kNorm == kSoftmax) {
        largest = row_most(largest);
        const double factor = exp(most - largest);
        most = largest;
        z *= factor;
        if (threadIdx.x % kOfRow == 0) factors[row] = factor;
      }
#pragma unroll
      for (int r = 0; r < kMine; ++r) {
        if (kNorm == kSoftmax) x[r] = x[r] < kNone ? 0.0 : exp(x[r] - most);
        z += kNorm == kL2 ? x[r] * x[r] : x[r];
        weights[row * kStride + first + r] = x[r];
      }
      __syncthreads();
      if (kNorm == kSoftmax) sums.multiply(factors);
      sums.add(weights, v);
    }
    __syncthreads();
    z = row_sum(z);
    if (threadIdx.x % kOfRow == 0) {
      const double norm = kNorm == kL2 ? sqrt(z + a.eps) : most + log(z), by = kNorm == kL2 ? norm : z;
      factors[row] = by == 0.0 ? 0.0 : 1.0 / by;
      if (row < q.count) static_cast<real*>(a.norm)[queries.first + i0 + row] = static_cast<real>(norm);
    }
    __syncthreads();
    sums.store(a.out, queries.first + i0, q.count, factors);
  }
}

/// PairRow of every query. A warp a row.
extern "C" __global__ void __launch_bounds__(128) stream_coefficients(StreamArguments a) {
  const Shape& s = a.shape;
  const long long rows = (s.offsets ? 1 : s.sequences) * s.heads * s.queries;
  const int lane = threadIdx.x % 32;
  for (long long row = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32; row < rows;
       row += static_cast<long long>(gridDim.x) * kWarps) {
    double sum = 0.0;
    for (int c = lane; c < kDv; c += 32) {
      sum += to_double(static_cast<const number*>(a.grad)[row * kDv + c]) *
             to_double(static_cast<const number*>(a.out)[row * kDv + c]);
    }
    sum = warp_sum(sum);
    if (lane != 0) continue;
    const double norm = static_cast<double>(static_cast<const real*>(a.norm)[row]);
    const double of_norm = a.grad_norm ? static_cast<double>(static_cast<const real*>(a.grad_norm)[row]) : 0.0;
    const PairRow<double> found = PairRow<double>::of(kNorm, norm, of_norm, sum);
    a.coefficients[2 * row] = found.c;
    a.coefficients[2 * row + 1] = found.b;
  }
}

__device__ __forceinline__ PairRow<double> row_of(const StreamArguments& a, long long row) {
  return {__ldg(a.coefficients + 2 * row), __ldg(a.coefficients + 2 * row + 1)};
}

/// dq. Grid as stream_forward.
extern "C" __global__ void __launch_bounds__(128) stream_query_gradients(StreamArguments a) {
  __shared__ double products[kOwn * kStride], of_values[kOwn * kStride], factors[kOwn];
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const Rows queries = query_rows(a.shape, sequence, head);
  const Rows keys = key_rows(a.shape, sequence, head / (a.shape.heads / a.shape.key_heads));
  const HeadPairs pairs(a, sequence, head);
  const int row = threadIdx.x / kOfRow, first = threadIdx.x % kOfRow * kMine;
  if (threadIdx.x < kOwn) factors[threadIdx.x] = a.scale;
  for (long long i0 = static_cast<long long>(blockIdx.y) * kOwn; i0 < queries.count;
       i0 += static_cast<long long>(gridDim.y) * kOwn) {
    const Run q = run_of(a.q, kD, queries.first + i0, queries.count - i0, kOwn);
    const Run g = run_of(a.grad, kDv, queries.first + i0, queries.count - i0, kOwn);
    Sums<kD> sums;
    for (long long j0 = 0; j0 < keys.count; j0 += kOther) {
      const Run k = run_of(a.k, kD, keys.first + j0, keys.count - j0, kOther);
      const Run v = run_of(a.v, kDv, keys.first + j0, keys.count - j0, kOther);
      __syncthreads();
      inner_products<kD>(products, q, k);
      inner_products<kDv>(of_values, g, v);
      __syncthreads();
#pragma unroll
      for (int r = 0; r < kMine; ++r) {
        const int at = row * kStride + first + r;
        double dx = 0.0;
        if (row < q.count && first + r < k.count) {
          const long long i = i0 + row, j = j0 + first + r;
          dx = gradients_of(a, pairs, row_of(a, queries.first + i), i, j, products[at], of_values[at]).dx *
               multiplicity_of(a, pairs, j);
        }
        products[at] = dx;
      }
      __syncthreads();
      sums.add(products, k);
    }
    __syncthreads();
    sums.store(a.grad_q, queries.first + i0, q.count, factors);
  }
}

/// dk, dv and dm of a key head. Grid: sequences x key heads, tiles of keys.
extern "C" __global__ void __launch_bounds__(128) stream_key_gradients(StreamArguments a) {
  __shared__ double products[kOwn * kStride], of_values[kOwn * kStride], factors[kOwn], ones[kOwn];
  __shared__ double of_weights[kWarps][kOwn];
  const int key_head = blockIdx.x % a.shape.key_heads, sequence = blockIdx.x / a.shape.key_heads;
  const int group = a.shape.heads / a.shape.key_heads;
  const Rows keys = key_rows(a.shape, sequence, key_head);
  const int own = threadIdx.x / kOfRow, first = threadIdx.x % kOfRow * kMine;
  for (long long j0 = static_cast<long long>(blockIdx.y) * kOwn; j0 < keys.count;
       j0 += static_cast<long long>(gridDim.y) * kOwn) {
    const Run k = run_of(a.k, kD, keys.first + j0, keys.count - j0, kOwn);
    const Run v = run_of(a.v, kDv, keys.first + j0, keys.count - j0, kOwn);
    Sums<kD> of_k;
    Sums<kDv> of_v;
    for (int head = key_head * group; head < (key_head + 1) * group; ++head) {
      const Rows queries = query_rows(a.shape, sequence, head);
      const HeadPairs pairs(a, sequence, head);
      for (long long i0 = 0; i0 < queries.count; i0 += kOther) {
        const Run q = run_of(a.q, kD, queries.first + i0, queries.count - i0, kOther);
        const Run g = run_of(a.grad, kDv, queries.first + i0, queries.count - i0, kOther);
        __syncthreads();
        inner_products<kD>(products, k, q);
        inner_products<kDv>(of_values, v, g);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < kMine; ++r) {
          const int at = own * kStride + first + r;
          PairGradients<double> found{0.0, 0.0};
          if (own < k.count && first + r < q.count) {
            const long long i = i0 + first + r;
            found = gradients_of(a, pairs, row_of(a, queries.first + i), i, j0 + own, products[at], of_values[at]);
          }
          products[at] = found.dx;
          of_values[at] = found.u;
        }
        __syncthreads();
        of_k.add(products, q);
        of_v.add(of_values, g);
      }
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const HeadPairs pairs(a, sequence, key_head * group);
    __syncthreads();
    if (threadIdx.x < kOwn) {
      const int mine = static_cast<int>(threadIdx.x);
      ones[mine] = 1.0;
      factors[mine] = mine < k.count ? a.scale * multiplicity_of(a, pairs, j0 + mine) : 0.0;
    }
    if (a.grad_multiplicity) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        double sum = 0.0;
#pragma unroll
        for (int tile = 0; tile < kTilesOfWarp<kD>; ++tile) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            sum += of_k.x[tile][i][r] * k.at<kD>(8 * i + g, 8 * (warp + kWarps * tile) + 2 * t + r);
          }
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (t == 0) of_weights[warp][8 * i + g] = sum;
      }
    }
    __syncthreads();
    of_k.store(a.grad_k, keys.first + j0, k.count, factors);
    of_v.store(a.grad_v, keys.first + j0, k.count, ones);
    if (a.grad_multiplicity && static_cast<int>(threadIdx.x) < k.count) {
      double sum = 0.0;
      for (int w = 0; w < kWarps; ++w) sum += of_weights[w][threadIdx.x];
      static_cast<real*>(a.grad_multiplicity)[keys.first + j0 + threadIdx.x] = static_cast<real>(a.scale * sum);
    }
  }
}
