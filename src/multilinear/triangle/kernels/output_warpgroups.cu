// As output.cu, by warpgroups on the tensor cores of compute capability 9.0: rows are first operands in registers,
// weights second operands in shared memory. fused.cuh says what this is compiled for.
#include "cuda/kernels/bulk_copies.cuh"
#include "cuda/kernels/early_start.cuh"
#include "multilinear/attention/kernels/warpgroup.cuh"
#include "multilinear/triangle/kernels/rows_of_o.cuh"

constexpr int kWarps = CLEBSCH_WARPS, kThreads = 32 * kWarps, kGroups4 = kWarps / 4, kRows = kOutputRows;
constexpr int kColumns = kOut % 128 == 0 ? 128 : 64, kGateColumns = kGate % 128 == 0 ? 128 : 64;
/// Where 8 divides n, 64 divides n^2: all rows of a part are there.
constexpr bool kWhole = !kPadded;
constexpr int kLines = kH + (kStored ? kGate : 0);
// What lies where in shared memory, bytes: p_out's and g_out's matrices of 64 places of the inner index, a row of 128
// bytes an output column; lines of every warpgroup; rows of x of every warp; numbers.
constexpr int kPBytes = 2 * kOut * kH, kGBytes = kStored ? 0 : 2 * kGate * kD;
constexpr int kLinesAt = kPBytes + kGBytes, kLinesBytes = kLines * 2 * kRows;
constexpr int kXRowBytes = kD * (CLEBSCH_X == 1 ? 4 : 2), kXBytes = kStored ? 0 : 16 * kXRowBytes;
constexpr int kXAt = kLinesAt + kGroups4 * kLinesBytes, kNumbersAt = kXAt + kWarps * kXBytes;
// Barriers of what copies bring: g_out and all numbers; p_out.
constexpr int kBarriersAt = kNumbersAt + 4 * (kOut + kGate + 2 * kH);

/// Sixteen bytes to shared memory, asynchronously; zeros unless `there`. Past the L1 cache: copies under way would have
/// places in it, and beside shared memory there are few.
__device__ __forceinline__ void copy_past(void* to, const void* from, bool there) {
  constexpr int kBytes = 16;
  const int bytes = there ? kBytes : 0;
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "l"(from), "n"(kBytes), "r"(bytes)
      : "memory");
}

/// Starts to copy channels of 64 rows to lines from `line` on, by a warpgroup.
template <int kChannels>
__device__ __forceinline__ void fetch_lines(uint4* lines, int line, const void* channels, int batch, int m,
                                            const FusedArguments& a, long long stride, bool all_there) {
  const int thread = threadIdx.x % 128, chunk = thread % 8;
  const bool there = all_there && (kWhole || m + 8 * chunk < a.rows);
  const unsigned short* from = static_cast<const unsigned short*>(channels) +
                               (static_cast<long long>(batch) * kChannels + thread / 8) * stride +
                               (kWhole || there ? m + 8 * chunk : 0);
  // What of a line is exchanged (place_of_chunk) differs in one bit from 16 lines to the next.
  uint4* const to = lines + 8 * (line + thread / 8) + (chunk ^ (thread / 64 << 1 | thread / 8 & 1));
  uint4* const to_odd = lines + 8 * (line + thread / 8) + (chunk ^ (thread / 64 << 1 | thread / 8 & 1) ^ 4);
  static_assert(kH % 32 == 0, "`line` begins an even step");
#pragma unroll
  for (int channel = 0; channel < kChannels; channel += 16, from += 16 * stride) {
    copy_past((channel % 32 == 0 ? to : to_odd) + 8 * channel, from, there);
  }
}

/// A part of 64 rows of a batch. Blocks take them in turn: to go on needs no division.
struct Place {
  int batch, of_batch;  ///< of the batch's parts

  __device__ __forceinline__ int first() const { return of_batch * kRows; }
  __device__ __forceinline__ Place after(int parts, int batches, int parts_of_batch) const {
    Place next{batch + batches, of_batch + parts};
    if (next.of_batch >= parts_of_batch) {
      next.of_batch -= parts_of_batch;
      ++next.batch;
    }
    return next;
  }
};

/// Where sixteen bytes of a row of x lie. Of two rows that a quarter of a warp reads at once each is in other banks.
__device__ __forceinline__ int place_in_row(int row, int chunk) {
  return row * kXRowBytes + 16 * (chunk ^ row % 2 * (CLEBSCH_X == 1 ? 1 : 4));
}

/// Starts to copy a warp's 16 rows of x, from `m` of the batch on.
__device__ __forceinline__ void fetch_x(unsigned char* to, const FusedArguments& a, int batch, int m, bool all_there) {
  constexpr int kChunks = kXRowBytes / 16;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const char* const all = static_cast<const char*>(a.x);
  const char* const first = all + (static_cast<long long>(batch) * a.square + m) * kXRowBytes + 16 * lane;
  static_assert(kStored || 32 % kChunks == 0, "32 lanes have whole rows");
  unsigned char* const first_place = to + place_in_row(lane / kChunks, lane % kChunks);
#pragma unroll
  for (int i = 0; i < 16 * kChunks / 32; ++i) {  // adjacent rows, but for those that end a line
    const int row = 32 / kChunks * i + lane / kChunks, chunk = lane % kChunks;
    copy_past(kChunks < 32 ? first_place + 512 * i : to + place_in_row(row, chunk),
              kPadded ? all + row_of_x(a, batch, m + row) * kXRowBytes + 16 * chunk : first + 512 * i, all_there);
  }
}

/// Rows g and g + 8 of them. Written so that all addresses are two and constants: registers are what there is least of.
__device__ __forceinline__ void take_x(RowsOfX& rows, const unsigned char* from) {
  const int g = static_cast<int>(threadIdx.x % 32 / 4), t = static_cast<int>(threadIdx.x % 4), odd = g % 2;
  const unsigned char* const row = from + g * kXRowBytes;
#if CLEBSCH_X == 1
  const unsigned char *const first = row + 16 * (2 * t + odd), *const second = row + 16 * (2 * t + 1 - odd);
#else
  const unsigned char *const first = row + 16 * (t + 4 * odd), *const second = row + 16 * (t + 4 - 4 * odd);
#endif
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int u = 0; u < kD / 32; ++u) {
#if CLEBSCH_X == 1
      rows.eights[h][u].low = *reinterpret_cast<const float4*>(first + 8 * h * kXRowBytes + 128 * u);
      rows.eights[h][u].high = *reinterpret_cast<const float4*>(second + 8 * h * kXRowBytes + 128 * u);
#else
      rows.eights[h][u].all =
          *reinterpret_cast<const uint4*>((u % 2 == 0 ? first : second) + 8 * h * kXRowBytes + 128 * (u / 2));
#endif
    }
  }
}

/// Sums of columns from the first of a matrix (rows, kInner) on, which has kAllColumns. `matrix`: the low word of its
/// descriptor.
template <int kInner, int kAllColumns, int kCount>
__device__ __forceinline__ void multiply_rows(float (&sums)[kCount], const unsigned (&rows)[kInner / 16][4],
                                              unsigned matrix, int first_column) {
  begin_products();
#pragma unroll
  for (int s = 0; s < kInner / 16; ++s) {
    const unsigned of_step = matrix + (s / 4 * kAllColumns * 128 + first_column * 128 + s % 4 * 32) / 16;
    multiply_group(sums, rows[s], described(of_step), s > 0 ? 1 : 0);
  }
  end_products();
}

/// Four tiles of sums, from tile `tile` on, of which the rows are scaled where they were not, plus the biases of their
/// columns.
template <bool kWide, bool kScaled, int kCount>
__device__ __forceinline__ void add_biases(float (&to)[4][4], const float (&sums)[kCount], const float (&scales)[2],
                                           int tile, const float* bias, int first_column, int t) {
#pragma unroll
  for (int n = 0; n < 4; n += 2) {  // four adjacent columns
    const float4 four = *reinterpret_cast<const float4*>(bias + first_column + column_of_out<kWide>(tile + n, 2 * t));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      to[n][2 * h] =
          kScaled ? sums[4 * (tile + n) + 2 * h] + four.x : sums[4 * (tile + n) + 2 * h] * scales[h] + four.x;
      to[n][2 * h + 1] =
          kScaled ? sums[4 * (tile + n) + 2 * h + 1] + four.y : sums[4 * (tile + n) + 2 * h + 1] * scales[h] + four.y;
      to[n + 1][2 * h] =
          kScaled ? sums[4 * (tile + n + 1) + 2 * h] + four.z : sums[4 * (tile + n + 1) + 2 * h] * scales[h] + four.z;
      to[n + 1][2 * h + 1] = kScaled ? sums[4 * (tile + n + 1) + 2 * h + 1] + four.w
                                     : sums[4 * (tile + n + 1) + 2 * h + 1] * scales[h] + four.w;
    }
  }
}

/// Copies a matrix in pieces, blocks from another one on each: all of them read the same at the same time.
__device__ __forceinline__ void copy_matrix(unsigned to, const void* from, int bytes, unsigned barrier) {
  constexpr int kPieces = 8;
#pragma unroll 1
  for (int i = 0; i < kPieces; ++i) {
    const int at = (i + static_cast<int>(blockIdx.x)) % kPieces * (bytes / kPieces);
    copy_bulk(to + at, static_cast<const char*>(from) + at, bytes / kPieces, barrier);
  }
}

/// Warpgroups take 64 rows in turn, each for itself. Any grid.
extern "C" __global__ void __launch_bounds__(kThreads, 1) output_warpgroups(FusedArguments a) {
  extern __shared__ unsigned char memory[];
  unsigned char* const base = memory + (1024 - shared_address(memory) % 1024) % 1024;
  // The same in all lanes of a warp, which the compiler does not see of threadIdx.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0);
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint4* const lines = reinterpret_cast<uint4*>(base + kLinesAt + group * kLinesBytes);
  const uint4* const own_lines = place_of_step(lines, warp);
  float* const numbers = reinterpret_cast<float*>(base + kNumbersAt);
  const float *const p_bias = numbers, *const g_bias = numbers + kOut, *const norm [[maybe_unused]] = g_bias + kGate;
  const unsigned shared = shared_address(base), g_there = shared + kBarriersAt, p_there = g_there + 8;
  if (threadIdx.x == 0) {  // what prepare.cu made is older than the kernel before
    barrier_begin(g_there, 1);
    barrier_begin(p_there, 1);
    fence_copies();
    const unsigned of_numbers = shared + kNumbersAt;
    barrier_expect(g_there, kGBytes + 4 * (kOut + (kStored ? 0 : kGate) + 2 * kH));
    if (!kStored) {
      copy_matrix(shared + kPBytes, a.g_fragments, kGBytes, g_there);
      copy_bulk(of_numbers + 4 * kOut, a.g_bias, 4 * kGate, g_there);
    }
    copy_bulk(of_numbers, a.p_bias, 4 * kOut, g_there);
    copy_bulk(of_numbers + 4 * (kOut + kGate), a.norm, 8 * kH, g_there);
    barrier_expect(p_there, kPBytes);
    copy_matrix(shared, a.p_fragments, kPBytes, p_there);
  }
  const unsigned of_p = low_of_description(shared), of_g = of_p + kPBytes / 16;
  const int parts_of_batch = (a.rows + kRows - 1) / kRows;
  const int batches = static_cast<int>(a.shape.batch);
  const int step = static_cast<int>(gridDim.x) * kGroups4, step_batches = step / parts_of_batch,
            step_parts = step - step_batches * parts_of_batch;
  Place place;
  // Groups of all blocks first: rounds end with as many parts for one multiprocessor as for another.
  const int first_part = static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) * group;
  place.batch = first_part / parts_of_batch;
  place.of_batch = first_part - place.batch * parts_of_batch;
  // Without branches, zeros where there is no part: they stand between products and the wait for them.
  const auto begin_o = [&](const Place& at, bool is_there) {
    fetch_lines<kH>(lines, 0, a.o, at.batch, at.first(), a, a.plane_of_o, is_there);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  unsigned char* const own_x = base + kXAt + static_cast<int>(threadIdx.x / 32) * kXBytes;
  const auto begin_x = [&](const Place& at, bool is_there) {
    if (!kStored) fetch_x(own_x, a, at.batch, at.first() + 16 * warp, is_there);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  const bool any = place.batch < batches;
  begin_x(place, any);    // x is older than the kernel before
  await_kernel_before();  // weights are older
  begin_o(place, any);
  __syncthreads();  // barriers are there
  // A thread's copies are those of x, then those of o (and the gate), in turn.
#pragma unroll 1
  while (place.batch < batches) {
    const int batch = place.batch, part_first = place.first(), own = part_first + 16 * warp + g;
    const Place next = place.after(step_parts, step_batches, parts_of_batch);
    const bool has_next = next.batch < batches;
    if (kStored) {
      fetch_lines<kGate>(lines, kH, a.gate, batch, part_first, a, a.plane, true);
      asm volatile("cp.async.commit_group;" ::: "memory");
    }
    unsigned gates[kStored ? 1 : kGate / 16][4];  // of 16 columns each, as a first operand has them
    if (!kStored) {
      unsigned x[kSteps][4];
      float scales[2] = {1.0f, 1.0f};
      asm volatile("cp.async.wait_group 1;" ::: "memory");
      __syncwarp();
      RowsOfX rows;
      take_x(rows, own_x);
      rows.get_by_sums(x, a.eps, scales);
      __syncwarp();
#pragma unroll
      for (int c = 0; c < kGate / kGateColumns; ++c) {
        float z[kGateColumns / 2];
#pragma unroll
        for (int i = 0; i < kGateColumns / 2; ++i) z[i] = 0.0f;
        if (c == 0) barrier_wait(g_there, 0);  // of the first part alone it waits
        multiply_rows<kD, kGate>(z, x, of_g, c * kGateColumns);
        if (c == 0) begin_x(next, has_next);
        await_products<0>();
        hold(z);
#pragma unroll
        for (int tile = 0; tile < kGateColumns / 8; tile += 4) {
          float four[4][4];
          add_biases<kWideOut && !kBefore, !kScaledLate>(four, z, scales, tile, g_bias, c * kGateColumns, t);
#pragma unroll
          for (int part = 0; part < 2; ++part) {
            unsigned(&to)[4] = gates[c * kGateColumns / 16 + tile / 2 + part];
            if (kHalved) {
              tanhs_of(to, four, part);
            } else {
              gates_of(to, four, part);
            }
          }
        }
      }
    }
    asm volatile("cp.async.wait_group %0;" ::"n"(kStored ? 0 : 1) : "memory");  // but for x
    if (kStored) barrier_wait(g_there, 0);
    barrier_wait(p_there, 0);
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");  // all lines are there
    unsigned o[kHSteps][4];
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) load_step_on(o[s], own_lines, s);
    float scales_of_o[2] = {1.0f, 1.0f};
#if CLEBSCH_BEFORE && !CLEBSCH_STORED
    normalise_gated(o, gates, norm, a.eps_of_o, t);
#elif CLEBSCH_BEFORE
    normalise_steps(o, a.eps_of_o);
#pragma unroll
    for (int s = 0; s < kHSteps; ++s) {
      load_step<kRows / 8>(gates[0], lines, kH, s, warp);
      gate_step(o[s], gates[0], norm, s, t);
    }
#else
    normalise_steps_by_sums(o, a.eps_of_o, scales_of_o);
#endif
#pragma unroll(kStored ? 1 : kOut / kColumns)
    for (int c = 0; c < kOut / kColumns; ++c) {
      float sums[kColumns / 2];
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) sums[i] = 0.0f;
      multiply_rows<kH, kOut>(sums, o, of_p, c * kColumns);
      if (c == 0) {
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");  // what is read of o is in registers
        begin_o(next, has_next);
      }
      await_products<0>();
      hold(sums);
      bool is_there[2];
      unsigned char* rows_of_out[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        constexpr int kRowBytes = kOut * (CLEBSCH_X == 1 ? 4 : 2);
        is_there[h] = kWhole || is_row(a, own + 8 * h);
        const long long row = kWhole ? static_cast<long long>(batch) * a.square + own : row_of_x(a, batch, own + 8 * h);
        rows_of_out[h] = static_cast<unsigned char*>(a.out) + row * kRowBytes + (kWhole ? 8 * h * kRowBytes : 0);
      }
#pragma unroll
      for (int tile = 0; tile < kColumns / 8; tile += 4) {
        float four[4][4];
        add_biases<kWideOut, !kScaledLate || kBefore>(four, sums, scales_of_o, tile, p_bias, c * kColumns, t);
        if (!kBefore) {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int h = 0; h < 2 && !kStored; ++h) {
              const unsigned pair = gates[kStored ? 0 : c * kColumns / 16 + tile / 2 + n / 2][2 * (n % 2) + h];
              if (kHalved) {
                four[n][2 * h] += four[n][2 * h] * low_of(pair);
                four[n][2 * h + 1] += four[n][2 * h + 1] * high_of(pair);
              } else {
                four[n][2 * h] *= low_of(pair);
                four[n][2 * h + 1] *= high_of(pair);
              }
            }
          }
          if (kStored) gate_sums<kRows / 8>(four, lines, c * kColumns / 32 + tile / 4, warp);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          store_columns_where(is_there[h], rows_of_out[h], c * kColumns / 32 + tile / 4, t, four, h);
        }
      }
    }
    if (kStored) asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");  // the gate's lines are read
    place = next;
  }
}
