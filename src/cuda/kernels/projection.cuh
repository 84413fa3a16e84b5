// Sums over the edges of a receiver of spline functions of the length times harmonics of the direction, and back:
// core/radial/density_projection.h. The source that includes this has before it
//   kLmax, kRows, kSlots, kPieces, kWarps (of a block forward)
//   harmonics(real x, real y, real z, real* row) of a unit vector
//   harmonics_gradient(real x, real y, real z, const real* row, real* g), as write_harmonics_gradient says
//   spline_values(real t, bool below, real* b): of the six rows
//   spline_slopes(real t, real* b): of the five differences between them, within the pieces
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/projection.h"
#include "cuda/kernels/table_place.cuh"

using namespace clebsch::cuda;

constexpr int kComponents = (kLmax + 1) * (kLmax + 1), kChannels = kSlots * kRows, kOrder = 6;
constexpr int kThreads = 32 * kWarps;
/// A row of sums in shared memory, an odd number, so that neighbouring rows lie in different banks.
constexpr int kPitch = kComponents | 1;
/// An edge in shared memory: harmonics, spline functions, the first row that it adds to; an odd number as well.
constexpr int kEdge = (kComponents + kOrder + 1) | 1;

/// An edge's place among the splines.
struct Place {
  double length, root, pieces_per_s, ux, uy, uz;
  real t;
  int first;   ///< row of the first of six; -1: beyond the cutoff
  bool below;  ///< of the first knot
};

__device__ __forceinline__ Place place_of(const ProjectionArguments& a, int receiver_type, int64 edge) {
  const double* v = a.edge_vec + 3 * edge;
  const double vx = __ldg(v), vy = __ldg(v + 1), vz = __ldg(v + 2);
  Place p;
  p.length = sqrt(vx * vx + vy * vy + vz * vz);
  const int pair = receiver_type * a.type_count + __ldg(a.types + __ldg(a.senders + edge));
  const double cutoff = __ldg(a.cutoffs + pair);
  const int slot = __ldg(a.slots + pair);
  p.root = sqrt(p.length);
  p.pieces_per_s = kPieces / (sqrt(cutoff) - kFirstKnot);
  const double u = table_place(p.root, p.pieces_per_s);
  // A vector that is not a number, or a sender without a slot, must show in the result; so must an infinite one.
  const bool inside = u >= 0 && slot >= 0;
  const int piece = inside ? min(static_cast<int>(u), kPieces - 1) : -1;
  p.below = piece < 0;
  p.t = static_cast<real>(slot < 0 ? u * (0.0 / 0.0) : inside ? u - piece : u);
  const double inverse = 1 / p.length;
  p.ux = vx * inverse;
  p.uy = vy * inverse;
  p.uz = vz * inverse;
  p.first = max(slot, 0) * kRows + (p.below ? 0 : piece + 3);
  if (p.length >= cutoff && p.length - p.length == 0) p.first = -1;
  return p;
}

/// Grid: (graph_rows). Warps share a chunk's edges; each adds to sums of its own, which are added in their order.
extern "C" __global__ void __launch_bounds__(kThreads) projection_forward(ProjectionArguments a) {
  __shared__ real all_sums[kWarps][kChannels * kPitch];
  __shared__ real edges[kThreads * kEdge];
  const int row = blockIdx.x, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  if (a.row_limit && row >= __ldg(a.row_limit)) return;
  const int begin = __ldg(a.row_ptr + row), end = __ldg(a.row_ptr + row + 1);
  const int receiver_type = begin < end ? __ldg(a.types + row) : 0;
  for (int i = thread; i < kWarps * kChannels * kPitch; i += kThreads) (&all_sums[0][0])[i] = 0;
  real* const sums = all_sums[warp];
  constexpr int kTerms = kOrder * kComponents, kSteps = (kTerms + 31) / 32;
  int target[kSteps], function[kSteps], component[kSteps];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const int term = min(lane + 32 * k, kTerms - 1);
    function[k] = kComponents + term / kComponents;
    component[k] = term % kComponents;
    target[k] = term / kComponents * kPitch + component[k];
  }
  for (int first = begin; first < end; first += kThreads) {
    const int count = min(kThreads, end - first);
    __syncthreads();
    if (thread < count) {
      const Place p = place_of(a, receiver_type, first + thread);
      real* const edge = edges + thread * kEdge;
      real values[kComponents], b[kOrder];
      harmonics(p.ux, p.uy, p.uz, values);
      spline_values(p.t, p.below, b);
      if (!(p.t == p.t)) b[0] = p.t;
#pragma unroll
      for (int c = 0; c < kComponents; ++c) edge[c] = values[c];
#pragma unroll
      for (int i = 0; i < kOrder; ++i) edge[kComponents + i] = b[i];
      edge[kComponents + kOrder] = __uint_as_float(static_cast<unsigned>(p.first));
    }
    __syncthreads();
    const int share = (count + kWarps - 1) / kWarps, last = min(count, (warp + 1) * share);
#pragma unroll 2
    for (int e = warp * share; e < last; ++e) {
      const real* const edge = edges + e * kEdge;
      const int at = static_cast<int>(__float_as_uint(edge[kComponents + kOrder]));
      if (at >= 0) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          if (32 * (k + 1) <= kTerms || lane + 32 * k < kTerms)
            sums[at * kPitch + target[k]] += edge[function[k]] * edge[component[k]];
        }
      }
      __syncwarp();  // the next edge's terms are other lanes'
    }
  }
  __syncthreads();
  real* const out = a.sums + static_cast<int64>(row) * (kComponents * kChannels);
  for (int i = thread; i < kComponents * kChannels; i += kThreads) {
    const int place = i % kChannels * kPitch + i / kChannels;
    real total = all_sums[0][place];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) total += all_sums[w][place];
    out[i] = total;
  }
}

/// Grid: (graph_rows); an edge a thread. A row of shared memory is a row of the gradient, then its difference.
extern "C" __global__ void __launch_bounds__(kProjectionThreads) projection_backward(ProjectionArguments a) {
  __shared__ real sums[2 * kChannels * kPitch];
  const int row = blockIdx.x, thread = threadIdx.x;
  const int begin = __ldg(a.row_ptr + row), end = __ldg(a.row_ptr + row + 1);
  if (begin >= end) return;
  const bool computed = !a.row_limit || row < __ldg(a.row_limit);
  if (computed) {
    const real* const from = a.grad_sums + static_cast<int64>(row) * (2 * kComponents * kChannels);
    for (int i = thread; i < 2 * kComponents * kChannels; i += kProjectionThreads)
      sums[i % (2 * kChannels) * kPitch + i / (2 * kChannels)] = __ldg(from + i);
  }
  __syncthreads();
  const int receiver_type = __ldg(a.types + row);
  for (int e = begin + thread; e < end; e += kProjectionThreads) {
    double* const target = a.grad_edge_vec + 3 * static_cast<int64>(e);
    Place p;
    if (computed) p = place_of(a, receiver_type, e);
    if (!computed || p.first < 0) {
      target[0] = target[1] = target[2] = 0;
      continue;
    }
    real values[kComponents], turn[kComponents], b[kOrder], slopes[kOrder];
    harmonics(p.ux, p.uy, p.uz, values);
    spline_values(p.t, p.below, b);
    if (p.below) {
      // 1, t, t^2: rows, and no differences.
      slopes[0] = 0;
      slopes[1] = 1;
      slopes[2] = p.t + p.t;
      slopes[3] = slopes[4] = slopes[5] = 0;
    } else {
      spline_slopes(p.t, slopes);
      slopes[5] = 0;
    }
    if (!(p.t == p.t)) b[0] = slopes[0] = p.t;
#pragma unroll
    for (int c = 0; c < kComponents; ++c) turn[c] = 0;
    real along = 0;
    const real* const own = sums + p.first * kPitch;
    const real* const steep = p.below ? own : own + kChannels * kPitch;
#pragma unroll
    for (int i = 0; i < kOrder; ++i) {
      real product = 0;
#pragma unroll
      for (int c = 0; c < kComponents; ++c) {
        if (c > 0) turn[c] += b[i] * own[i * kPitch + c];  // Y of degree 0 is constant
        product += steep[i * kPitch + c] * values[c];
      }
      along += slopes[i] * product;
    }
    real g[3];
    harmonics_gradient(p.ux, p.uy, p.uz, turn, g);
    const double inverse = 1 / p.length, slope = along * table_slope(p.root, p.pieces_per_s);
    target[0] = slope * p.ux + inverse * g[0];
    target[1] = slope * p.uy + inverse * g[1];
    target[2] = slope * p.uz + inverse * g[2];
  }
}
