// As output.cu, by warpgroups on the tensor cores of compute capability 9.0: rows are first operands in registers,
// weights second operands in shared memory. fused.cuh says what this is compiled for.
#include "cuda/kernels/early_start.cuh"
#include "multilinear/attention/kernels/warpgroup.cuh"
#include "multilinear/triangle/kernels/rows_of_o.cuh"

constexpr int kWarps = CLEBSCH_WARPS, kThreads = 32 * kWarps, kGroups4 = kWarps / 4, kRows = kOutputRows;
constexpr int kColumns = kOut % 128 == 0 ? 128 : 64, kGateColumns = kGate % 128 == 0 ? 128 : 64;
/// Rows of x in 16 bits are read while the part before is stored; more registers are not there.
constexpr bool kAhead = !kStored && !kWideOut;
constexpr int kLines = kH + (kStored ? kGate : 0);
// What lies where in shared memory, bytes: p_out's and g_out's matrices of 64 places of the inner index, a row of 128
// bytes an output column; lines of every warpgroup; numbers.
constexpr int kPBytes = 2 * kOut * kH, kGBytes = kStored ? 0 : 2 * kGate * kD;
constexpr int kLinesAt = kPBytes + kGBytes, kLinesBytes = kLines * 2 * kRows;
constexpr int kNumbersAt = kLinesAt + kGroups4 * kLinesBytes;

/// Starts to copy channels of 64 rows to lines from `line` on, by a warpgroup.
template <int kChannels>
__device__ __forceinline__ void fetch_lines(uint4* lines, int line, const void* channels, int batch, int m,
                                            const FusedArguments& a, long long stride) {
  const int thread = threadIdx.x % 128, chunk = thread % 8;
  const bool there = m + 8 * chunk < a.rows;
  const unsigned short* from = static_cast<const unsigned short*>(channels) +
                               (static_cast<long long>(batch) * kChannels + thread / 8) * stride +
                               (there ? m + 8 * chunk : 0);
#pragma unroll
  for (int channel = 0; channel < kChannels; channel += 16, from += 16 * stride) {
    copy_vector(lines + place_of_chunk<kRows / 8>(line + channel + thread / 8, chunk), from, there);
  }
}

/// Asks for a part's rows of x to be in the L2 cache when they are read; by a warpgroup.
__device__ __forceinline__ void ask_for_rows(const FusedArguments& a, int part, int parts_of_batch) {
  constexpr int kLine = 128, kRowBytes = kD * (CLEBSCH_X == 1 ? 4 : 2);
  const int batch = part / parts_of_batch, m = (part - batch * parts_of_batch) * kRows;
  const long long first = row_of_x(a, batch, m), last = row_of_x(a, batch, m + kRows - 1);
  const char* from = static_cast<const char*>(a.x) + first * kRowBytes;
  for (int at = static_cast<int>(threadIdx.x % 128) * kLine; at < (last - first + 1) * kRowBytes; at += 128 * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
  }
}

/// Sums of columns from the first of a matrix (rows, kInner) on, which has kAllColumns.
template <int kInner, int kAllColumns, int kCount>
__device__ __forceinline__ void multiply_rows(float (&sums)[kCount], const unsigned (&rows)[kInner / 16][4],
                                              unsigned matrix, int first_column) {
  begin_products();
#pragma unroll
  for (int s = 0; s < kInner / 16; ++s) {
    multiply_group(sums, rows[s], matrix_at(matrix + s / 4 * kAllColumns * 128 + first_column * 128 + s % 4 * 32, 16),
                   s > 0 ? 1 : 0);
  }
  end_products();
}

/// Four tiles of sums, from tile `tile` on, plus the biases of their columns.
template <bool kWide, int kCount>
__device__ __forceinline__ void add_biases(float (&to)[4][4], const float (&sums)[kCount], int tile, const float* bias,
                                           int first_column, int t) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 both = *reinterpret_cast<const float2*>(bias + first_column + column_of_out<kWide>(tile + n, 2 * t));
#pragma unroll
    for (int r = 0; r < 4; ++r) to[n][r] = sums[4 * (tile + n) + r] + (r % 2 == 0 ? both.x : both.y);
  }
}

/// Warpgroups take 64 rows in turn, each for itself. Any grid.
extern "C" __global__ void __launch_bounds__(kThreads, 1) output_warpgroups(FusedArguments a) {
  extern __shared__ unsigned char memory[];
  unsigned char* const base = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const int group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, g = lane / 4,
            t = lane % 4;
  uint4* const lines = reinterpret_cast<uint4*>(base + kLinesAt + group * kLinesBytes);
  float* const numbers = reinterpret_cast<float*>(base + kNumbersAt);
  const float *const p_bias = numbers, *const g_bias = numbers + kOut, *const norm = g_bias + kGate;
  for (int e = threadIdx.x; e < kOut + kGate + 2 * kH; e += kThreads) numbers[e] = number_at(a, e);
  for (int at = threadIdx.x; at < (kPBytes + kGBytes) / 16; at += kThreads) {
    copy_vector(base + 16 * at,
                at < kPBytes / 16 ? static_cast<const uint4*>(a.p_fragments) + at
                                  : static_cast<const uint4*>(a.g_fragments) + at - kPBytes / 16,
                true);
  }
  const unsigned of_p = shared_address(base), of_g = of_p + kPBytes;
  const int parts_of_batch = (a.rows + kRows - 1) / kRows;
  const int parts = static_cast<int>(a.shape.batch) * parts_of_batch;  // fewer than 2^31
  const int step = static_cast<int>(gridDim.x) * kGroups4;
  int at = static_cast<int>(blockIdx.x) * kGroups4 + group;
  const auto first_of = [&](int part, int& batch) {
    batch = part / parts_of_batch;
    return (part - batch * parts_of_batch) * kRows;
  };
  const auto fetch_o = [&](int part) {
    int batch;
    const int m = first_of(part, batch);
    fetch_lines<kH>(lines, 0, a.o, batch, m, a, a.plane_of_o);
  };
  RowsOfX ahead;
  const auto read_x = [&](int part) {
    int batch;
    const int own = first_of(part, batch) + 16 * warp + g;
    ahead.read(a, row_of_x(a, batch, own), row_of_x(a, batch, own + 8), t);
  };
  if (kAhead && at < parts) read_x(at);
  await_kernel_before();  // weights are older
  if (at < parts) fetch_o(at);
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  fence_copies();
  __syncthreads();
#pragma unroll 1
  for (; at < parts; at += step) {
    int batch;
    const int part_first = first_of(at, batch), own = part_first + 16 * warp + g;
    if (kStored) {
      fetch_lines<kGate>(lines, kH, a.gate, batch, part_first, a, a.plane);
      asm volatile("cp.async.commit_group;" ::: "memory");
    }
    unsigned gates[kStored ? 1 : kGate / 16][4];  // of 16 columns each, as a first operand has them
    if (!kStored) {
      unsigned x[kSteps][4];
      if (!kAhead) read_x(at);
      ahead.get(x, a.eps);
#pragma unroll
      for (int c = 0; c < kGate / kGateColumns; ++c) {
        float z[kGateColumns / 2];
#pragma unroll
        for (int i = 0; i < kGateColumns / 2; ++i) z[i] = 0.0f;
        multiply_rows<kD, kGate>(z, x, of_g, c * kGateColumns);
        await_products<0>();
        hold(z);
#pragma unroll
        for (int tile = 0; tile < kGateColumns / 8; tile += 4) {
          float four[4][4];
          add_biases<kWideOut && !kBefore>(four, z, tile, g_bias, c * kGateColumns, t);
          gates_of(gates[c * kGateColumns / 16 + tile / 2], four, 0);
          gates_of(gates[c * kGateColumns / 16 + tile / 2 + 1], four, 1);
        }
      }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");  // all lines are there
    unsigned o[kHSteps][4];
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) load_step<kRows / 8>(o[s], lines, 0, s, warp);
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");  // what is read of o is in registers
    if (at + step < parts) {
      fetch_o(at + step);
      if (kAhead) ask_for_rows(a, at + step, parts_of_batch);  // of 32-bit rows it costs more
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    normalise_steps(o, a.eps_of_o);
    if (kBefore) {
#pragma unroll
      for (int s = 0; s < kHSteps; ++s) {
        if (kStored) load_step<kRows / 8>(gates[0], lines, kH, s, warp);
        gate_step(o[s], gates[kStored ? 0 : s], norm, s, t);
      }
    }
#pragma unroll(kStored ? 1 : kOut / kColumns)
    for (int c = 0; c < kOut / kColumns; ++c) {
      float sums[kColumns / 2];
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) sums[i] = 0.0f;
      multiply_rows<kH, kOut>(sums, o, of_p, c * kColumns);
      if (kAhead && c == 0) read_x(min(at + step, parts - 1));
      await_products<0>();
      hold(sums);
#pragma unroll
      for (int tile = 0; tile < kColumns / 8; tile += 4) {
        float four[4][4];
        add_biases<kWideOut>(four, sums, tile, p_bias, c * kColumns, t);
        if (!kBefore) {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int h = 0; h < 2 && !kStored; ++h) {
              const unsigned pair = gates[kStored ? 0 : c * kColumns / 16 + tile / 2 + n / 2][2 * (n % 2) + h];
              four[n][2 * h] *= low_of(pair);
              four[n][2 * h + 1] *= high_of(pair);
            }
          }
          if (kStored) gate_sums<kRows / 8>(four, lines, c * kColumns / 32 + tile / 4, warp);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (is_row(a, own + 8 * h)) {
            store_columns(a, row_of_x(a, batch, own + 8 * h), c * kColumns / 32 + tile / 4, t, four, h);
          }
        }
      }
    }
    if (kStored) asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");  // the gate's lines are read
  }
}
