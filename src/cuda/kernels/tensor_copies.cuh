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
