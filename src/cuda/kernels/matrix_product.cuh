#pragma once
// Products of matrices of doubles on tensor cores.

/// c (8, 8) += a (8, 4) b (4, 8) by a warp. Lane 4 g + k holds a(g, k), b(k, g) and c(g, 2 k), c(g, 2 k + 1): PTX ISA,
/// mma.m8n8k4 with .f64. Devices before compute capability 8.0 have no such instruction.
__device__ __forceinline__ void multiply_tile(double (&c)[2], double a, double b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  const int g = threadIdx.x % 32 / 4, k = threadIdx.x % 4;
#pragma unroll 1
  for (int s = 0; s < 4; ++s) {  // many of these would take the compiler half a minute
    const double left = __shfl_sync(0xffffffffu, a, 4 * g + s);
    c[0] += left * __shfl_sync(0xffffffffu, b, 8 * k + s);
    c[1] += left * __shfl_sync(0xffffffffu, b, 8 * k + 4 + s);
  }
#else
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(c[0]), "+d"(c[1])
               : "d"(a), "d"(b));
#endif
}

/// c (16, 8) += a (16, 8) b (8, 8) by a warp, with the places of PTX ISA's mma.m16n8k8 of .f64: for g = lane / 4,
/// k = lane % 4, a[r] is a(g + 8 (r % 2), k + 4 (r / 2)), b[r] is b(k + 4 r, g), c[r] is c(g + 8 (r / 2), 2 k + r % 2).
/// Compute capability 9.0 has an instruction, and reaches full speed with it alone.
__device__ __forceinline__ void multiply_large_tile(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  for (int half = 0; half < 2; ++half) {
    double sums[2] = {c[2 * half], c[2 * half + 1]};
    multiply_tile(sums, a[half], b[0]);
    multiply_tile(sums, a[2 + half], b[1]);
    c[2 * half] = sums[0];
    c[2 * half + 1] = sums[1];
  }
#else
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#endif
}
