// left, right and the gate of rows of x of any width: normalised rows in shared memory, weights through a ring of two
// stages. fused.cuh says what this is compiled for.
#include "multilinear/triangle/kernels/rows_of_x.cuh"

constexpr int kWarps = CLEBSCH_WARPS, kThreads = 32 * kWarps, kHigh = CLEBSCH_HIGH;
constexpr int kRowWarps = CLEBSCH_ROW_WARPS, kChannelWarps = kWarps / kRowWarps;
constexpr int kRows = kTileRows * kHigh * kRowWarps, kWarpGroups = kGroupsOfSet / kChannelWarps;
constexpr int kChunks = kD / 32, kRowVectors = kD / 8, kStage = 2 * kGroupsOfSet * 2 * 32;
/// Lanes of a row as it is read.
constexpr int kLanes = 8, kUnits = (kRowVectors + kLanes - 1) / kLanes;

/// Where 8 columns of a row lie: neighbouring rows begin in different halves of the banks.
__device__ __forceinline__ int place_of_unit(int row, int unit) {
  return row * kRowVectors + (kD % 64 == 0 ? unit ^ (row & 1) << 2 : unit);
}

__device__ __forceinline__ void fetch(uint4* stage, const uint4* fragments) {
#pragma unroll
  for (int part = 0; part < kStage / kThreads; ++part) {
    copy_vector(stage + part * kThreads + threadIdx.x, fragments + part * kThreads + threadIdx.x, true);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// A block takes kRows rows of a batch. Grid: as many as there are such parts.
extern "C" __global__ void __launch_bounds__(kThreads, kD <= 384 ? 2 : 1) project_wide(FusedArguments a) {
  extern __shared__ __align__(16) uint4 memory[];
  uint4* const ring = memory + kRows * kRowVectors;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int of_rows = warp % kRowWarps, of_channels = warp / kRowWarps;
  const uint4* weights = static_cast<const uint4*>(a.in_fragments);
  fetch(ring, weights);

  const int parts = (a.rows + kRows - 1) / kRows, part = static_cast<int>(blockIdx.x % parts);
  const int batch = static_cast<int>(blockIdx.x / parts);
#pragma unroll 1
  for (int from = warp * (kRows / kWarps); from < (warp + 1) * (kRows / kWarps); from += 32 / kLanes) {
    const int row = from + lane / kLanes, units = (kRowVectors - lane % kLanes + kLanes - 1) / kLanes;
    const long long of_x = row_of_x(a, batch, part * kRows + row) * kD;
    float v[kUnits][8];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (u < units) {
        load_eight(v[u], a.x, of_x + 8 * (kLanes * u + lane % kLanes));
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e) v[u][e] = 0.0f;
      }
    }
    normalise<kUnits, kLanes>(v, units, a.eps);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (u >= units) continue;
      uint4 packed;
      packed.x = pack(v[u][0], v[u][1]);
      packed.y = pack(v[u][2], v[u][3]);
      packed.z = pack(v[u][4], v[u][5]);
      packed.w = pack(v[u][6], v[u][7]);
      memory[place_of_unit(row, kLanes * u + lane % kLanes)] = packed;
    }
  }

  const int tiles = (a.rows + kTileRows - 1) / kTileRows, first_tile = (part * kRowWarps + of_rows) * kHigh;
#if CLEBSCH_HIGH == 1
  Tile tile[kHigh] = {Tile(a, static_cast<long long>(batch) * tiles + min(first_tile, tiles - 1))};
#else
  Tile tile[kHigh] = {Tile(a, static_cast<long long>(batch) * tiles + min(first_tile, tiles - 1)),
                      Tile(a, static_cast<long long>(batch) * tiles + min(first_tile + 1, tiles - 1))};
#endif
#pragma unroll
  for (int i = 0; i < kHigh; ++i) tile[i].read_mask(a);
  int turn = 0;
#pragma unroll 1
  for (int set = 0; set < kSets; ++set) {
    float first[kWarpGroups][kHigh][4][4], second[kWarpGroups][kHigh][4][4];
#pragma unroll
    for (int q = 0; q < kWarpGroups; ++q) {
      const float* bias = a.in_bias + 32 * (set * kGroupsOfSet + of_channels * kWarpGroups + q);
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
        begin_sums(first[q][i], bias);
        begin_sums(second[q][i], bias + 16);
      }
    }
#pragma unroll 1
    for (int c = 0; c < kChunks; ++c, ++turn) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();
      if (turn + 1 < kSets * kChunks) fetch(ring + (turn + 1) % 2 * kStage, weights + (turn + 1) * kStage);
      uint4 x[kHigh][4];
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          x[i][n] = memory[place_of_unit((of_rows * kHigh + i) * kTileRows + 8 * (g / 2) + 2 * n + g % 2, 4 * c + t)];
        }
      }
      const uint4* stage = ring + turn % 2 * kStage + of_channels * kWarpGroups * 64 + lane;
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int q = 0; q < kWarpGroups; ++q) {
          const uint4 p = stage[(s * kGroupsOfSet + q) * 64], z = stage[(s * kGroupsOfSet + q) * 64 + 32];
#pragma unroll
          for (int i = 0; i < kHigh; ++i) {
#pragma unroll
            for (int n = 0; n < 4; ++n) {
              const unsigned b0 = s == 0 ? x[i][n].x : x[i][n].z, b1 = s == 0 ? x[i][n].y : x[i][n].w;
              multiply(first[q][i][n], p, b0, b1);
              multiply(second[q][i][n], z, b0, b1);
            }
          }
        }
      }
    }
#pragma unroll
    for (int q = 0; q < kWarpGroups; ++q) {
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
        if (first_tile + i >= tiles) continue;
        tile[i].store_group(a, set * kGroupsOfSet + of_channels * kWarpGroups + q, first[q][i], second[q][i]);
      }
    }
  }
}
