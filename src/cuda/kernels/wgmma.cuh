#pragma once
// Warpgroups of four warps on the tensor cores of compute capability 9.0 (wgmma, sm_90a), and barriers in shared
// memory. PTX ISA, "Asynchronous warpgroup level matrix instructions". CLEBSCH_HALF is the operands' type, "f16" or
// "bf16". Sums in registers are those of mma.m16n8k16: of tile j of eight columns a lane has d[4 j + r], rows g and
// (r / 2) 8 on of its warp's 16, columns 2 t + r % 2.
#ifndef CLEBSCH_HALF
#define CLEBSCH_HALF "bf16"
#endif

__device__ __forceinline__ unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

/// A matrix in shared memory: its address, bytes between parts along the leading and the other direction (PTX ISA,
/// "matrix descriptor"), and 1 for lines of 128 bytes whose 16-byte parts are exchanged (part c of line r at c ^ r %
/// 8).
__device__ __forceinline__ unsigned long long describe(unsigned address, int leading, int stride, int exchanged) {
  return static_cast<unsigned long long>((address & 0x3ffffu) >> 4) |
         static_cast<unsigned long long>(leading >> 4) << 16 | static_cast<unsigned long long>(stride >> 4) << 32 |
         static_cast<unsigned long long>(exchanged) << 62;
}
/// One of rows of 128 bytes whose parts are exchanged, with 1024 bytes from eight rows to the next; `across`: bytes
/// from 64 columns to the next, where columns are not summed over.
__device__ __forceinline__ unsigned long long matrix_at(unsigned address, int across) {
  return describe(address, across, 1024, 1);
}

/// The low word of such a matrix's descriptor, to which sixteenths of an offset are added (one addition where
/// describe() takes five instructions), and the descriptor.
__device__ __forceinline__ unsigned low_of_description(unsigned address, int across = 16) {
  return static_cast<unsigned>(matrix_at(address, across));
}
__device__ __forceinline__ unsigned long long described(unsigned low) {
  return (matrix_at(0, 0) & 0xffffffff00000000ull) | low;
}

/// Orders registers and shared memory before the products that follow.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most kOpen groups of products are not done.
template <int kOpen>
__device__ __forceinline__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}
/// Results are read after the wait, not before.
template <int kCount>
__device__ __forceinline__ void hold(float (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
/// What this thread wrote to shared memory becomes visible to tensor cores and bulk copies, and what it read has been
/// read before they write.
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void barrier_begin(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives when this thread's copies so far are there.
__device__ __forceinline__ void barrier_arrive_with_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/// Waits for the end of the phase of this parity.
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  unsigned done = 0;
  while (!done) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  }
}

// The registers of sums in the text of an instruction, and as its operands.
#define CLEBSCH_PLACES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define CLEBSCH_PLACES_32                                                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CLEBSCH_PLACES_64                                                                                       \
  CLEBSCH_PLACES_32                                                                                             \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CLEBSCH_SUMS_16(d)                                                                                    \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
      "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define CLEBSCH_SUMS_32(d)                                                                                    \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
      "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),  \
      "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
      "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define CLEBSCH_SUMS_64(d)                                                                                       \
  CLEBSCH_SUMS_32(d), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), \
      "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]),    \
      "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),    \
      "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),    \
      "+f"(d[63])

/// d (64, 32) = [d +] a (64, 16) b (16, 32): rows in registers as for mma.m16n8k16, `more`: 0 for the first product.
/// kTurned: b lies by rows of the inner index, else by columns.
template <int kTurned = 0>
__device__ __forceinline__ void multiply_group(float (&d)[16], const unsigned (&a)[4], unsigned long long b, int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF " {" CLEBSCH_PLACES_16
      "}, {%16, %17, %18, %19}, %20, p, 1, 1, %22;\n}"
      : CLEBSCH_SUMS_16(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more), "n"(kTurned));
}

/// d (64, 64) = [d +] a (64, 16) b (16, 64): rows in registers as for mma.m16n8k16, `more`: 0 for the first product.
/// kTurned: b lies by rows of the inner index, else by columns.
template <int kTurned = 0>
__device__ __forceinline__ void multiply_group(float (&d)[32], const unsigned (&a)[4], unsigned long long b, int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF " {" CLEBSCH_PLACES_32
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
      : CLEBSCH_SUMS_32(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more), "n"(kTurned));
}

/// d (64, 128) = [d +] a (64, 16) b (16, 128): rows in registers as for mma.m16n8k16, `more`: 0 for the first product.
/// kTurned: b lies by rows of the inner index, else by columns.
template <int kTurned = 0>
__device__ __forceinline__ void multiply_group(float (&d)[64], const unsigned (&a)[4], unsigned long long b, int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF " {" CLEBSCH_PLACES_64
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
      : CLEBSCH_SUMS_64(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more), "n"(kTurned));
}

/// The same with a from shared memory. kTurned: both lie by rows of the inner index, else by columns.
template <int kTurned = 1>
__device__ __forceinline__ void multiply_group(float (&d)[32], unsigned long long a, unsigned long long b, int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF " {" CLEBSCH_PLACES_32
      "}, %32, %33, p, 1, 1, %35, %35;\n}"
      : CLEBSCH_SUMS_32(d)
      : "l"(a), "l"(b), "r"(more), "n"(kTurned));
}

/// The same with a from shared memory. kTurned: both lie by rows of the inner index, else by columns.
template <int kTurned = 1>
__device__ __forceinline__ void multiply_group(float (&d)[64], unsigned long long a, unsigned long long b, int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF " {" CLEBSCH_PLACES_64
      "}, %64, %65, p, 1, 1, %67, %67;\n}"
      : CLEBSCH_SUMS_64(d)
      : "l"(a), "l"(b), "r"(more), "n"(kTurned));
}

/// d (64, 136) += a (64, 16) b (16, 136), both from shared memory, a by rows of the inner index. kTurned: so is b, else
/// it lies by columns.
template <int kTurned = 1>
__device__ __forceinline__ void multiply_wide(float (&d)[68], unsigned long long a, unsigned long long b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n136k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF " {" CLEBSCH_PLACES_64
      ", %64, %65, %66, %67}, %68, %69, p, 1, 1, 1, %70;\n}"
      : CLEBSCH_SUMS_64(d), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
      : "l"(a), "l"(b), "n"(kTurned));
}

/// d (64, 8) += a (64, 16) b (16, 8), both from shared memory, a by rows of the inner index. kTurned: so is b, else it
/// lies by columns.
template <int kTurned = 0>
__device__ __forceinline__ void multiply_narrow(float (&d)[4], unsigned long long a, unsigned long long b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF
      " {%0, %1, %2, %3}, %4, %5, p, 1, 1, 1, %6;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b), "n"(kTurned));
}

/// d (64, 128) = [d +] a (64, 16) b (16, 128), both from shared memory: a by columns, b by rows of the inner index.
__device__ __forceinline__ void multiply_rows_by(float (&d)[64], unsigned long long a, unsigned long long b, int more) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.gt.s32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF " {" CLEBSCH_PLACES_64
      "}, %64, %65, p, 1, 1, 0, 1;\n}"
      : CLEBSCH_SUMS_64(d)
      : "l"(a), "l"(b), "r"(more));
}

/// c (64, 128) = [c +] a (64, 16) b (128, 16)^T, both from shared memory by columns of the inner index.
__device__ __forceinline__ void multiply_scores(float (&c)[64], unsigned long long a, unsigned long long b, int add) {
  multiply_group<0>(c, a, b, add);
}

/// c (64, columns) += a (64, 16) b (16, columns): a from registers as of mma.m16n8k16, b from shared memory by rows of
/// the inner index.
template <int kCount>
__device__ __forceinline__ void multiply_values(float (&c)[kCount], const unsigned (&a)[4], unsigned long long b) {
  multiply_group<1>(c, a, b, 1);
}
