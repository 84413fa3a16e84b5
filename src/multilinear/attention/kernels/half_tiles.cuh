#pragma once
// Tensor cores and 16-bit numbers. Devices before compute capability 8.0 have no such instructions.
//
// A lane of a quad (t = lane % 4) reads and writes 16 bytes of a row at once: columns 32 c + 8 t .. + 7. So the places
// of a product's inner index and of its columns are permuted: place 2 t + j of column tile n is column 32 (n / 4) + 8 t
// + 2 (n % 4) + j, and the pairs 2 t, 2 t + 8 of inner tile k are columns 32 (k / 2) + 8 t + 4 (k % 2) and two further
// on.
#include "multilinear/attention/kernels/numbers.cuh"

/// c (16, 8) += a (16, 16) b (16, 8): PTX ISA, mma.m16n8k16, fragments of f16 or bf16 with sums of f32.
__device__ __forceinline__ void multiply_half(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if CLEBSCH_NUMBER == 2
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// Four tiles of 8 x 8 numbers from shared memory, transposed: lane 8 i + r says where row r of tile i begins, and gets
/// numbers (2 t, g) and (2 t + 1, g) of every tile, g = lane / 4.
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], const unsigned short* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}

/// Sixteen bytes to shared memory, asynchronously; zeros unless `there`.
__device__ __forceinline__ void copy_vector(void* to, const void* from, bool there) {
  constexpr int kBytes = 16;
  const int bytes = there ? kBytes : 0;
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "l"(from), "n"(kBytes), "r"(bytes)
      : "memory");
}

/// Eight bytes to shared memory, asynchronously; zeros unless `there`.
__device__ __forceinline__ void copy_pair(void* to, const void* from, bool there) {
  constexpr int kBytes = 8;
  const int bytes = there ? kBytes : 0;
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "l"(from), "n"(kBytes), "r"(bytes)
      : "memory");
}

/// Two numbers to the nearest, the first in the low bits.
__device__ __forceinline__ unsigned pack(float x, float y) {
  unsigned pair;
#if CLEBSCH_NUMBER == 2
  asm volatile("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(x), "f"(y));
#else
  asm volatile("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(x), "f"(y));
#endif
  return pair;
}

#if CLEBSCH_NUMBER >= 2
__device__ __forceinline__ float low_of(unsigned pair) { return unpack(pair & 0xffffu); }
__device__ __forceinline__ float high_of(unsigned pair) { return unpack(pair >> 16); }
#endif

__device__ __forceinline__ unsigned part_of(const uint4& vector, int part) {
  return part == 0 ? vector.x : part == 1 ? vector.y : part == 2 ? vector.z : vector.w;
}
