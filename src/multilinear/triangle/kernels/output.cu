// out of o, which lies by channel, and of the gate: computed again from rows of x, or read as it was stored. fused.cuh
// says what this is compiled for.
#include "multilinear/triangle/kernels/fused.cuh"

constexpr int kWarps = CLEBSCH_WARPS, kThreads = 32 * kWarps, kHSteps = kH / 16;
constexpr int kPVectors = kOut * kH / 8, kGVectors = kStored ? 0 : kGate * kD / 8;
/// Channels of a warp's buffer, 32 rows each.
constexpr int kLines = kH + (kStored ? kGate : 0);
constexpr bool kWideOut = CLEBSCH_X == 1;
/// Times 16 rows that a warp has in registers at once.
constexpr int kHigh = CLEBSCH_HIGH;

/// Sixteen bytes of a line: lines whose rows ldmatrix reads together lie in different banks.
__device__ __forceinline__ int place_of_chunk(int line, int chunk) { return 4 * line + (chunk ^ (line >> 3 & 3)); }

/// Starts to copy a tile's channels, 32 rows each, to lines from `line` on.
template <int kChannels>
__device__ __forceinline__ void fetch(uint4* lines, int line, const void* channels, const Tile& tile,
                                      const FusedArguments& a) {
  const int lane = threadIdx.x % 32, chunk = lane % 4;
  const long long stride = a.plane;
  const unsigned short* from = static_cast<const unsigned short*>(channels) +
                               (static_cast<long long>(tile.batch) * kChannels + lane / 4) * stride;
  const bool there = tile.m < a.rows;
#pragma unroll 4
  for (int channel = lane / 4; channel < kChannels; channel += 8, from += 8 * stride) {
    copy_vector(lines + place_of_chunk(line + channel, chunk), there ? from + tile.m : from, there);
  }
}

/// Rows 16 `half` + .. of a step's 16 channels as a first operand: lanes have the columns of fused.cuh.
__device__ __forceinline__ void load_step(unsigned (&to)[4], const uint4* lines, int line, int s, int half) {
  const int lane = threadIdx.x % 32, i = lane / 8, r = lane % 8;
  const int channel = 32 * (s / 2) + 4 * (s % 2) + 8 * (r / 2) + r % 2 + 2 * (i / 2);
  load_transposed(to,
                  reinterpret_cast<const unsigned short*>(lines + place_of_chunk(line + channel, 2 * half + i % 2)));
}

__device__ __forceinline__ float of_quad(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Two rows of o, as steps of operands, to (o - mean) / deviation.
__device__ __forceinline__ void normalise_steps(unsigned (&o)[kHSteps][4], float eps) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = 0.0f, square = 0.0f;
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) {
      sum += low_of(o[s][h]) + high_of(o[s][h]) + low_of(o[s][h + 2]) + high_of(o[s][h + 2]);
    }
    const float mean = of_quad(sum) * (1.0f / kH);
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) {
#pragma unroll
      for (int r = h; r < 4; r += 2) {
        const float x = low_of(o[s][r]) - mean, y = high_of(o[s][r]) - mean;
        square += x * x + y * y;
      }
    }
    const float scale = rsqrtf(of_quad(square) * (1.0f / kH) + eps);
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) {
#pragma unroll
      for (int r = h; r < 4; r += 2) {
        o[s][r] = pack((low_of(o[s][r]) - mean) * scale, (high_of(o[s][r]) - mean) * scale);
      }
    }
  }
}

/// Two rows of x as steps of operands.
__device__ __forceinline__ void load_rows(unsigned (&x)[kSteps][4], const FusedArguments& a, const Tile& tile, int half,
                                          int g, int t) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const long long row = tile.row_of_tile(a, 16 * half + 8 * h + g);
    float v[kD / 32][8];
#pragma unroll
    for (int u = 0; u < kD / 32; ++u) load_eight(v[u], a.x, row * kD + 32 * u + 8 * t);
    normalise<kD / 32, 4>(v, kD / 32, a.eps);
#pragma unroll
    for (int u = 0; u < kD / 32; ++u) {
#pragma unroll
      for (int r = 0; r < 4; ++r) x[2 * u + r / 2][h + 2 * (r % 2)] = pack(v[u][2 * r], v[u][2 * r + 1]);
    }
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

__device__ __forceinline__ void store_columns(const FusedArguments& a, long long row, int c, int t,
                                              const float (&sums)[4][4], int h) {
#if CLEBSCH_X == 1
  float4* to = reinterpret_cast<float4*>(static_cast<float*>(a.out) + row * kOut + 32 * c + 4 * t);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    to[4 * part] = make_float4(sums[2 * part][2 * h], sums[2 * part][2 * h + 1], sums[2 * part + 1][2 * h],
                               sums[2 * part + 1][2 * h + 1]);
  }
#else
  uint4 all;
  all.x = pack_out(sums[0][2 * h], sums[0][2 * h + 1]);
  all.y = pack_out(sums[1][2 * h], sums[1][2 * h + 1]);
  all.z = pack_out(sums[2][2 * h], sums[2][2 * h + 1]);
  all.w = pack_out(sums[3][2 * h], sums[3][2 * h + 1]);
  *reinterpret_cast<uint4*>(static_cast<unsigned short*>(a.out) + row * kOut + 32 * c + 8 * t) = all;
#endif
}

/// Gates of a step's columns from sums of tiles 2 `part` and 2 `part` + 1.
__device__ __forceinline__ void gates_of(unsigned (&gates)[4], const float (&z)[4][4], int part) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int n = 2 * part + r / 2;
    gates[r] = pack(0.5f + 0.5f * tanh_near(z[n][2 * (r % 2)]), 0.5f + 0.5f * tanh_near(z[n][2 * (r % 2) + 1]));
  }
}

/// Step s of normed o, with the norm's weights, times gates.
__device__ __forceinline__ void gate_step(unsigned (&o)[4], const unsigned (&gates)[4], const float* norm, int s,
                                          int t) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int column = 32 * (s / 2) + 8 * t + 4 * (s % 2) + 2 * (r / 2);
    const float2 weight = *reinterpret_cast<const float2*>(norm + column),
                 bias = *reinterpret_cast<const float2*>(norm + kH + column);
    o[r] = pack((low_of(o[r]) * weight.x + bias.x) * low_of(gates[r]),
                (high_of(o[r]) * weight.y + bias.y) * high_of(gates[r]));
  }
}

/// Sums of four tiles of columns times their gates' lines.
__device__ __forceinline__ void gate_sums(float (&sums)[4][4], const uint4* lines, int c, int half) {
  const int lane = threadIdx.x % 32, line = kH + column_of_out<kWideOut>(4 * c + lane / 8, lane % 8);
#pragma unroll
  for (int h = 0; h < 2; ++h) {  // rows g, then g + 8
    unsigned gates[4];           // of the four tiles
    load_transposed(gates, reinterpret_cast<const unsigned short*>(lines + place_of_chunk(line, 2 * half + h)));
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      sums[n][2 * h] *= low_of(gates[n]);
      sums[n][2 * h + 1] *= high_of(gates[n]);
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
    numbers[e] = e < kOut           ? a.p_bias[e]
                 : e < kOut + kGate ? (kStored ? 0.0f : a.g_bias[e - kOut])
                                    : a.norm[e - kOut - kGate];
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
  if (at < tiles) fetch<kH>(lines, 0, a.o, Tile(a, at), a);
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
#pragma unroll 1
  for (; at < tiles; at += step) {
    const Tile tile(a, at);
    if (kStored) {
      fetch<kGate>(lines, kH, a.gate, tile, a);
      asm volatile("cp.async.commit_group;" ::: "memory");
    }
#pragma unroll 1
    for (int part = 0; part < 2; part += kHigh) {
      unsigned x[kHigh][kSteps][4], o[kHigh][kHSteps][4];
#pragma unroll
      for (int i = 0; i < kHigh && !kStored; ++i) load_rows(x[i], a, tile, part + i, g, t);
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
        for (int s = 0; s < kHSteps; ++s) load_step(o[i][s], lines, 0, s, part + i);
      }
      if (part + kHigh == 2) {  // what is read of o is in registers: the next tile's may come
        __syncwarp();
        if (at + step < tiles) {
          const Tile next(a, at + step);
          fetch<kH>(lines, 0, a.o, next, a);
          if (!kStored && !kWideOut) ask_for_rows(a, next);  // of 32-bit rows it costs more than it saves
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
      }
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
        normalise_steps(o[i], a.eps_of_o);
#pragma unroll
        for (int s = 0; s < kHSteps && kBefore; ++s) {
          if (kStored) load_step(gates[i][s], lines, kH, s, part + i);
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
          if (!kBefore && kStored) gate_sums(sums[i], lines, c, part + i);
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
