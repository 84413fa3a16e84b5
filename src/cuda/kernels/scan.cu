// From counts to offsets: the middle step of every counting sort and of every row_ptr made on a device.
#include "cuda/kernels/scan.h"
#include "cuda/kernels/warp.cuh"

using namespace clebsch::cuda;

/// The sum over the block, in all threads; sums holds a number a warp.
__device__ __forceinline__ int block_sum(int value, int* sums) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  const int sum = warp_sum(sums[threadIdx.x % 32]);
  __syncthreads();
  return sum;
}

/// The sum of the threads before this one; *all: of all threads.
__device__ __forceinline__ int sum_before(int value, int* sums, int* all) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, upto = warp_sum_upto(value);
  if (lane == 31) sums[warp] = upto;
  __syncthreads();
  const int warps = warp_sum_upto(sums[lane]);
  *all = __shfl_sync(0xffffffffu, warps, 31);
  const int earlier = __shfl_sync(0xffffffffu, warps, max(warp - 1, 0));
  __syncthreads();
  return upto - value + (warp > 0 ? earlier : 0);
}

/// The sum of every tile. Grid: (tiles).
extern "C" __global__ void __launch_bounds__(kScanThreads) scan_tiles(ScanArguments a) {
  __shared__ int sums[32];
  const int begin = blockIdx.x * kScanTile, end = min(a.count - begin, kScanTile);
  int sum = 0;
  for (int i = threadIdx.x; i < end; i += kScanThreads) sum += __ldg(a.counts + begin + i);
  sum = block_sum(sum, sums);
  if (threadIdx.x == 0) a.tiles[blockIdx.x] = sum;
}

/// Offsets from the counts and the sums of their tiles. Grid: (tiles). A block adds up the tiles before its own by
/// itself: there are few of them, and that way no block waits for another.
extern "C" __global__ void __launch_bounds__(kScanThreads) scan_counts(ScanArguments a) {
  __shared__ int sums[32];
  const int first = blockIdx.x * kScanTile + threadIdx.x * kScanEach;
  int own[kScanEach], sum = 0, before = 0, all;
#pragma unroll
  for (int k = 0; k < kScanEach; ++k) {
    own[k] = first + k < a.count ? a.counts[first + k] : 0;
    sum += own[k];
  }
  for (int tile = threadIdx.x; tile < static_cast<int>(blockIdx.x); tile += kScanThreads)
    before += __ldg(a.tiles + tile);
  before = block_sum(before, sums);
  int place = before + sum_before(sum, sums, &all);
#pragma unroll
  for (int k = 0; k < kScanEach; ++k) {
    if (first + k >= a.count) break;
    a.offsets[first + k] = min(place, a.most);
    a.counts[first + k] = 0;
    place += own[k];
  }
  if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) {
    a.offsets[a.count] = min(before + all, a.most);
    if (a.total) *a.total = before + all;
  }
}
