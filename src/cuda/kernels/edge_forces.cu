// From g = dE/d edge_vec to forces and virials: core/edge_forces.h's sums, in the same order in every run.
#include "cuda/kernels/edge_forces.h"
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/warp.cuh"

using namespace clebsch::cuda;

/// Adds an edge: sign * g to f and -edge_vec (x) g, row-major, to v.
__device__ __forceinline__ void add_edge(const EdgeForceOperands& in, int64 e, double sign, double* f, double* v) {
  const double *r = in.edge_vec + 3 * e, *g = in.gradient + 3 * e;
#pragma unroll
  for (int b = 0; b < 3; ++b) {
    const double slope = __ldg(g + b);
    f[b] += sign * slope;
#pragma unroll
    for (int a = 0; a < 3; ++a) v[3 * a + b] -= __ldg(r + a) * slope;
  }
}

/// A warp an atom. Grid: (ceil(nodes / kEdgeForceWarps)).
extern "C" __global__ void __launch_bounds__(kEdgeForceThreads) edge_forces(EdgeForceArguments a) {
  __shared__ double shared[kEdgeForceWarps][9];
  const EdgeForceOperands& in = a.in;
  const EdgeForceResults& out = a.out;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, node = blockIdx.x * kEdgeForceWarps + warp;
  double f[3] = {0, 0, 0}, received[9], sent[9];
#pragma unroll
  for (int c = 0; c < 9; ++c) received[c] = sent[c] = 0;
  if (node < in.rows) {
    const int end = __ldg(in.row_ptr + node + 1);
    for (int e = __ldg(in.row_ptr + node) + lane; e < end; e += 32) add_edge(in, e, 1.0, f, received);
  }
  if (node < in.nodes) {
    const int end = __ldg(in.col_ptr + node + 1);
    for (int k = __ldg(in.col_ptr + node) + lane; k < end; k += 32) add_edge(in, __ldg(in.col_edge + k), -1.0, f, sent);
  }
#pragma unroll
  for (int c = 0; c < 3; ++c) f[c] = warp_sum(f[c]);
#pragma unroll
  for (int c = 0; c < 9; ++c) received[c] = warp_sum(received[c]);
  if (out.atom_virial || out.centroid_virial) {
#pragma unroll
    for (int c = 0; c < 9; ++c) sent[c] = warp_sum(sent[c]);
  }
  if (lane == 0) {
    for (int c = 0; c < 9; ++c) shared[warp][c] = received[c];
  }
  __syncthreads();
  if (a.parts && threadIdx.x < 9) {
    double sum = 0;
    for (int i = 0; i < kEdgeForceWarps; ++i) sum += shared[i][threadIdx.x];
    a.parts[9 * static_cast<int64>(blockIdx.x) + threadIdx.x] = sum;
  }
  if (node >= in.nodes || lane != 0) return;
  // Order of the components in LAMMPS: xx yy zz xy xz yz yx zx zy.
  const int first[9] = {0, 1, 2, 0, 0, 1, 1, 2, 2}, second[9] = {0, 1, 2, 1, 2, 2, 0, 0, 1};
  if (a.row_parts && node < in.rows) {
#pragma unroll
    for (int c = 0; c < 6; ++c) {
      const double sum = 0.5 * (received[3 * first[c] + second[c]] + received[3 * second[c] + first[c]]);
      a.row_parts[6 * static_cast<int64>(node) + c] = sum;
    }
  }
  if (out.forces) {
#pragma unroll
    for (int c = 0; c < 3; ++c) out.forces[3 * static_cast<int64>(node) + c] = f[c];
  }
  if (out.atom_virial) {
#pragma unroll
    for (int c = 0; c < 6; ++c) {
      const int ab = 3 * first[c] + second[c], ba = 3 * second[c] + first[c];
      const double sum = 0.25 * (received[ab] + received[ba] + sent[ab] + sent[ba]);
      out.atom_virial[6 * static_cast<int64>(node) + c] = sum;
    }
  }
  if (out.centroid_virial) {
#pragma unroll
    for (int c = 0; c < 9; ++c) out.centroid_virial[9 * static_cast<int64>(node) + c] = sent[3 * first[c] + second[c]];
  }
}

/// The virial from the parts that edge_forces left. One block, a warp a component.
extern "C" __global__ void __launch_bounds__(kVirialThreads) sum_virial(EdgeForceArguments a) {
  const int component = threadIdx.x / 32, lane = threadIdx.x % 32;
  double sum = 0;
  for (int i = lane; i < a.parts_count; i += 32) sum += __ldg(a.parts + 9 * static_cast<int64>(i) + component);
  sum = warp_sum(sum);
  if (lane == 0) a.out.virial[component] = sum;
}

/// Virials of systems from the parts of their rows. Grid: (systems), a warp a component.
extern "C" __global__ void __launch_bounds__(kSystemVirialThreads) sum_system_virials(EdgeForceArguments a) {
  const int component = threadIdx.x / 32, lane = threadIdx.x % 32, end = __ldg(a.in.system_rows + blockIdx.x + 1);
  double sum = 0;
  for (int row = __ldg(a.in.system_rows + blockIdx.x) + lane; row < end; row += 32)
    sum += a.row_parts[6 * static_cast<int64>(row) + component];
  sum = warp_sum(sum);
  if (lane == 0) a.out.system_virials[6 * static_cast<int64>(blockIdx.x) + component] = sum;
}
