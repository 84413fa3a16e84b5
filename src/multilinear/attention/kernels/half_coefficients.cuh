#pragma once
// c1 and c2 of 16-bit queries (HalfGradients), in single precision. Compiled with CLEBSCH_D and CLEBSCH_DV.
#include "multilinear/attention/kernels/half_fragments.cuh"
#include "multilinear/attention/kernels/places.cuh"

__device__ __forceinline__ float of_quad(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Of rows `part`, `part + parts` and so on (64 at a time) of `all`, four lanes a row, by a block of 256 threads: c1,
/// c2, the largest numbers of the key head, and its flag, where it needs double precision or `flagged`. `trace`: of the
/// sum of squares G that the rows have been told from.
__device__ __forceinline__ void coefficients_of_rows(const clebsch::attention::HalfGradients& a,
                                                     clebsch::attention::Rows all, float trace, int part, int parts,
                                                     int key_head, bool flagged, float* of_warps) {
  using clebsch::attention::kGuard;
  constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV;
  const int t = threadIdx.x % 4;
  float of_rows = 0.0f, of_forms = 0.0f, of_both = 0.0f;
  for (long long from = 64ll * part; from < all.count; from += 64ll * parts) {
    const long long at = from + threadIdx.x / 4;
    const bool there = at < all.count;
    const long long row = all.first + (there ? at : 0);
    const uint4* q = reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(a.q) + row * kD);
    const uint4* grad = reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(a.grad) + row * kDv);
    const uint4* out = reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(a.out) + row * kDv);
    const float norm = a.norm[row], of_norm = a.grad_norm ? a.grad_norm[row] : 0.0f;
    float square = 0.0f, most = 0.0f, product = 0.0f;
#pragma unroll
    for (int c = 0; c < kD / 32; ++c) {
      const uint4 x = __ldg(q + 4 * c + t);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float low = low_of(part_of(x, r)), high = high_of(part_of(x, r));
        square += low * low + high * high;
        most = fmaxf(most, fmaxf(fabsf(low), fabsf(high)));
      }
    }
#pragma unroll
    for (int c = 0; c < kDv / 32; ++c) {
      const uint4 x = __ldg(grad + 4 * c + t), y = __ldg(out + 4 * c + t);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        product += low_of(part_of(x, r)) * low_of(part_of(y, r)) + high_of(part_of(x, r)) * high_of(part_of(y, r));
      }
    }
    square = of_quad(square);
    product = of_quad(product);
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    if (!there) continue;
    const float c1 = norm > 0.0f ? 1.0f / norm : 0.0f, form = of_norm * norm - product, c2 = form * c1 * c1;
    if (t == 0) *reinterpret_cast<float2*>(a.coefficients + row * a.coefficient_step) = make_float2(c1, c2);
    // Also what is too small or too large for 32 bits, and what is no number.
    const bool fine = norm * norm >= kGuard * trace * square / kD && norm > 1e-15f && norm < 1e10f && trace < 1e37f &&
                      fabsf(form) < 1e30f && fabsf(c2) * most < 1e25f && most < 1e15f;
    flagged = flagged || (!fine && !(most == 0.0f));
    if (fine) {
      of_rows = fmaxf(of_rows, c1 * most);
      of_forms = fmaxf(of_forms, fabsf(form));
      of_both = fmaxf(of_both, fabsf(c2) * most);
    }
  }
  __syncthreads();
  of_rows = largest_of(of_rows, of_warps);
  __syncthreads();
  of_forms = largest_of(of_forms, of_warps);
  __syncthreads();
  of_both = largest_of(of_both, of_warps);
  if (threadIdx.x == 0) {
    atomicMax(a.largest + 3 * key_head, __float_as_uint(of_rows));
    atomicMax(a.largest + 3 * key_head + 1, __float_as_uint(of_forms));
    atomicMax(a.largest + 3 * key_head + 2, __float_as_uint(of_both));
  }
  flag_head(a.head_flags + key_head, flagged);
}
