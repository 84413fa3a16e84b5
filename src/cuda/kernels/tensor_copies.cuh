#pragma once
// Copies of boxes of tensors of three dimensions between global and shared memory (compute capability 9.0), and bulk
// groups of a thread's stores. What is beyond the tensor is read as zeros and not written.
#include "cuda/kernels/tensor_map.h"

/// The map is in the cache when the first copy asks for it.
__device__ __forceinline__ void fetch_map(const clebsch::cuda::TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/// Arrives, and says how many bytes of copies the phase waits for besides.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Begins to copy the box whose first element is (x, y, z), x along adjacent elements; `barrier` hears of it.
__device__ __forceinline__ void copy_box(unsigned to, const clebsch::cuda::TensorMap* map, int x, int y, int z,
                                         unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}
/// The same into both blocks of a cluster of two, at the same place of each one's shared memory; the barrier there
/// hears of it.
__device__ __forceinline__ void copy_box_to_both(unsigned to, const clebsch::cuda::TensorMap* map, int x, int y, int z,
                                                 unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(static_cast<unsigned short>(3))
      : "memory");
}
/// Arrives at the barrier at this place of a block of the cluster. What was read before by products needs no more order
/// than this; with .release.cluster a fence of the whole GPU stands before it, which takes longer than a slab's
/// products.
__device__ __forceinline__ void barrier_arrive_at(unsigned barrier, int block) {
  asm volatile(
      "{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [at];\n}" ::"r"(barrier),
      "r"(block)
      : "memory");
}
/// All threads of a cluster meet, and see barriers that were begun. Relaxed, as barrier_arrive_at.
__device__ __forceinline__ void meet_cluster() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
/// Begins to store a box, in the thread's group of stores that is open.
__device__ __forceinline__ void store_box(const clebsch::cuda::TensorMap* map, int x, int y, int z, unsigned from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map), "r"(x),
               "r"(y), "r"(z), "r"(from)
               : "memory");
}
__device__ __forceinline__ void end_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until of all but the last kOpen groups of stores shared memory is read.
template <int kOpen>
__device__ __forceinline__ void await_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kOpen) : "memory");
}
/// Waits until all stores are done.
__device__ __forceinline__ void await_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
