// Rows grouped by type, for kernels that read a type's weights once for several rows.
#include "cuda/kernels/group_rows.h"

using namespace clebsch::cuda;

/// The type that a row is grouped by: type_count for rows from the limit on and for types out of range.
__device__ __forceinline__ int type_of(const GroupRowsArguments& a, int row, int limit) {
  const int type = row < limit ? __ldg(a.types + row) : a.type_count;
  return type >= 0 && type < a.type_count ? type : a.type_count;
}

/// Lets the lanes of a warp work for their types (-1: none). Lanes of the first few types work together:
/// together(chosen type, its first lane, its lanes). The others call alone(). So lanes do not wait for each other's
/// additions, neither with one type nor with a hundred.
template <typename Together, typename Alone>
__device__ __forceinline__ void by_type(int type, int lane, const Together& together, const Alone& alone) {
  unsigned left = __ballot_sync(0xffffffffu, type >= 0);
  for (int turn = 0; turn < 4 && left != 0; ++turn) {
    const int leader = __ffs(left) - 1;
    const int chosen = __shfl_sync(0xffffffffu, type, leader);
    const unsigned same = __ballot_sync(0xffffffffu, type == chosen);
    left &= ~same;
    together(chosen, leader, same);
  }
  if (left >> lane & 1) alone();
}

/// Puts rows of one type side by side, in any number of blocks of kGroupThreads. order: row numbers, padded with -1 so
/// that every group has one type; the first of a group that is used is a row. group_type: the type; type_count for rows
/// from *row_limit on and for types out of range; -1 for groups not used. Which row of a type comes where may differ
/// from run to run.
extern "C" __global__ void group_rows(GroupRowsArguments a) {
  __shared__ int total[kMaxGroupTypes + 1];   // rows of a type
  __shared__ int before[kMaxGroupTypes + 1];  // of these, in blocks before this one; later before the next row
  __shared__ int first[kMaxGroupTypes + 2];   // group where a type begins
  const int nodes = a.nodes, type_count = a.type_count, rows = a.rows;
  const int limit = a.row_limit ? __ldg(a.row_limit) : nodes;
  const int lane = threadIdx.x % 32;
  const int span = (nodes + gridDim.x - 1) / gridDim.x;
  const int begin = min(nodes, static_cast<int>(blockIdx.x) * span), end = min(nodes, begin + span);
  for (int t = threadIdx.x; t <= type_count; t += blockDim.x) total[t] = before[t] = 0;
  __syncthreads();

  // Every block counts all rows, several at a time so that their types are on the way together.
  constexpr int kAhead = 4;
  for (int base = threadIdx.x; base < nodes + static_cast<int>(threadIdx.x); base += kAhead * blockDim.x) {
    int found[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int row = base + k * blockDim.x;
      found[k] = row < nodes ? type_of(a, row, limit) : -1;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int type = found[k], row = base + k * blockDim.x;
      const unsigned early = __ballot_sync(0xffffffffu, row < begin);
      by_type(
          type, lane,
          [&](int chosen, int leader, unsigned same) {
            if (lane != leader) return;
            atomicAdd(total + chosen, __popc(same));
            if (same & early) atomicAdd(before + chosen, __popc(same & early));
          },
          [&] {
            atomicAdd(total + type, 1);
            if (row < begin) atomicAdd(before + type, 1);
          });
    }
  }
  __syncthreads();

  if (threadIdx.x < 32) {
    int sum = 0;
    for (int t0 = 0; t0 <= type_count; t0 += 32) {
      const int t = t0 + lane, mine = t <= type_count ? (total[t] + rows - 1) / rows : 0;
      int upto = mine;
      for (int by = 1; by < 32; by *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, upto, by);
        if (lane >= by) upto += other;
      }
      if (t <= type_count) first[t] = sum + upto - mine;
      sum += __shfl_sync(0xffffffffu, upto, 31);
    }
    if (lane == 0) first[type_count + 1] = sum;
  }
  __syncthreads();

  for (int g = blockIdx.x * blockDim.x + threadIdx.x; g < a.groups; g += gridDim.x * blockDim.x) {
    int low = 0, high = type_count + 1;  // the last type that begins at g or before
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first[middle] <= g) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    a.group_type[g] = low <= type_count ? low : -1;
    const int used = low <= type_count ? total[low] - (g - first[low]) * rows : 0;
    for (int r = max(used, 0); r < rows; ++r) a.order[g * rows + r] = -1;
  }
  for (int base = begin; base < end; base += blockDim.x) {
    const int row = base + threadIdx.x, type = row < end ? type_of(a, row, limit) : -1;
    by_type(
        type, lane,
        [&](int chosen, int leader, unsigned same) {
          int at = 0;
          if (lane == leader) at = atomicAdd(before + chosen, __popc(same));
          at = __shfl_sync(0xffffffffu, at, leader) + __popc(same & ((1u << lane) - 1));
          if (type == chosen) a.order[first[chosen] * rows + at] = row;
        },
        [&] { a.order[first[type] * rows + atomicAdd(before + type, 1)] = row; });
  }
}
