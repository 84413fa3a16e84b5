// left and right of rows of x with at most 128 columns, which stay in registers: normalised, as operands of tensor
// cores whose other operand is channels. fused.cuh says what this is compiled for.
#include "multilinear/triangle/kernels/rows_of_x.cuh"

constexpr int kWarps = CLEBSCH_WARPS, kThreads = 32 * kWarps, kUnits = kD / 32, kHigh = CLEBSCH_HIGH;

/// Warps take kHigh tiles of 32 rows at once, in turn, each for itself. Any grid.
extern "C" __global__ void __launch_bounds__(kThreads, 1) project(FusedArguments a) {
  extern __shared__ __align__(16) uint4 memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // Biases, then weights where they are resident.
  constexpr int kBiasVectors = kGroups * 32 / 4, kWeightVectors = kResident ? kGroups * 2 * kSteps * 32 : 0;
  const uint4* weights = static_cast<const uint4*>(a.in_fragments);
  for (int at = threadIdx.x; at < kBiasVectors + kWeightVectors; at += kThreads) {
    const uint4* from =
        at < kBiasVectors ? reinterpret_cast<const uint4*>(a.in_bias) + at : weights + at - kBiasVectors;
    copy_vector(memory + at, from, true);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  const float* const bias = reinterpret_cast<const float*>(memory);
  if (kResident) weights = memory + kBiasVectors;
  const long long tiles = Tile::count(a), parts = (tiles + kHigh - 1) / kHigh;
  for (long long at = static_cast<long long>(blockIdx.x) * kWarps + warp; at < parts;
       at += static_cast<long long>(gridDim.x) * kWarps) {
    // Where the last is not there the one before is computed twice.
    const long long last = min(at * kHigh + kHigh, tiles) - 1;
#if CLEBSCH_HIGH == 1
    Tile tile[kHigh] = {Tile(a, last)};
#else
    Tile tile[kHigh] = {Tile(a, at * kHigh), Tile(a, last)};
#endif
    // Place g of operand n is row 8 (g / 2) + 2 n + g % 2, so that sums of a lane are of eight adjacent rows.
    unsigned x[kHigh][4][kSteps][2];
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const long long row = tile[i].row_of_tile(a, 8 * (g / 2) + 2 * n + g % 2);
        float v[kUnits][8];
#pragma unroll
        for (int u = 0; u < kUnits; ++u) load_eight(v[u], a.x, row * kD + 32 * u + 8 * t);
        normalise<kUnits, 4>(v, kUnits, a.eps);
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
#pragma unroll
          for (int r = 0; r < 4; ++r) x[i][n][2 * u + r / 2][r % 2] = pack(v[u][2 * r], v[u][2 * r + 1]);
        }
      }
      tile[i].read_mask(a);
    }
#pragma unroll 1
    for (int group = 0; group < kGroups; ++group) {
      float first[kHigh][4][4], second[kHigh][4][4];
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
        begin_sums(first[i], bias + 32 * group);
        begin_sums(second[i], bias + 32 * group + 16);
      }
      const uint4* of_group =
          weights + (group / kGroupsOfSet * kSteps * kGroupsOfSet + group % kGroupsOfSet) * 64 + lane;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint4 p = of_group[s * kGroupsOfSet * 64], z = of_group[s * kGroupsOfSet * 64 + 32];
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            multiply(first[i][n], p, x[i][n][s][0], x[i][n][s][1]);
            multiply(second[i][n], z, x[i][n][s][0], x[i][n][s][1]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kHigh; ++i) tile[i].store_group(a, group, first[i], second[i]);
    }
  }
}
