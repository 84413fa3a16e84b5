// Dot products of edges, and sums of rows over edges with their weights: the second half of graph attention's backward,
// and what its second derivatives are composed of. Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_VECTOR.
#include "multilinear/attention/kernels/graph_attention.h"
#include "multilinear/attention/kernels/graph_lanes.cuh"

using namespace clebsch::attention;

constexpr int kColumns = CLEBSCH_D;
constexpr int kLanes = lanes_of(kColumns, kVector);

extern "C" __global__ void __launch_bounds__(kGraphThreads) edge_dots(EdgeDotArguments a) {
  constexpr int kAtOnce = rows_at_once(Part<kColumns, kLanes>::kRegisters);
  const long long group = group_number<kLanes>();
  const bool there = group < static_cast<long long>(a.rows.receivers) * a.heads;
  const int receiver = there ? static_cast<int>(group / a.heads) : 0, head = static_cast<int>(group % a.heads);
  const int begin = there ? a.rows.row_ptr[receiver] : 0, end = there ? a.rows.row_ptr[receiver + 1] : 0;
  const int most = longest<kLanes>(end - begin), lane = threadIdx.x % kLanes;
  Reals<kColumns, kLanes> mine;
  mine.load(static_cast<const number*>(a.a) + group * kColumns, lane, there);
  const number* from = static_cast<const number*>(a.b) + head / (a.heads / a.key_heads) * kColumns;
  const long long stride = static_cast<long long>(a.key_heads) * kColumns;
  for (int first = begin; first < begin + most; first += kAtOnce) {
    Words<kColumns, kLanes> row[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      row[u].clear();
      if (first + u < end) row[u].load(from + __ldg(a.rows.senders + first + u) * stride, lane);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const real dot = group_sum<kLanes>(mine.dot(row[u]));
      if (first + u < end && lane == 0) {
        static_cast<real*>(a.dots)[static_cast<long long>(first + u) * a.heads + head] = dot;
      }
    }
  }
}

template <bool kTwo>
__device__ __forceinline__ void sums(const EdgeSumArguments& a) {
  constexpr int kAtOnce = rows_at_once((kTwo ? 2 : 1) * Part<kColumns, kLanes>::kRegisters);
  const long long group = group_number<kLanes>();
  const bool there = group < static_cast<long long>(a.rows) * a.heads;
  const int list = there ? static_cast<int>(group / a.heads) : 0, head = static_cast<int>(group % a.heads);
  const int begin = there ? a.ptr[list] : 0, end = there ? a.ptr[list + 1] : 0;
  const int most = longest<kLanes>(end - begin), lane = threadIdx.x % kLanes;
  const int weight_heads = max(a.heads, a.source_heads), shared = weight_heads / a.heads;
  const long long stride = static_cast<long long>(a.source_heads) * kColumns;
  Reals<kColumns, kLanes> sum;
  sum.clear();
  for (int other = head * shared; other < (head + 1) * shared; ++other) {
    const int source = other / (weight_heads / a.source_heads) * kColumns;
    const number* x = static_cast<const number*>(a.x) + source;
    const number* y = static_cast<const number*>(a.y) + source;
    for (int first = begin; first < begin + most; first += kAtOnce) {
      Words<kColumns, kLanes> row[kAtOnce], second[kTwo ? kAtOnce : 1];
      real weight[kAtOnce], weight_two[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        row[u].clear();
        weight[u] = 0;
        if constexpr (kTwo) {
          second[u].clear();
          weight_two[u] = 0;
        }
        if (first + u < end) {
          const long long edge = a.edges ? __ldg(a.edges + first + u) : first + u;
          const int node = __ldg(a.nodes + first + u);
          row[u].load(x + node * stride, lane);
          weight[u] = __ldg(static_cast<const real*>(a.a) + edge * weight_heads + other);
          if constexpr (kTwo) {
            second[u].load(y + node * stride, lane);
            weight_two[u] = __ldg(static_cast<const real*>(a.b) + edge * weight_heads + other);
          }
        }
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        sum.add(weight[u], row[u]);
        if constexpr (kTwo) sum.add(weight_two[u], second[u]);
      }
    }
  }
  if (there) sum.store(static_cast<number*>(a.out) + group * kColumns, lane);
}

extern "C" __global__ void __launch_bounds__(kGraphThreads) edge_sums(EdgeSumArguments a) { sums<false>(a); }
extern "C" __global__ void __launch_bounds__(kGraphThreads) edge_sums_of_two(EdgeSumArguments a) { sums<true>(a); }
