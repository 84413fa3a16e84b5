#pragma once
// What kernels of matrix products on tensor cores share: for node_linear_tf32.cuh, node_linear_walk.cuh and
// allegro_rows.cuh, of whose names it uses real (float) and kDepth (16 or 32 numbers of a row in shared memory).

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
