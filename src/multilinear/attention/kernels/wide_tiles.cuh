#pragma once
// Products of a group of four warps on Hopper's tensor cores (PTX ISA, wgmma), sums in registers as those of
// mma.m16n8k16: of tile j of eight columns a lane has d[4 j + r], rows g and (r / 2) 8 on of its warp's 16, columns 2 t
// + r % 2.
#include "multilinear/attention/kernels/half_fragments.cuh"
#include "multilinear/attention/kernels/warpgroup.cuh"

constexpr int kWideThreads = 256;  // two groups

/// A matrix in shared memory: its address, bytes between parts along the leading and the other direction (PTX ISA,
/// "matrix descriptor"), and 1 for lines of 128 bytes whose 16-byte parts are exchanged (part c of line r at c ^ r %
/// 8).
__device__ __forceinline__ unsigned long long describe(unsigned address, int leading, int stride, int exchanged) {
  return static_cast<unsigned long long>((address & 0x3ffffu) >> 4) |
         static_cast<unsigned long long>(leading >> 4) << 16 | static_cast<unsigned long long>(stride >> 4) << 32 |
         static_cast<unsigned long long>(exchanged) << 62;
}

/// d (64, 64) = [d +] a (64, 16) b (16, 64): rows in registers as for mma.m16n8k16, `more`: 0 for the first product.
/// kTurned: b lies by rows of the inner index, else by columns.
template <int kTurned>
__device__ __forceinline__ void multiply_registers(float (&d)[32], const unsigned (&a)[4], unsigned long long b,
                                                   int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF
      " {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more), "n"(kTurned));
}

/// d (64, 128) = [d +] a (64, 16) b (16, 128): rows in registers as for mma.m16n8k16, `more`: 0 for the first product.
/// kTurned: b lies by rows of the inner index, else by columns.
template <int kTurned>
__device__ __forceinline__ void multiply_registers(float (&d)[64], const unsigned (&a)[4], unsigned long long b,
                                                   int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF
      " {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more), "n"(kTurned));
}

/// d (64, 64) = [d +] a (16, 64)^T b (16, 64), both in shared memory by rows of the inner index.
__device__ __forceinline__ void multiply_group(float (&d)[32], unsigned long long a, unsigned long long b, int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF
      " {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(more));
}

/// d (64, 128) = [d +] a (16, 64)^T b (16, 128), both in shared memory by rows of the inner index.
__device__ __forceinline__ void multiply_group(float (&d)[64], unsigned long long a, unsigned long long b, int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF
      " {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(more));
}

/// Starts the copy of a matrix as write_wide_fragments left it.
template <int kBytes>
__device__ __forceinline__ void copy_terms(char* to, const void* from) {
  const char* bytes = static_cast<const char*>(from);
  for (int at = 16 * threadIdx.x; at < kBytes; at += 16 * kWideThreads) copy_vector(to + at, bytes + at, true);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ __forceinline__ void await_terms() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  fence_copies();
  __syncthreads();
}

/// sums = rows times 2 kHalf columns from tile `tile` on, of a matrix of kTiles tiles: both terms.
template <int kTiles, int kInner, int kHalf>
__device__ __forceinline__ void multiply_terms(float (&sums)[kHalf], const HalfRows<kInner, 1>& x, unsigned terms,
                                               int tile) {
#pragma unroll
  for (int step = 0; step < kInner / 16; ++step) {
    const int part = step % 2 * 2;
    const unsigned rows[4] = {part_of(x.x[0][0][step / 2], part), part_of(x.x[0][1][step / 2], part),
                              part_of(x.x[0][0][step / 2], part + 1), part_of(x.x[0][1][step / 2], part + 1)};
    const unsigned at = terms + (2 * step * kTiles + tile) * 128;
    multiply_registers<0>(sums, rows, describe(at, 128 * kTiles, 128, 0), step > 0);
    multiply_registers<0>(sums, rows, describe(at + 16 * kInner * kTiles, 128 * kTiles, 128, 0), 1);
  }
}
