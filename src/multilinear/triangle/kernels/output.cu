// out of o, which lies by channel, and of the gate: computed again from rows of x, or read as it was stored. fused.cuh
// says what this is compiled for.
#include "multilinear/triangle/kernels/rows_of_o.cuh"

constexpr int kWarps = CLEBSCH_WARPS, kThreads = 32 * kWarps, kChunks = kTileRows / 8;
constexpr int kPVectors = kOut * kH / 8, kGVectors = kStored ? 0 : kGate * kD / 8;
/// Channels of a warp's buffer, 32 rows each.
constexpr int kLines = kH + (kStored ? kGate : 0);
/// Times 16 rows that a warp has in registers at once.
constexpr int kHigh = CLEBSCH_HIGH;

/// Starts to copy a tile's channels, 32 rows each, to lines from `line` on.
template <int kChannels>
__device__ __forceinline__ void fetch(uint4* lines, int line, const void* channels, const Tile& tile,
                                      const FusedArguments& a, long long stride) {
  const int lane = threadIdx.x % 32, chunk = lane % 4;
  const unsigned short* from = static_cast<const unsigned short*>(channels) +
                               (static_cast<long long>(tile.batch) * kChannels + lane / 4) * stride;
  const bool there = tile.m < a.rows;
#pragma unroll 4
  for (int channel = lane / 4; channel < kChannels; channel += 8, from += 8 * stride) {
    copy_vector(lines + place_of_chunk<kChunks>(line + channel, chunk), there ? from + tile.m : from, there);
  }
}

/// sums of four tiles of columns += rows times weights.
template <int kInner>
__device__ __forceinline__ void multiply_tiles(float (&sums)[kHigh][4][4],
                                               const unsigned (&rows)[kHigh][kInner / 16][4], const uint4* weights) {
#pragma unroll
  for (int c = 0; c < kInner / 32; ++c) {
    uint4 w[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) w[n] = weights[(n * (kInner / 32) + c) * 32];
#pragma unroll
    for (int step = 0; step < 2; ++step) {  // sums of different columns do not wait for each other
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const unsigned columns[2] = {part_of(w[n], 2 * step), part_of(w[n], 2 * step + 1)};
#pragma unroll
        for (int i = 0; i < kHigh; ++i) multiply_half(sums[i][n], rows[i][2 * c + step], columns);
      }
    }
  }
}

/// Sums begin with the biases of their columns.
template <bool kWide>
__device__ __forceinline__ void begin_columns(float (&sums)[kHigh][4][4], const float* bias, int tile, int t) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 both = *reinterpret_cast<const float2*>(bias + column_of_out<kWide>(tile + n, 2 * t));
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
      sums[i][n][0] = sums[i][n][2] = both.x;
      sums[i][n][1] = sums[i][n][3] = both.y;
    }
  }
}

/// Warps take tiles of 32 rows in turn, each for itself. Any grid.
extern "C" __global__ void __launch_bounds__(kThreads, 1) output(FusedArguments a) {
  extern __shared__ __align__(16) uint4 memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  constexpr int kWeights = kResident ? kPVectors + kGVectors : 0;
  uint4* const lines = memory + kWeights + warp * kLines * 4;
  // Biases of out and of gates, weights and biases of the norm of o.
  float* const numbers = reinterpret_cast<float*>(memory + kWeights + kWarps * kLines * 4);
  const float *const p_bias = numbers, *const g_bias = numbers + kOut, *const norm = g_bias + kGate;
  for (int e = threadIdx.x; e < kOut + kGate + 2 * kH; e += kThreads) {
    numbers[e] = number_at(a, e);
  }
  const uint4 *p_weights = static_cast<const uint4*>(a.p_fragments),
              *g_weights = static_cast<const uint4*>(a.g_fragments);
  if (kResident) {
    for (int at = threadIdx.x; at < kWeights; at += kThreads) {
      copy_vector(memory + at, at < kPVectors ? p_weights + at : g_weights + at - kPVectors, true);
    }
    p_weights = memory;
    g_weights = memory + kPVectors;
  }
  const long long tiles = Tile::count(a), step = static_cast<long long>(gridDim.x) * kWarps;
  long long at = static_cast<long long>(blockIdx.x) * kWarps + warp;
  if (at < tiles) fetch<kH>(lines, 0, a.o, Tile(a, at), a, a.plane_of_o);
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
#pragma unroll 1
  for (; at < tiles; at += step) {
    const Tile tile(a, at);
    if (kStored) {
      fetch<kGate>(lines, kH, a.gate, tile, a, a.plane);
      asm volatile("cp.async.commit_group;" ::: "memory");
    }
#pragma unroll 1
    for (int part = 0; part < 2; part += kHigh) {
      unsigned x[kHigh][kSteps][4], o[kHigh][kHSteps][4];
#pragma unroll
      for (int i = 0; i < kHigh && !kStored; ++i) {
        RowsOfX rows;
        rows.read(a, tile.row_of_tile(a, 16 * (part + i) + g), tile.row_of_tile(a, 16 * (part + i) + 8 + g), t);
        rows.get(x[i], a.eps);
      }
      unsigned gates[kHigh][kHSteps][4];  // before the projection
      if (kBefore && !kStored) {
#pragma unroll
        for (int c = 0; c < kH / 32; ++c) {
          float z[kHigh][4][4];
          begin_columns<false>(z, g_bias, 4 * c, t);
          multiply_tiles<kD>(z, x, g_weights + 4 * c * (kD / 32) * 32 + lane);
#pragma unroll
          for (int i = 0; i < kHigh; ++i) {
            gates_of(gates[i][2 * c], z[i], 0);
            gates_of(gates[i][2 * c + 1], z[i], 1);
          }
        }
      }
      if (part == 0) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncwarp();
      }
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int s = 0; s < kHSteps; ++s) load_step<kChunks>(o[i][s], lines, 0, s, part + i);
      }
      if (part + kHigh == 2) {  // what is read of o is in registers: the next tile's may come
        __syncwarp();
        if (at + step < tiles) {
          const Tile next(a, at + step);
          fetch<kH>(lines, 0, a.o, next, a, a.plane_of_o);
          if (!kStored && !kWideOut) ask_for_rows(a, next);  // of 32-bit rows it costs more than it saves
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
      }
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
        normalise_steps(o[i], a.eps_of_o);
#pragma unroll
        for (int s = 0; s < kHSteps && kBefore; ++s) {
          if (kStored) load_step<kChunks>(gates[i][s], lines, kH, s, part + i);
          gate_step(o[i][s], gates[i][s], norm, s, t);
        }
      }
#pragma unroll 1
      for (int c = 0; c < kOut / 32; ++c) {
        float sums[kHigh][4][4];
        begin_columns<kWideOut>(sums, p_bias, 4 * c, t);
        multiply_tiles<kH>(sums, o, p_weights + 4 * c * (kH / 32) * 32 + lane);
        if (!kBefore && !kStored) {
          float z[kHigh][4][4];
          begin_columns<kWideOut>(z, g_bias, 4 * c, t);
          multiply_tiles<kD>(z, x, g_weights + 4 * c * (kD / 32) * 32 + lane);
#pragma unroll
          for (int i = 0; i < kHigh; ++i) {
#pragma unroll
            for (int n = 0; n < 4; ++n) {
#pragma unroll
              for (int r = 0; r < 4; ++r) sums[i][n][r] *= 0.5f + 0.5f * tanh_near(z[i][n][r]);
            }
          }
        }
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
          if (!kBefore && kStored) gate_sums<kChunks>(sums[i], lines, c, part + i);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int m = tile.first() + 16 * (part + i) + 8 * h + g;
            if (is_row(a, m)) store_columns(a, row_of_x(a, tile.batch, m), c, t, sums[i], h);
          }
        }
      }
    }
    __syncwarp();  // the gate's lines are read
  }
}
