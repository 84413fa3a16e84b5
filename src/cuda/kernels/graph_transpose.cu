// The transpose of a graph: a counting sort of its edges by sender. Places within a sender are handed out by atomics,
// in any order, and then put in order: an edge's rank is the number of smaller edges of its sender.
#include "cuda/kernels/graph_transpose.h"

using namespace clebsch::cuda;

/// Receivers of all edges, and the edges of every sender counted. Grid: (ceil(rows / kTransposeWarps)). After it a scan
/// makes col_ptr of the counts, which become zero.
extern "C" __global__ void __launch_bounds__(kTransposeThreads) count_senders(TransposeArguments a) {
  const TransposeOperands& o = a.o;
  const int row = blockIdx.x * kTransposeWarps + threadIdx.x / 32;
  if (row >= o.rows) return;
  const int end = __ldg(o.row_ptr + row + 1);
  for (int e = __ldg(o.row_ptr + row) + threadIdx.x % 32; e < end; e += 32) {
    o.receivers[e] = row;
    atomicAdd(a.counts + __ldg(o.senders + e), 1);
  }
}

/// Every edge takes a place of its sender. Grid: (ceil(rows / kTransposeWarps)).
extern "C" __global__ void __launch_bounds__(kTransposeThreads) place_edges(TransposeArguments a) {
  const TransposeOperands& o = a.o;
  const int row = blockIdx.x * kTransposeWarps + threadIdx.x / 32;
  if (row >= o.rows) return;
  const int end = __ldg(o.row_ptr + row + 1);
  for (int e = __ldg(o.row_ptr + row) + threadIdx.x % 32; e < end; e += 32) {
    const int sender = __ldg(o.senders + e);
    a.places[__ldg(o.col_ptr + sender) + atomicAdd(a.counts + sender, 1)] = e;
  }
}

/// Edges of a sender in ascending order. Grid: (ceil(nodes / kTransposeWarps)).
extern "C" __global__ void __launch_bounds__(kTransposeThreads) order_edges(TransposeArguments a) {
  const TransposeOperands& o = a.o;
  const int node = blockIdx.x * kTransposeWarps + threadIdx.x / 32;
  if (node >= o.nodes) return;
  const int begin = __ldg(o.col_ptr + node), end = __ldg(o.col_ptr + node + 1);
  for (int k = begin + threadIdx.x % 32; k < end; k += 32) {
    const int edge = __ldg(a.places + k);
    int rank = 0;
    for (int other = begin; other < end; ++other) rank += __ldg(a.places + other) < edge ? 1 : 0;
    o.col_edge[begin + rank] = edge;
  }
}
