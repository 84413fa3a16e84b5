#pragma once
// Bulk copies from global to shared memory, of which a barrier in shared memory hears (wgmma.cuh; compute capability
// 9.0), and back, which a thread waits for in groups.

/// Copies bytes, a multiple of 16, from global to shared memory; `barrier` hears of it.
__device__ __forceinline__ void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
/// Arrives, and says how many bytes of copies the phase waits for besides.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Copies bytes, a multiple of 16, from shared to global memory; of what threads have written they have had
/// fence_copies() (wgmma.cuh).
__device__ __forceinline__ void store_bulk(void* to, unsigned from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void end_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until what this thread's stores read may be written.
__device__ __forceinline__ void await_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void await_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
