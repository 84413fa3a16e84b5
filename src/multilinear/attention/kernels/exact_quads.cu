// As exact_rows.cu, for numbers of 16 and 32 bits and head sizes that are multiples of 32. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV.
#include "multilinear/attention/kernels/exact_quads.cuh"

/// Grid: sequences x heads, parts of a head's rows.
extern "C" __global__ void __launch_bounds__(kQuadThreads, 1) quad_rows_of_queries(RowArguments a) {
  outputs_of_rows<false>(a, [] {});
}

/// dq = c1 grad M^T + c2 q G. Grid as quad_rows_of_queries. Coefficients of a row may lie where its gradient goes.
extern "C" __global__ void __launch_bounds__(kQuadThreads, 1) quad_gradients_of_queries(RowArguments a) {
  extern __shared__ __align__(16) double2 memory[];
  constexpr bool kFits = kMemory.all_queries;
  const int head = blockIdx.x % a.shape.heads, sequence = blockIdx.x / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  if (a.head_flags && !a.head_flags[key_head]) return;
  const double* gram = a.sums + key_head * (a.sums_step ? a.sums_step : static_cast<long long>(kD) * kAll);
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

/// Grid: sequences x key heads, parts of a head's rows.
extern "C" __global__ void __launch_bounds__(kQuadThreads, 1) quad_gradients_of_keys(RowArguments a) {
  gradients_of_rows_of_keys<false>(a, [] {});
}
