// Levels of a tree at which several samples are in one node: samples stand in the order of their nodes, and a warp
// takes eight of them, so that a node's matrix is read once for all eight and multiplied on tensor cores.
#include "cuda/kernels/matrix_product.cuh"
#include "cuda/kernels/warp.cuh"
#include "multilinear/sampling/kernels/sampling.h"

using namespace clebsch::sampling;

/// Columns of eight samples that a lane keeps in registers, four a number.
constexpr int kSteps = 32;

/// For the sample g = lane / 4 of eight, whose numbers x points to: kSquares: the sum of the squares of its products
/// with the rows of a matrix (rows, columns); else x' G x of a packed G (columns, columns). In all four lanes of the
/// sample.
template <bool kSquares>
__device__ __forceinline__ double forms_of_eight(const double* matrix, int rows, int columns, const double* x) {
  const int lane = threadIdx.x % 32, g = lane / 4, k = lane % 4;
  double total = 0.0, h[kSteps];
  for (int block = 0; 8 * block < rows; block += 4) {
    double sums[4][2] = {};
    const int most = kSquares ? columns : min(columns, 8 * (block + 4));
    for (int from = 0; from < most; from += 4 * kSteps) {
      if (block == 0 || columns > 4 * kSteps) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) h[s] = from + 4 * s + k < columns ? x[from + 4 * s + k] : 0.0;
      }
      const double* row[4];
      int last[4];  // column steps of the lane's row of each of the four blocks
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int i = 8 * (block + b) + g;
        row[b] = matrix + (kSquares ? static_cast<long long>(i) * columns : packed_row(i)) + from + k;
        last[b] = i < rows ? (kSquares ? columns - 1 : i) - from - k : -1;
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        if (from + 4 * s >= most) break;
#pragma unroll
        for (int b = 0; b < 4; ++b) multiply_tile(sums[b], h[s], 4 * s <= last[b] ? __ldg(row[b] + 4 * s) : 0.0);
      }
    }
#pragma unroll
    for (int b = 0; b < 4; ++b) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int i = 8 * (block + b) + 2 * k + r;
        if (i < rows) total += sums[b][r] * (kSquares ? sums[b][r] : x[i]);
      }
    }
  }
  total += __shfl_xor_sync(0xffffffffu, total, 1);
  total += __shfl_xor_sync(0xffffffffu, total, 2);
  return total;
}

/// All samples in the root. Grid: (ceil(count / kSamplingThreads)).
extern "C" __global__ void __launch_bounds__(kSamplingThreads) start_groups(StepArguments a) {
  const int at = blockIdx.x * kSamplingThreads + threadIdx.x;
  if (at >= a.count) return;
  a.groups.order[at] = at;
  a.groups.node[at] = 0;
  a.groups.begin[at] = 0;
  a.groups.end[at] = a.count;
}

/// Masses, and the child that every sample goes to. Grid: (ceil(count / 32)), four warps of eight samples.
extern "C" __global__ void __launch_bounds__(128, 4) step_groups(StepArguments a) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  const int first = 8 * (blockIdx.x * 4 + threadIdx.x / 32), last = min(first + 8, a.count);
  if (first >= a.count) return;
  const int columns = a.shape.columns;
  const long long packed = packed_size(columns);
  const int mine = min(first + g, a.count - 1), sample = a.groups.order[mine];
  const double* x = a.x + static_cast<long long>(sample) * columns;
  for (int at = first; at < last;) {
    const long long node = a.groups.node[at];
    const int end = min(a.groups.end[at], last);
    const bool own = lane % 4 == 0 && first + g >= at && first + g < end;
    if (a.level > 0 && node >= a.shape.pairs[a.level]) {
      if (own) a.left[mine] = 1;
    } else {
      const double* matrix = a.level > 0 ? a.nodes + (a.shape.offset[a.level] + node) * packed : a.root;
      const double form = forms_of_eight<false>(matrix, columns, columns, x);
      if (own && a.level == 0) {
        a.ways[sample].mass = form;
        a.ways[sample].noise = a.slack * form;
      }
      if (own && a.level > 0) a.left[mine] = take_left(form, a.slack, a.ways + sample) ? 1 : 0;
    }
    at = end;
  }
}

/// Samples in the order of the nodes of the next level; within a node as before. Grid: (ceil(count /
/// kSamplingThreads)).
extern "C" __global__ void __launch_bounds__(kSamplingThreads) regroup(StepArguments a) {
  const int at = blockIdx.x * kSamplingThreads + threadIdx.x;
  if (at >= a.count) return;
  const int begin = a.groups.begin[at], end = a.groups.end[at], node = a.groups.node[at];
  const int earlier = a.before[at] - a.before[begin], all = a.before[end] - a.before[begin];
  const bool left = a.before[at + 1] > a.before[at];
  const int to = left ? begin + earlier : begin + all + (at - begin - earlier);
  a.next.order[to] = a.groups.order[at];
  a.next.node[to] = 2 * node + (left ? 0 : 1);
  a.next.begin[to] = left ? begin : begin + all;
  a.next.end[to] = left ? begin + all : end;
}

/// Leverages or weights of rows. Grid: (ceil(count / 32)), four warps of eight samples.
extern "C" __global__ void __launch_bounds__(128, 4) leverages(LeverageArguments a) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  const int first = 8 * (blockIdx.x * 4 + threadIdx.x / 32);
  if (first >= a.count) return;
  const int sample = min(first + g, a.count - 1);
  const double* x = a.h + static_cast<long long>(sample) * a.columns;
  const double score = forms_of_eight<true>(a.whitening, a.rank, a.columns, x);
  if (lane % 4 == 0 && first + g < a.count) {
    a.result[sample] = a.weights ? a.rank / (static_cast<double>(a.count) * score) : score;
  }
}
