// Sums over rows of the gradients of x's projections and gates beside normalised rows, for d, hidden and out of 128.
// With l = m p s, what the forward pass has stored of left or right (mask, projection, sigmoid of the gate), and dl its
// gradient: dp = m s dl and dg = dl l (1 - s). So gates alone are made again, and nobody multiplies by projections.
//
// Channels are rows of products: a warpgroup has 64 of them. Their gates are the weights, in registers, times a tile of
// 64 rows of x in shared memory; a lane's sums of these lie as a first operand of the next product has to lie, and so
// does what ldmatrix gives it of lines of l and dl. So dp and dg become operands where they are, and are multiplied
// with the same tile, which is read the other way round. Two such warpgroups a block share tiles, and a third one
// copies what they read.
//
// Other blocks sum what output_gradients has written, gradients of the result's gates, beside rows of x: two
// warpgroups, every other tile each. gradients.cuh says how operands lie.
#include "cuda/kernels/early_start.cuh"
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"
#include "multilinear/triangle/kernels/weight_gradients_stored.cuh"

static_assert(kD == 128 && kHidden == 128 && kOut == 128, "blocks of left and of right, and those of what is stored");
// A stage of shared memory: a tile of rows of x, 128 channels of its rows of gradients, the same of values. Behind the
// stages entries of masks for each of them.
constexpr int kSummers = 2, kStages = 4, kLinesBytes = 128 * 128, kStageBytes = kTileBytes + 2 * kLinesBytes;
constexpr int kMaskAt = kStages * kStageBytes, kMaskBytes = kRows * (CLEBSCH_MASK == 1 ? 2 : 4),
              kBarriersAt = kStoredMakers * kStoredBlocks * kBlockOfRows;
// Barriers: what is there and what is used of each stage; of each tile of each warpgroup of the others.
constexpr int kUsedAt = 8 * kStages, kStoredAt = 16 * kStages, kStoredBarriers = kStoredMakers * kStoredTiles;
static_assert(kMaskAt + kStages * kMaskBytes <= kBarriersAt, "what is summed is behind what is stored");
static_assert(kBarriersAt + kStoredAt + 8 * kStoredBarriers + 1024 <= kWeightThreeBytes, "all of a block");
// Registers a thread: 384 threads begin with 168.
constexpr int kSummerRegisters = 240, kCopierRegisters = 24;
// Arrivals at what is there: of one thread for x, of all for their lines, of a warp for the mask.
constexpr int kArrivals = 1 + 128 + (CLEBSCH_MASK != 0 ? 32 : 0);
// In fp16 gradients are halved before, since twice of one might be too large; else sums at the end.
constexpr bool kHalvesBefore = kPrecision == kHalf;

/// As barrier_arrive, without a branch.
__device__ __forceinline__ void arrive_where(bool where, unsigned barrier) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %0, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [%1];\n}" ::"r"(
                   static_cast<int>(where)),
               "r"(barrier)
               : "memory");
}

__device__ __forceinline__ unsigned halved(unsigned pair) { return pack2(0.5f * low2(pair), 0.5f * high2(pair)); }
/// Weights of a row of [p_in | g_in] and of a column and the next, of which rows and columns of the image are in the
/// order of their places.
__device__ __forceinline__ unsigned weights_of(const GradientArguments& a, int row, int column) {
  const int place = place_of(column);
  return static_cast<const unsigned*>(
      a.input_image)[image_vector<kGradientWidths>(place_of(row), place / 8) * 4 + place % 8 / 2];
}

/// Copies the tiles `at`, at + step, ... of x and of left (`kind` 0) or right for the summers. A mask's entries are
/// those of two adjacent rows a lane, in the order of summers' lanes (four of them have rows 2 t on of each eight).
__device__ void copy_tiles(const GradientArguments& a, char* memory, int kind, int at, int step, int tiles) {
  const unsigned square = static_cast<unsigned>(a.shape.n * a.shape.n), here = shared_address(memory);
  const unsigned there = here + kBarriersAt, used = there + kUsedAt;
  const int lane = lane_again(), warp = warp_of_block() % 4, own = thread_again() % 64;
  // Two warps copy gradients, two values: eight channels at once.
  const void* const tensor = warp < 2 ? kind == 0 ? a.grad_left : a.grad_right : kind == 0 ? a.left : a.right;
  const unsigned short* const from =
      static_cast<const unsigned short*>(tensor) + static_cast<long long>(own / 8) * square + own % 8 * 8;
  const unsigned to = here + kTileBytes + warp / 2 * kLinesBytes + chunk_at(own / 8, own % 8);
  const long long eight = 8 * static_cast<long long>(square);
  const bool of_mask = CLEBSCH_MASK != 0 && warp == 3;
  unsigned short bytes = 0;
  float2 numbers = make_float2(0.0f, 0.0f);
  const auto read_mask = [&](int tile) {
    const long long row = static_cast<long long>(tile) * kRows + 2 * lane;
    if (CLEBSCH_MASK == 1)
      bytes = __ldg(reinterpret_cast<const unsigned short*>(static_cast<const char*>(a.mask) + row));
    if (CLEBSCH_MASK == 2) numbers = __ldg(reinterpret_cast<const float2*>(static_cast<const float*>(a.mask) + row));
  };
  if (of_mask && at < tiles) read_mask(at);
  int stage = 0;
  unsigned parity = 1;  // the ring begins as used
#pragma unroll 1
  for (; at < tiles; at += step) {
    barrier_wait(used + 8 * stage, parity);
    if (thread_again() % 128 == 0) {
      barrier_expect(there + 8 * stage, kTileBytes);
      fetch_matrix(here + stage * kStageBytes, a.x_rows, at, kBlockOfRows, there + 8 * stage);
    }
    const unsigned row = static_cast<unsigned>(at) * kRows, batch = a.shape.batch == 1 ? 0 : row / square;
    const unsigned short* line = from + static_cast<long long>(batch * kHidden) * square + (row - batch * square);
#pragma unroll
    for (int q = 0; q < 16; ++q, line += eight) {
      copy16_to(to + stage * kStageBytes + 1024 * q, line);
    }
    barrier_arrive_with_copies(there + 8 * stage);
    if (of_mask) {
      char* const place = memory + kMaskAt + stage * kMaskBytes;
      if (CLEBSCH_MASK == 1) {
        reinterpret_cast<unsigned*>(place)[lane % 4 * 8 + lane / 4] =
            (bytes & 0xff ? 0xffffu : 0u) | (bytes >> 8 ? 0xffff0000u : 0u);
      } else {
        reinterpret_cast<float2*>(place)[lane % 4 * 8 + lane / 4] = numbers;
      }
      barrier_arrive(there + 8 * stage);
      if (at + step < tiles) read_mask(at + step);
    }
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  await_copies<0>();  // its threads are not to leave before what they copy is there
}

/// Sums of 64 channels from first_channel of [left | right] on, over the tiles `group`, group + step, ....
__device__ void sum_tiles(const GradientArguments& a, const char* memory, int summer, int group, int first_channel,
                          int step, int tiles) {
  const int warp = warp_of_block() % 4;
  // The gates' weights as first operands, and their biases, both halved: sigmoid(2 x) = 0.5 + 0.5 tanh(x).
  unsigned weights[kD / 16][4];
  float biases[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int g = lane_again() / 4, t = lane_again() % 4;
    const int channel = first_channel + 16 * warp + 8 * h + g;
    biases[h] = 0.5f * a.input_bias[2 * kHidden + channel];
#pragma unroll
    for (int s = 0; s < kD / 16; ++s) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        weights[s][h + 2 * k] = halved(weights_of(a, 2 * kHidden + channel, 16 * s + 8 * k + 2 * t));
      }
    }
  }
  float z_sums[64], gate_sums[64], gates[32], of_rows[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
  clear(z_sums);
  clear(gate_sums);
  clear(gates);
  const unsigned here = shared_address(memory), there = here + kBarriersAt, used = there + kUsedAt;
  // Lane 8 i + r: channel r of the warp's first eight or second eight (i % 2), rows 8 (i / 2) on.
  const auto lines_again = [&] {
    const int lane = lane_again();
    return here + kTileBytes + chunk_at(64 * summer + 16 * warp + lane / 8 % 2 * 8 + lane % 8, lane / 16);
  };
  const auto make_gates = [&](int stage) {
    const unsigned long long rows = matrix_at(here + stage * kStageBytes, 16);
#pragma unroll
    for (int s = 0; s < kD / 16; ++s) {
      multiply_group(gates, weights[s], rows + ((s / 4 * kBlockOfRows + s % 4 * 32) >> 4), s > 0 ? 1 : 0);
    }
    end_products();
  };
  int stage = 0;
  unsigned parity = 0;
#pragma unroll 1
  for (int at = group; at < tiles; at += step) {
    barrier_wait(there + 8 * stage, parity);
    begin_products();
    make_gates(stage);
    await_products<0>();
    hold(gates);
    const unsigned from = lines_again() + stage * kStageBytes;
    const char* const of_mask = memory + kMaskAt + stage * kMaskBytes + lane_again() % 4 * (kMaskBytes / 4);
    const unsigned rows = here + stage * kStageBytes;
    unsigned of_z[kRows / 16][4], of_gate[kRows / 16][4];
#pragma unroll
    for (int s = 0; s < kRows / 16; ++s) {
      if (s > 0) __syncwarp();  // or all lines would be loaded at the beginning, and registers spilled
      unsigned grads[4], values[4];
      load_rows_at(grads, from ^ 32 * s);
      load_rows_at(values, (from ^ 32 * s) + kLinesBytes);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (CLEBSCH_MASK == 2 && k > 0) __syncwarp();
        const int j = 2 * s + k;  // rows 8 j + 2 t and the next
        // Volatile, or all of them would be read first.
        const volatile float* const by = reinterpret_cast<const volatile float*>(of_mask) + 2 * j;
        const unsigned kept = CLEBSCH_MASK == 1   ? reinterpret_cast<const unsigned*>(of_mask)[j]
                              : CLEBSCH_MASK == 2 ? (by[0] != 0.0f ? 0xffffu : 0u) | (by[1] != 0.0f ? 0xffff0000u : 0u)
                                                  : ~0u;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const unsigned pair = grads[2 * k + h] & kept, value = values[2 * k + h];
          float z[2], gate[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float turned = tanh_near(gates[4 * j + 2 * h + e] + biases[h]);
            if (kHalvesBefore) turned = fmaf(0.5f, turned, 0.5f);
            const float grad = e == 0 ? low2(pair) : high2(pair);
            z[e] = kHalvesBefore ? grad * turned : fmaf(grad, turned, grad);
            if (CLEBSCH_MASK == 2) z[e] *= by[e];
            const float along = grad * (e == 0 ? low2(value) : high2(value));
            gate[e] = fmaf(-along, turned, along);
            of_rows[0][h] += z[e];
            of_rows[1][h] += gate[e];
          }
          of_z[s][2 * k + h] = pack2(z[0], z[1]);
          of_gate[s][2 * k + h] = pack2(gate[0], gate[1]);
        }
      }
      if (s % 2 == 0) continue;
      // These are on their way while the other half of the rows become operands.
      begin_products();
#pragma unroll
      for (int part = s - 1; part <= s; ++part) {
        multiply_values(z_sums, of_z[part], matrix_at(rows + 2048 * part, kBlockOfRows));
        multiply_values(gate_sums, of_gate[part], matrix_at(rows + 2048 * part, kBlockOfRows));
      }
      end_products();
    }
    await_products<0>();
    hold(z_sums);
    hold(gate_sums);
    arrive_where(lane_again() == 0, used + 8 * stage);
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  const float of_z = kHalvesBefore ? first_channel < kHidden ? a.left_scale : 1.0f : 0.5f,
              of_gate = kHalvesBefore ? 1.0f : 0.5f;
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    z_sums[i] *= of_z;
    gate_sums[i] *= of_gate;
  }
  float* const to = a.input_parts + static_cast<long long>(group) * 4 * kHidden * kD;
  write_part(to, z_sums, first_channel, true);
  write_part(to, gate_sums, 2 * kHidden + first_channel, true);
  const int lane = lane_again();
  float* const slot =
      a.input_slots + static_cast<long long>(group) * 4 * kHidden + first_channel + 16 * warp + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float z = of_quad(of_rows[0][h]) * of_z, gate = of_quad(of_rows[1][h]) * of_gate;
    if (lane % 4 != 0) continue;
    slot[8 * h] = z;
    slot[2 * kHidden + 8 * h] = gate;
  }
}

/// Grid: a block of left and one of right a group, then those of what is stored.
extern "C" __global__ void __launch_bounds__(kWeightThreads, 1) weight_gradients(GradientArguments a) {
  start_early();
  extern __shared__ __align__(16) uint4 all_memory[];
  char* const memory = reinterpret_cast<char*>(aligned_memory(all_memory));
  const int warpgroup = warpgroup_of_block(), block = blockIdx.x;
  const int tiles = static_cast<int>(a.shape.batch * a.shape.n * a.shape.n / kRows);
  const unsigned barriers = shared_address(memory) + kBarriersAt;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_begin(barriers + 8 * stage, kArrivals);
      barrier_begin(barriers + kUsedAt + 8 * stage, 4 * kSummers);
    }
    for (int barrier = 0; barrier < kStoredBarriers; ++barrier) barrier_begin(barriers + kStoredAt + 8 * barrier, 1);
    fence_copies();
  }
  __syncthreads();
  const int step = a.weight_groups, groups_of_stored = gridDim.x - 2 * step;
  const bool is_stored = block >= 2 * step;
  const int kind = block % 2, group = block / 2;
  if (warpgroup == kSummers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopierRegisters));
    if (!is_stored) copy_tiles(a, memory, kind, group, step, tiles);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kSummerRegisters));
  if (!is_stored) {
    sum_tiles(a, memory, warpgroup, group, kHidden * kind + 64 * warpgroup, step, tiles);
    return;
  }
  const int own_part = kStoredMakers * (block - 2 * step) + warpgroup;
  sum_stored(memory + warpgroup * kStoredBlocks * kBlockOfRows, barriers + kStoredAt + 8 * kStoredTiles * warpgroup,
             a.grad_gates, a.x_rows, own_part, kStoredMakers * groups_of_stored, tiles,
             a.gate_parts + static_cast<long long>(own_part) * kOut * kD, a.output_slots + own_part * 2 * kOut + kOut);
}
