#pragma once
// Sums of products on tensor cores: for node_linear_tf32.cuh and node_linear_walk.cuh, of whose names it uses real
// (float).

template <int kNumbers>
struct __align__(kNumbers * sizeof(real)) Pack {
  real v[kNumbers];
};

/// multiply_add as the first of a sum: c is overwritten, and no instruction clears it.
__device__ __forceinline__ void multiply(real (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  c[0] = c[1] = c[2] = c[3] = 0;
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, "
      "%10, %10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

/// What tensor cores cut off of eight products' sum on average, relative to it: half of a last bit, which is 2^-24 to
/// 2^-23 of a number. All sums of a map would be too small by so much, and energies with them, whatever their number.
constexpr real kCutOff = 0.36f / (1 << 23);
