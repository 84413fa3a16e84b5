#pragma once
// Products of a group of four warps with matrices of two terms (half_fragments.cuh).
#include "multilinear/attention/kernels/half_fragments.cuh"
#include "multilinear/attention/kernels/warpgroup.cuh"

constexpr int kWideThreads = 256;  // two groups

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

/// All blocks of the cluster (of the block alone: its threads) are here, and what they wrote is there.
template <int kCluster>
__device__ __forceinline__ void meet_cluster() {
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
  }
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
    multiply_group(sums, rows, describe(at, 128 * kTiles, 128, 0), step > 0);
    multiply_group(sums, rows, describe(at + 16 * kInner * kTiles, 128 * kTiles, 128, 0), 1);
  }
}
