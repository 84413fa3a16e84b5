#pragma once
// What kernels of matrix products on tensor cores share: node_linear_tf32.cuh, node_linear_walk.cuh,
// node_linear_kept.cuh and allegro_rows.cuh. Of their names it uses real (float), kDepth (16 or 32 numbers of a row in
// shared memory) and multiply_add (write_tf32_functions).

template <int kNumbers>
struct __align__(kNumbers * sizeof(real)) Pack {
  real v[kNumbers];
};

/// multiply_add (emit/tf32_product.h) as the first of a sum: c is overwritten, and no instruction clears it.
__device__ __forceinline__ void multiply(real (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  c[0] = c[1] = c[2] = c[3] = 0;
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, "
      "%10, %10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

/// sum += x w of eight k in fp32, by three products of tf32: x is a fragment of 16 rows, w kFragments of 8 columns,
/// each as big + small (split, emit/tf32_product.h; small times small is left out). Tensor cores cut off what does not
/// fit a sum, which would bias a long one: the products begin from zero, the small ones first, and go to the sum in
/// fp32.
template <int kFragments>
__device__ __forceinline__ void add_three_products(real (&sum)[kFragments][4], const unsigned (&big)[4],
                                                   const unsigned (&small)[4], const unsigned (&big_w)[kFragments][2],
                                                   const unsigned (&small_w)[kFragments][2]) {
  real c[kFragments][4];
#pragma unroll
  for (int n = 0; n < kFragments; ++n) multiply(c[n], small, big_w[n]);
#pragma unroll
  for (int n = 0; n < kFragments; ++n) multiply_add(c[n], big, small_w[n]);
#pragma unroll
  for (int n = 0; n < kFragments; ++n) multiply_add(c[n], big, big_w[n]);
#pragma unroll
  for (int n = 0; n < kFragments; ++n) {
#pragma unroll
    for (int v = 0; v < 4; ++v) sum[n][v] += c[n][v];
  }
}

/// What tensor cores cut off of eight products' sum on average, relative to it: half of a last bit, which is 2^-24 to
/// 2^-23 of a number. All sums of a map would be too small by so much, and energies with them, whatever their number.
constexpr real kCutOff = 0.36f / (1 << 23);

/// Begins a copy of kBytes (4, 8 or 16) to shared memory, of which the first `bytes` are read and the others zeros.
/// kPass, of 16 alone: they pass the first cache by, where no other warp of the multiprocessor reads them.
template <int kBytes, bool kPass = false>
__device__ __forceinline__ void copy_bytes_later(real* to, const real* from, int bytes) {
  if (kPass && kBytes == 16) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(from), "n"(kBytes), "r"(bytes)
        : "memory");
  } else {
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(from), "n"(kBytes), "r"(bytes)
        : "memory");
  }
}

/// Place of number k of a row in shared memory: eights of rows change places, so that 16 lanes, which read two numbers
/// of four rows each, meet every bank once.
__device__ __forceinline__ int turned(int row, int k) {
  return row * kDepth + (k ^ (kDepth == 32 ? row & 3 : row >> 1 & 1) * 8);
}
