#pragma once
// Runs of a head's rows where the head's own terms lie among the results that its blocks write.

/// Terms of a head, which every block copies into shared memory at its beginning, lie where the results of its last
/// rows go. Blocks count those of them that have read the terms. The last runs of kRows rows, which overwrite them, are
/// nobody's: a block that has done its own runs takes one after another, if all have read by then, and ends otherwise.
/// The block that reads last finds that all have, so no run is left, and nobody waits.
template <int kRows>
struct LastRuns {
  int* counters;  ///< of the head: blocks that have read, runs that were taken; null: all runs belong to a block
  int blocks;
  long long begin, end;  ///< rows of the last runs; begin == end: all rows have their block

  /// `bytes` of terms lie at the end of `count` rows of `of_row` bytes each.
  __device__ __forceinline__ LastRuns(int* readers, int head, int blocks_of_head, long long count, int bytes,
                                      int of_row)
      : counters(readers ? readers + 2 * head : nullptr), blocks(blocks_of_head), begin(count), end(count) {
    if (readers) begin = (count - (bytes + of_row - 1) / of_row) / kRows * kRows;
  }

  /// The block's threads have met since they read the terms.
  __device__ __forceinline__ void count_reader() const {
    if (counters && threadIdx.x == 0) {
      __threadfence();
      atomicAdd(counters, 1);
    }
  }

  /// The first row of one of the last runs, for all threads of the block; -1: none is left for it.
  __device__ __forceinline__ long long take() const {
    __shared__ int taken;
    __syncthreads();
    if (threadIdx.x == 0) {
      taken = -1;
      if (counters && atomicAdd(counters, 0) == blocks) {
        __threadfence();
        taken = atomicAdd(counters + 1, 1);
      }
    }
    __syncthreads();
    const long long row = begin + static_cast<long long>(taken) * kRows;
    return taken < 0 || row >= end ? -1 : row;
  }

  /// The block's run after the one at `row`, `step` rows on or one of the last.
  __device__ __forceinline__ long long after(long long row, long long step) const {
    return row + step < begin ? row + step : counters ? take() : -1;
  }
};
