// As exact_rows.cu, for numbers of 16 and 32 bits and head sizes that are multiples of 32. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "multilinear/attention/kernels/exact_quads.cuh"

/// Grid: sequences x heads, parts of a head's rows.
extern "C" __global__ void __launch_bounds__(kQuadThreads, 1) quad_rows_of_queries(RowArguments a) {
  outputs_of_rows(a, [] {});
}

/// Columns 32 c and on of M^T, then of G, next to each other.
__device__ __forceinline__ void fetch_both(double2* to, const double* gram, int c) {
  fetch_columns<kDv, true>(to, gram + kD, 32 * c);
  fetch_columns<kD, false>(to + kOfDv, gram, 32 * c);
}

/// dq = c1 grad M^T + c2 q G. Grid as quad_rows_of_queries. Coefficients of a row may lie where its gradient goes.
extern "C" __global__ void __launch_bounds__(kQuadThreads, 1) quad_gradients_of_queries(RowArguments a) {
  extern __shared__ __align__(16) double2 memory[];
  constexpr bool kFits = kMemory.all_queries;
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  if (a.head_flags && !a.head_flags[key_head]) return;
  const double* gram = a.sums + static_cast<long long>(key_head) * kD * kAll;
  const Rows all = query_rows(a.shape, sequence, head);
  const Rows mine = chunk_of(all.count, gridDim.y, blockIdx.y, 16);
  const double ones[2] = {1.0, 1.0};
  for (int c = 0; kFits && c < kD / 32; ++c) fetch_both(memory + c * (kOfD + kOfDv), gram, c);
  __syncthreads();
  for (long long from = 0; from < mine.count; from += kRows) {
    const TileRows rows(all, mine, from);
    if (kFits && !rows.any) break;
    double c1[2], c2[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const double* of_row = a.coefficients + rows.at[h] * a.coefficient_step;
      c1[h] = of_row[0];
      c2[h] = of_row[1];
    }
    const QuadRows<kD> q(a.q, rows.at);
    const QuadRows<kDv> grad(a.grad, rows.at);
#pragma unroll 1
    for (int c = 0; c < kD / 32; ++c) {
      double sums[4][4] = {};
      const double2* both =
          columns_of<kFits>(memory, c * (kOfD + kOfDv), [&](double2* to) { fetch_both(to, gram, c); });
      grad.multiply(sums, both, c1);
      q.multiply(sums, both + kOfDv, c2);
      rows.store(a.grad_q, kD, c, sums, ones);
    }
  }
}

/// dk' = v dM^T + k' (dG + dG^T) with k' = m k, dk = m dk', dm = k . dk', dv = k' dM. Grid: sequences x key heads,
/// parts of a head's rows.
extern "C" __global__ void __launch_bounds__(kQuadThreads, 1) quad_gradients_of_keys(RowArguments a) {
  extern __shared__ __align__(16) double2 memory[];
  constexpr bool kFits = kMemory.all_keys;
  const int key_head = blockIdx.x % a.shape.key_heads, sequence = blockIdx.x / a.shape.key_heads;
  if (a.head_flags && !a.head_flags[blockIdx.x]) return;
  const double* gram = a.gradient_sums + static_cast<long long>(blockIdx.x) * kD * kAll;
  const Rows all = key_rows(a.shape, sequence, key_head);
  const Rows mine = chunk_of(all.count, gridDim.y, blockIdx.y, 16);
  const int lane = threadIdx.x % 32;
  const double ones[2] = {1.0, 1.0};
  const number* weights = static_cast<const number*>(a.multiplicity);
  if (weights) weights += multiplicity_row(a.shape, sequence) - all.first;
  constexpr int kOfValues = kD / 32 * (kOfD + kOfDv);
  for (int c = 0; kFits && c < kD / 32; ++c) fetch_both(memory + c * (kOfD + kOfDv), gram, c);
  for (int c = 0; kFits && c < kDv / 32; ++c)
    fetch_columns<kD, false>(memory + kOfValues + c * kOfD, gram, kD + 32 * c);
  __syncthreads();
  for (long long from = 0; from < mine.count; from += kRows) {
    const TileRows rows(all, mine, from);
    if (kFits && !rows.any) break;
    double weight[2], of_weight[2] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) weight[h] = weights ? to_double(weights[rows.at[h]]) : 1.0;
    const QuadRows<kD> k(a.k, rows.at);
    const QuadRows<kDv> v(a.v, rows.at);
#pragma unroll 1
    for (int c = 0; c < kD / 32; ++c) {
      double sums[4][4] = {};
      const double2* both =
          columns_of<kFits>(memory, c * (kOfD + kOfDv), [&](double2* to) { fetch_both(to, gram, c); });
      v.multiply(sums, both, ones);
      k.multiply(sums, both + kOfDv, weight);
      rows.store(a.grad_k, kD, c, sums, weight);
      if (a.grad_multiplicity) k.add_products(of_weight, c, sums);
    }
    if (a.grad_multiplicity) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const double sum = of_quad(of_weight[h]);
        if (lane % 4 == 0 && rows.there[h])
          static_cast<real*>(a.grad_multiplicity)[rows.at[h]] = static_cast<real>(sum);
      }
    }
#pragma unroll 1
    for (int c = 0; c < kDv / 32; ++c) {
      double sums[4][4] = {};
      k.multiply(sums,
                 columns_of<kFits>(memory, kOfValues + c * kOfD,
                                   [&](double2* to) { fetch_columns<kD, false>(to, gram, kD + 32 * c); }),
                 weight);
      rows.store(a.grad_v, kDv, c, sums, ones);
    }
  }
}
