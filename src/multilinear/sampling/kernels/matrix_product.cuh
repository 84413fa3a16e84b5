#pragma once
// Products of matrices of doubles on tensor cores.

/// c (8, 8) += a (8, 4) b (4, 8) by a warp. Lane 4 g + k holds a(g, k), b(k, g) and c(g, 2 k), c(g, 2 k + 1): PTX ISA,
/// mma.m8n8k4 with .f64. Devices before compute capability 8.0 have no such instruction.
__device__ __forceinline__ void multiply_tile(double (&c)[2], double a, double b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  const int g = threadIdx.x % 32 / 4, k = threadIdx.x % 4;
  for (int s = 0; s < 4; ++s) {
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
