// What an Allegro network needs before its first layer: the cut into chunks, and the edges of a chunk in the order of
// their tables' rows, so that all that share a row find it in the cache next to them. The order comes from a counting
// sort: allegro_count, a scan of the counts, allegro_order. Places within a row are handed out in any order, on which
// no result depends.
#include "cuda/kernels/allegro_chunks.h"
#include "cuda/kernels/allegro_place.cuh"
#include "cuda/kernels/int64.cuh"

using namespace clebsch::cuda;

/// First row of [0, limit] whose edges begin at or beyond `edge`.
__device__ __forceinline__ int first_row_from(const int* row_ptr, int limit, int64 edge) {
  int low = 0, high = limit;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (__ldg(row_ptr + middle) < edge) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// A row that the workspace has no room for after the others of its chunk, of which it is then the last.
__device__ __forceinline__ bool overflows(const AllegroPlanArguments& a, int limit, int row) {
  const int begin = __ldg(a.row_ptr + row), end = __ldg(a.row_ptr + row + 1);
  if (end - begin <= a.longest) return false;
  const int first = first_row_from(a.row_ptr, limit, begin / a.chunk_edges * static_cast<int64>(a.chunk_edges));
  return end - __ldg(a.row_ptr + first) > a.capacity;
}

/// Any number of blocks.
extern "C" __global__ void __launch_bounds__(kAllegroChunkThreads) allegro_plan(AllegroPlanArguments a) {
  const int limit = a.row_limit ? min(__ldg(a.row_limit), a.rows) : a.rows;
  const int thread = blockIdx.x * kAllegroChunkThreads + threadIdx.x, threads = gridDim.x * kAllegroChunkThreads;
  for (int c = thread; c < a.chunk_count; c += threads) {
    const int64 from = static_cast<int64>(c) * a.chunk_edges;
    const int first = first_row_from(a.row_ptr, limit, from);
    int last = first_row_from(a.row_ptr, limit, from + a.chunk_edges);
    if (last > first && overflows(a, limit, last - 1)) --last;
    a.chunks[c] = AllegroChunk{first, last, __ldg(a.row_ptr + first), __ldg(a.row_ptr + last)};
  }
  for (int k = thread; k < a.bins; k += threads) a.counts[k] = 0;
  const int lane = threadIdx.x % 32;
  for (int row = thread / 32; row < a.nodes; row += threads / 32) {
    const bool left_out = row < limit && overflows(a, limit, row);
    const double value = left_out ? 0.0 / 0.0 : 0.0;
    if (lane == 0) a.energy[row] = value;
    if (!a.gradient || row >= a.rows || (row < limit && !left_out)) continue;
    const int64 end = 3 * static_cast<int64>(__ldg(a.row_ptr + row + 1));
    for (int64 k = 3 * static_cast<int64>(__ldg(a.row_ptr + row)) + lane; k < end; k += 32) a.gradient[k] = value;
  }
}

/// The edges of every row of the tables counted. Blocks take kAllegroCountEdges edges. Neighbours of a crystal fall
/// into few rows, which would have all edges of the chunk wait for the same few counters: a block counts its own first.
extern "C" __global__ void __launch_bounds__(kAllegroChunkThreads) allegro_count(AllegroSortArguments a) {
  __shared__ int of_block[kAllegroCountBins];
  const AllegroChunk part = *a.chunk;
  const int edges = part.end_edge - part.first_edge, first = blockIdx.x * kAllegroCountEdges;
  if (first >= edges) return;
  const int end = min(first + kAllegroCountEdges, edges);
  const bool together = a.bins <= kAllegroCountBins;
  if (together) {
    for (int bin = threadIdx.x; bin < a.bins; bin += kAllegroChunkThreads) of_block[bin] = 0;
    __syncthreads();
  }
#pragma unroll 1
  for (int own = first + threadIdx.x; own < end; own += kAllegroChunkThreads) {
    const int64 edge = static_cast<int64>(part.first_edge) + own;
    const int pair =
        __ldg(a.types + __ldg(a.receivers + edge)) * a.type_count + __ldg(a.types + __ldg(a.senders + edge));
    const Place p = locate(a.edge_vec + 3 * edge, pair, a.table_index, a.cutoffs, a.pieces);
    const int bin = p.row < 0 ? a.bins - 1 : p.row;
    a.places[own] = AllegroPlace{bin, atomicAdd((together ? of_block : a.counts) + bin, 1)};
  }
  if (!together) return;
  __syncthreads();
  // From a block's number of edges of a row to the number of its first one among the chunk's.
  for (int bin = threadIdx.x; bin < a.bins; bin += kAllegroChunkThreads) {
    if (of_block[bin] > 0) of_block[bin] = atomicAdd(a.counts + bin, of_block[bin]);
  }
  __syncthreads();
  for (int own = first + threadIdx.x; own < end; own += kAllegroChunkThreads) {
    a.places[own].number += of_block[a.places[own].bin];
  }
}

/// An edge a thread.
extern "C" __global__ void __launch_bounds__(kAllegroChunkThreads) allegro_order(AllegroSortArguments a) {
  const AllegroChunk part = *a.chunk;
  const int own = blockIdx.x * kAllegroChunkThreads + threadIdx.x;
  if (own >= part.end_edge - part.first_edge) return;
  const AllegroPlace place = a.places[own];
  a.order[__ldg(a.starts + place.bin) + place.number] = own;
}
