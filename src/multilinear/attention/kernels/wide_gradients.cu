// Gradients of 16-bit queries and keys by groups of four warps, for Hopper: as half_gradients.cu, with a head's
// matrices in shared memory. Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are 64 or 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/last_runs.cuh"
#include "multilinear/attention/kernels/places.cuh"
#include "multilinear/attention/kernels/wide_tiles.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv, kTiles = kAll / 8, kRows = 128;

/// Four tiles of sums as a row's 16-bit numbers.
template <typename Value>
__device__ __forceinline__ void store_tiles(void* tensor, const long long (&rows)[1][2], const bool (&there)[2],
                                            int columns, int c, const Value& value) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    unsigned pairs[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int n = 4 * c + part;
      pairs[part] = pack(value(n, 2 * h), value(n, 2 * h + 1));
    }
    if (there[h]) store_vector(tensor, rows[0][h], columns, 4 * c + static_cast<int>(threadIdx.x % 4), pairs);
  }
}

/// first = x A and y B, combined; for keys then second = x C. [A, C] or A are `fragments`, B is turned. Terms of keys
/// may lie where the head's last gradients of keys go (last_runs.cuh).
template <bool kOfKeys>
__device__ __forceinline__ void gradients(const HalfGradients& a, const void* x_tensor, const void* y_tensor, Rows all,
                                          int key_head, int part_of_head) {
  extern __shared__ __align__(128) char memory[];
  constexpr int kFirst = kOfKeys ? kTiles : kD / 8, kBytes = 32 * kD * kFirst;
  long long run = static_cast<long long>(part_of_head) * kRows;
  if (run >= all.count) return;  // none with terms among the gradients
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const long long where = key_head;
  const KeyWeights weights(kOfKeys ? a.multiplicity : nullptr, multiplicity_row(a.shape, key_head / a.shape.key_heads));
  copy_terms<kBytes>(memory,
                     static_cast<const char*>(a.fragments) + where * (a.term_step ? a.term_step : 4ll * kD * kAll));
  copy_terms<4 * kD * kDv>(memory + kBytes, static_cast<const char*>(a.turned_fragments) +
                                                where * (a.term_step ? a.term_step : 4ll * kD * kDv));
  const float *scales = a.scales + where * kTiles, *turned_scales = a.turned_scales + where * (kD / 8);
  const unsigned first = shared_address(memory), turned = first + kBytes;
  LastRuns<kRows> last(kOfKeys ? a.readers : nullptr, key_head, a.parts, all.count, kBytes + 4 * kD * kDv, 2 * kD);
  await_terms();
  last.count_reader();
  if (run >= last.begin) run = last.take();
  for (; run >= 0; run = last.after(run, static_cast<long long>(a.parts) * kRows)) {
    long long rows[1][2];
    bool there[2];
    float of_x[2] = {1.0f, 1.0f}, of_y[2] = {1.0f, 1.0f};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const long long at = run + 16 * warp + 8 * h + g;
      there[h] = at < all.count;
      rows[0][h] = all.first + (there[h] ? at : 0);
      if (!kOfKeys) {
        const float2 c = *reinterpret_cast<const float2*>(a.coefficients + rows[0][h] * a.coefficient_step);
        of_y[h] = c.x;
        of_x[h] = c.y;
      } else if (weights.of_row) {
        of_x[h] = unpack(__ldg(weights.of_row + (there[h] ? at : 0)));
      }
    }
    HalfRows<kD, 1> x;
    HalfRows<kDv, 1> y;
    x.load(x_tensor, rows, t);
    y.load(y_tensor, rows, t);
    float of_form[kD / 2], of_values[kD / 2];
    begin_products();
    multiply_terms<kFirst>(of_form, x, first, 0);
    multiply_terms<kD / 8>(of_values, y, turned, 0);
    end_products();
    await_products<0>();
    hold(of_form);
    hold(of_values);
    float of_weight[2] = {};
#pragma unroll
    for (int c = 0; c < kD / 32; ++c) {
      store_tiles(kOfKeys ? a.grad_k : a.grad_q, rows, there, kD, c, [&](int n, int r) {
        const float sum = __ldg(scales + n) * of_x[r / 2] * of_form[4 * n + r] +
                          __ldg(turned_scales + n) * of_y[r / 2] * of_values[4 * n + r];
        if (!kOfKeys || !weights.of_row) return sum;
        const unsigned key = part_of(x.x[0][r / 2][n / 4], n % 4);
        of_weight[r / 2] += sum * (r % 2 == 0 ? low_of(key) : high_of(key));
        return of_x[r / 2] * sum;
      });
    }
    if (kOfKeys && weights.of_row) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float sum = of_weight[h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (t == 0 && there[h]) a.grad_multiplicity[rows[0][h]] = sum;
      }
    }
    if (!kOfKeys) continue;  // values have gradients, queries have one kind
    float of_keys[kDv / 2];
    begin_products();
    multiply_terms<kTiles>(of_keys, x, first, kD / 8);
    end_products();
    await_products<0>();
    hold(of_keys);
#pragma unroll
    for (int c = 0; c < kDv / 32; ++c) {
      store_tiles(a.grad_v, rows, there, kDv, c,
                  [&](int n, int r) { return __ldg(scales + kD / 8 + n) * of_x[r / 2] * of_keys[4 * n + r]; });
    }
  }
}

/// dq = c1 grad M^T + c2 q G. Grid: sequences x heads x parts.
extern "C" __global__ void __launch_bounds__(kWideThreads) wide_query_gradients(HalfGradients a) {
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  const int head = place % a.shape.heads, sequence = place / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  gradients<false>(a, a.q, a.grad, query_rows(a.shape, sequence, head), key_head, part);
}

/// dk = v dM^T + k (dG + dG^T), dv = k dM. Grid: sequences x key heads x parts.
extern "C" __global__ void __launch_bounds__(kWideThreads, kAll == 128 ? 2 : 1) wide_key_gradients(HalfGradients a) {
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  gradients<true>(a, a.k, a.v, key_rows(a.shape, place / a.shape.key_heads, place % a.shape.key_heads), place, part);
}
