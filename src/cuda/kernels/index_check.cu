// Whether the indices of a graph can be used. Any number of blocks.
#include "cuda/kernels/index_check.h"
#include "cuda/kernels/int64.cuh"

using namespace clebsch::cuda;

extern "C" __global__ void __launch_bounds__(kIndexCheckThreads) check_offsets(IndexCheckArguments a) {
  const int64 threads = static_cast<int64>(gridDim.x) * kIndexCheckThreads;
  for (int64 i = static_cast<int64>(blockIdx.x) * kIndexCheckThreads + threadIdx.x; i < a.count; i += threads) {
    const int own = __ldg(a.values + i);
    if (i == 0 ? own != 0 : own < __ldg(a.values + i - 1) || own > a.bound) atomicMin(a.first, i);
  }
}

extern "C" __global__ void __launch_bounds__(kIndexCheckThreads) check_range(IndexCheckArguments a) {
  const int64 threads = static_cast<int64>(gridDim.x) * kIndexCheckThreads;
  for (int64 i = static_cast<int64>(blockIdx.x) * kIndexCheckThreads + threadIdx.x; i < a.count; i += threads) {
    const int own = __ldg(a.values + i);
    if (own < 0 || own >= a.bound) atomicMin(a.first, i);
  }
}

/// A warp a row: the receivers of its edges are the row.
extern "C" __global__ void __launch_bounds__(kIndexCheckThreads) check_receivers(IndexCheckArguments a) {
  const int64 warps = static_cast<int64>(gridDim.x) * kIndexCheckWarps;
  for (int64 row = static_cast<int64>(blockIdx.x) * kIndexCheckWarps + threadIdx.x / 32; row < a.count; row += warps) {
    const int end = __ldg(a.row_ptr + row + 1);
    for (int e = __ldg(a.row_ptr + row) + threadIdx.x % 32; e < end; e += 32) {
      if (__ldg(a.values + e) != row) atomicMin(a.first, static_cast<int64>(e));
    }
  }
}
