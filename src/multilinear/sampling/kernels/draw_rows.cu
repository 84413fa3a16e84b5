// Samples that go down a tree by themselves, to a row: a warp each, or a block where matrices are large. The products
// x_i x_j of a sample, which every level multiplies with the numbers of a node, are made once and stay in registers.
#include "cuda/kernels/warp.cuh"
#include "multilinear/sampling/kernels/sampling.h"

using namespace clebsch::sampling;

/// The sum over a team of kWarps warps, in all of its threads. `shared`: 8 numbers.
template <int kWarps>
__device__ __forceinline__ double team_sum(double value, double* shared) {
  value = warp_sum(value);
  if (kWarps == 1) return value;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0.0;
  for (int w = 0; w < kWarps; ++w) sum += shared[w];
  __syncthreads();
  return sum;
}

/// By a warp: the first row whose prefix sum of q is above t times the sum, -1 when all are zero.
__device__ __forceinline__ int pick_row(const double* q, int count, double t) {
  const int lane = threadIdx.x % 32, each = (count + 31) / 32;
  const int begin = min(lane * each, count), end = min(begin + each, count);
  double own = 0.0;
  int positive = -1;
  for (int i = begin; i < end; ++i) {
    own += q[i];
    if (q[i] > 0.0) positive = i;
  }
  double upto = own;
  for (int by = 1; by < 32; by *= 2) {
    const double other = __shfl_up_sync(0xffffffffu, upto, by);
    if (lane >= by) upto += other;
  }
  const double target = t * __shfl_sync(0xffffffffu, upto, 31);
  const unsigned some = __ballot_sync(0xffffffffu, positive >= 0);
  const unsigned above = __ballot_sync(0xffffffffu, positive >= 0 && upto > target);
  if (some == 0) return -1;
  const int chosen = above ? __ffs(above) - 1 : 31 - __clz(some);
  int row = positive;
  double prefix = upto - own;
  for (int i = begin; i < end; ++i) {
    if (!(q[i] > 0.0)) continue;
    prefix += q[i];
    if (prefix > target) {
      row = i;
      break;
    }
  }
  return __shfl_sync(0xffffffffu, row, chosen);
}

/// Products of a sample: kEach in registers of each of 32 kWarps threads; kEach 0: made when they are needed.
template <int kWarps, int kEach>
struct Pairs {
  double products[kEach > 0 ? kEach : 1];
  const double* x;
  int columns;

  __device__ __forceinline__ void make(const double* values, int count) {
    x = values;
    columns = count;
    const int thread = threadIdx.x % (32 * kWarps), packed = static_cast<int>(packed_size(count));
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int at = e * 32 * kWarps + thread;
      double product = 0.0;
      if (at < packed) {
        int i = static_cast<int>((sqrtf(8.0f * at + 1.0f) - 1.0f) * 0.5f);
        while (packed_row(i) > at) --i;
        while (packed_row(i + 1) <= at) ++i;
        product = x[i] * x[at - packed_row(i)];
      }
      products[e] = product;
    }
  }
  /// x' G x, in all threads of the team.
  __device__ __forceinline__ double form(const double* packed_matrix, double* shared) const {
    const int thread = threadIdx.x % (32 * kWarps), packed = static_cast<int>(packed_size(columns));
    double sum = 0.0;
    if (kEach > 0) {
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int at = e * 32 * kWarps + thread;
        if (at < packed) sum += __ldg(packed_matrix + at) * products[e];
      }
    } else {
      for (int i = thread / 32; i < columns; i += kWarps) {
        double inner = 0.0;
        for (int j = thread % 32; j <= i; j += 32) inner += __ldg(packed_matrix + packed_row(i) + j) * x[j];
        sum += x[i] * inner;
      }
    }
    return team_sum<kWarps>(sum, shared);
  }
};

template <int kWarps, int kEach>
__device__ __forceinline__ void walk(const WalkArguments& a) {
  constexpr int kTeams = kWarps == 1 ? 4 : 1, kLeafRows = kWarps == 1 ? kWarpLeafRows : kBlockLeafRows;
  __shared__ double q[kTeams][kLeafRows];
  __shared__ double shared[8];
  __shared__ int chosen;
  const int team = kWarps == 1 ? threadIdx.x / 32 : 0, warp = kWarps == 1 ? 0 : threadIdx.x / 32;
  const int lane = threadIdx.x % 32, position = blockIdx.x * kTeams + team, columns = a.shape.columns;
  if (position >= a.count) return;
  const int sample = a.level > 0 ? a.groups.order[position] : position;
  const long long packed = packed_size(columns);
  Pairs<kWarps, kEach> pairs;
  pairs.make(a.x + static_cast<long long>(sample) * columns, columns);
  const double* leaf_x = a.leaf_x + static_cast<long long>(sample) * columns;
  // The second time goes the way of the larger child: where a draw has ended in a leaf without mass, by rounding.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool heavier = attempt > 0, from_root = heavier || a.level == 0;
    Way way;
    if (from_root) {
      way.t = a.ways[sample].t;
      way.mass = pairs.form(a.root, shared);
      way.noise = a.slack * way.mass;
    } else {
      way = a.ways[sample];
    }
    if (heavier) way.t = 0.5;
    long long node = from_root ? 0 : a.groups.node[position];
    for (int level = from_root ? 1 : a.level + 1; level <= a.shape.depth; ++level) {
      bool left = true;
      if (node < a.shape.pairs[level]) {
        const double form = pairs.form(a.nodes + (a.shape.offset[level] + node) * packed, shared);
        if (heavier) {
          left = form >= 0.5 * way.mass;
          way.mass = left ? form : way.mass - form;
        } else {
          left = take_left(form, a.slack, &way);
        }
      }
      node = 2 * node + (left ? 0 : 1);
    }
    const long long first = node * a.shape.leaf_rows;
    const int rows = static_cast<int>(min(a.shape.leaf_rows, a.shape.rows - first));
    int row = 0;
    if (a.shape.leaf_rows > 1) {
      for (int i = warp; i < rows; i += kWarps) {
        const double* u = a.u + (first + i) * columns;
        double product = 0.0;
        for (int c = lane; c < columns; c += 32) product += __ldg(u + c) * leaf_x[c];
        product = warp_sum(product);
        if (lane == 0) q[team][i] = product * product;
      }
      if (kWarps == 1) {
        __syncwarp();
        row = pick_row(q[team], rows, way.t);
        __syncwarp();
      } else {
        __syncthreads();
        if (warp == 0) {
          const int found = pick_row(q[team], rows, way.t);
          if (lane == 0) chosen = found;
        }
        __syncthreads();
        row = chosen;
        __syncthreads();
      }
    }
    if (row < 0 && attempt == 0) continue;
    if (lane == 0 && warp == 0) a.row[sample] = first + max(row, 0);
    return;
  }
}

/// Grid: (ceil(count / 4)), a warp a sample; up to 32 columns.
extern "C" __global__ void __launch_bounds__(128, 6) walk_32(WalkArguments a) { walk<1, 17>(a); }
/// The same, up to 46 columns.
extern "C" __global__ void __launch_bounds__(128, 4) walk_46(WalkArguments a) { walk<1, 34>(a); }
/// Grid: (count), a block a sample; up to 65, 92, 131 columns, and any number.
extern "C" __global__ void __launch_bounds__(64, 8) walk_65(WalkArguments a) { walk<2, 34>(a); }
extern "C" __global__ void __launch_bounds__(128, 4) walk_92(WalkArguments a) { walk<4, 34>(a); }
extern "C" __global__ void __launch_bounds__(256, 2) walk_131(WalkArguments a) { walk<8, 34>(a); }
extern "C" __global__ void __launch_bounds__(256, 4) walk_any(WalkArguments a) { walk<8, 0>(a); }
