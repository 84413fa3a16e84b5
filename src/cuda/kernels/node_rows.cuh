#pragma once
// The rows of a block of a linear map of nodes: for node_linear.cuh and its variants _few, _tf32 and _walk, of
// whose names it uses kRows and kThreads.
#include "cuda/kernels/node_linear.h"

/// The type of this block's rows; below zero: none, the block has nothing to do.
__device__ __forceinline__ int type_of_rows(const clebsch::cuda::NodeLinearArguments& a) {
  return a.order ? __ldg(a.group_type + blockIdx.x) : 0;
}

/// Rows at and above this one are written as zeros, without reading x.
__device__ __forceinline__ int end_of_rows(const clebsch::cuda::NodeLinearArguments& a) {
  return a.row_limit ? min(__ldg(a.row_limit), a.nodes) : a.nodes;
}

/// Puts the kRows rows of this block into shared memory: `from` is the row of x that is read, `to` the row of out that
/// is written; -1: none. A row of a type without a weight is written as zeros. Ends with a barrier.
__device__ __forceinline__ void find_rows(const clebsch::cuda::NodeLinearArguments& a, int type, int limit, int* from,
                                          int* to) {
  for (int r = threadIdx.x; r < kRows; r += kThreads) {
    const int place = blockIdx.x * kRows + r;
    const int row = a.order ? __ldg(a.order + place) : (place < a.nodes ? place : -1);
    to[r] = row;
    from[r] = row < limit && type < a.type_count ? row : -1;
  }
  __syncthreads();
}
