// The edges of a step among the pairs of a list. Pairs are looked at twice, once to count and once to write: a list and
// its positions lie in the cache, and nothing a pair needs memory. Between the two, a scan makes row_ptr of the counts.
#include "cuda/kernels/edge_finder.h"
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/warp.cuh"

using namespace clebsch::cuda;

/// The cell of a row's system. Once a row, and not where a pair needs it: there CUDA 13.0's assembler made the offset
/// of a single system (0, overwritten under a predicate) five cycles before it was read, and an H200 read what had been
/// in the register before.
__device__ __forceinline__ const double* cell_of(const EdgeFinderOperands& o, int row) {
  return o.systems ? o.cell + 9 * static_cast<int64>(o.systems[row]) : o.cell;
}

/// Vector and sender of a pair; whether it is an edge.
__device__ __forceinline__ bool edge_of(const EdgeFinderOperands& o, const double* cell, int row, int64 pair, double* v,
                                        int* sender) {
  const int point = o.neighbours[pair];
  const double *from = o.positions + 3 * static_cast<int64>(row), *to = o.positions + 3 * static_cast<int64>(point);
#pragma unroll
  for (int d = 0; d < 3; ++d) v[d] = to[d] - from[d];
  if (o.shifts) {
    const int packed = o.shifts[pair];
    const int a = (packed & 1023) - 512, b = (packed >> 10 & 1023) - 512, c = (packed >> 20 & 1023) - 512;
#pragma unroll
    for (int d = 0; d < 3; ++d) v[d] += a * cell[d] + b * cell[3 + d] + c * cell[6 + d];
  }
  *sender = o.owners[point];
  const double cutoff = o.cutoffs[static_cast<int64>(o.types[row]) * o.type_count + o.types[*sender]];
  return v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < cutoff * cutoff;
}

/// Grid: (ceil(rows / kEdgeFinderWarps)).
extern "C" __global__ void __launch_bounds__(kEdgeFinderThreads) count_edges(EdgeFinderArguments a) {
  const EdgeFinderOperands& o = a.o;
  const int row = blockIdx.x * kEdgeFinderWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= o.rows) return;
  const int end = o.pair_ptr[row + 1];
  const double* cell = cell_of(o, row);
  int count = 0, sender;
  double v[3];
  for (int64 pair = o.pair_ptr[row] + lane; pair < end; pair += 32) count += edge_of(o, cell, row, pair, v, &sender);
  count = warp_sum(count);
  if (lane == 0) a.counts[row] = count;
}

/// The same grid; edges in the list's order.
extern "C" __global__ void __launch_bounds__(kEdgeFinderThreads) fill_edges(EdgeFinderArguments a) {
  const EdgeFinderOperands& o = a.o;
  const int row = blockIdx.x * kEdgeFinderWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= o.rows) return;
  const int end = o.pair_ptr[row + 1], stop = __ldg(o.row_ptr + row + 1);
  const double* cell = cell_of(o, row);
  int place = __ldg(o.row_ptr + row);
  for (int64 first = o.pair_ptr[row]; first < end; first += 32) {
    double v[3];
    int sender = 0;
    const bool inside = first + lane < end && edge_of(o, cell, row, first + lane, v, &sender);
    const unsigned mask = __ballot_sync(0xffffffffu, inside);
    const int at = place + __popc(mask & ((1u << lane) - 1));
    if (inside && at < stop) {
      o.senders[at] = sender;
      double* target = o.edge_vec + 3 * static_cast<int64>(at);
      target[0] = v[0];
      target[1] = v[1];
      target[2] = v[2];
    }
    place += __popc(mask);
  }
}
