#pragma once
// Bulk copies from global to shared memory, of which a barrier in shared memory hears (wgmma.cuh; compute capability
// 9.0).

/// Copies bytes, a multiple of 16, from global to shared memory; `barrier` hears of it.
__device__ __forceinline__ void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
/// The same of what nobody reads again: it leaves the L2 cache first.
__device__ __forceinline__ void copy_bulk_once(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(0x12f0000000000000ull)
      : "memory");
}
/// Arrives, and says how many bytes of copies the phase waits for besides.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
