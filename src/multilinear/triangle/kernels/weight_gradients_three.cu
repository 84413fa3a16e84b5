// Sums over rows of the gradients of x's projections and gates beside normalised rows, for d, hidden and out of 128.
// The gradients are made again here, from those of left and right, rather than written by one kernel and read by a
// product. A block has 64 channels of left or right, as projections and gates: three warpgroups make gradients of 64
// rows each, and a fourth multiplies them with rows of x. What one waits for is behind the others' work, and all tiles
// are summed in their order. Other blocks sum what output_gradients has written: one of their warpgroups the gates'
// gradients beside rows of x, another those of what is projected beside rows of o. gradients.cuh says how operands lie.
#include "cuda/kernels/early_start.cuh"
#include "multilinear/triangle/kernels/weight_gradients_stored.cuh"

static_assert(kD == 128 && kHidden == 128 && kOut == 128, "four kinds of blocks, and those of what is stored");
// Shared memory of the four kinds: columns of ones, to which all that lies before them has its distance in blocks of 64
// rows and columns. A tile of rows of x lies once and twice a distance before them, so that ones are its third block:
// two tiles of each maker, then of each the gradients of projections and of gates. Behind them lines of each maker, and
// the image.
constexpr int kMakers = 3, kOnesAt = 18 * kBlockOfRows, kImageAt = kOnesAt + kBlockOfRows, kImageBytes = 2 * 128 * 128,
              kLinesAt = kImageAt + kImageBytes, kLinesBytes = kBlockOfRows,
              kBiasesAt = kLinesAt + kMakers * kLinesBytes, kBarriersAt = kBiasesAt + 128 * 4;
// Barriers: of each maker; or of each tile of each of the others.
constexpr int kBarriers = 6;
static_assert(kBarriersAt + 8 * kBarriers + 1024 <= kWeightThreeBytes, "all of a block");
__device__ __forceinline__ int rows_distance(int maker, int buffer) {
  return 0x975431 >> 4 * (2 * maker + buffer) & 15;  // and twice: 1 to 10, 14, 18
}
__device__ __forceinline__ int gradients_distance(int maker, int of_gates) {
  return maker == 0 ? 11 + of_gates : maker == 1 ? 13 + 2 * of_gates : 16 + of_gates;
}
static_assert(kStoredMakers * kStoredBlocks * kBlockOfRows <= kBarriersAt, "tiles of what is stored");
// Registers a thread: 512 threads begin with 128.
constexpr int kMakerRegisters = 112, kSummerRegisters = 176, kStoredRegisters = 176, kIdleRegisters = 24;

/// Makes gradients of the tiles `at`, at + step, ... for the summer.
__device__ void make_gradients(const GradientArguments& a, char* memory, int maker, int first_channel, int at, int step,
                               int tiles) {
  const unsigned square = static_cast<unsigned>(a.shape.n * a.shape.n);
  const bool of_left = first_channel < kHidden;
  char* const lines = memory + kLinesAt + maker * kLinesBytes;
  const unsigned ones = shared_address(memory) + kOnesAt, image = shared_address(memory) + kImageAt;
  const float* const biases = reinterpret_cast<const float*>(memory + kBiasesAt);
  const unsigned barrier = shared_address(memory) + kBarriersAt + 8 * maker;
  // Starts to copy 64 channels of 64 rows, in the order of their places, by all threads: bulk copies of a thread each
  // would come one after the other. Sixteen channels on are four places on.
  const auto fetch_lines = [&](int tile) {
    if (tile < tiles) {
      const int own = thread_again() % 128;
      const unsigned row = static_cast<unsigned>(tile) * kRows, batch = a.shape.batch == 1 ? 0 : row / square;
      const unsigned short* from =
          static_cast<const unsigned short*>(of_left ? a.grad_left : a.grad_right) +
          static_cast<long long>(batch * kHidden + first_channel % kHidden + own / 8) * square +
          (row - batch * square) + own % 8 * 8;
      const int to = chunk_at(place_of(own / 8), own % 8);
#pragma unroll
      for (int q = 0; q < 4; ++q, from += 16 * static_cast<long long>(square)) {
        copy16(lines + (q % 2 == 0 ? to : to ^ (4 * 128 + 4 * 16)) + 4096 * (q / 2), from);
      }
    }
    end_copies();
  };
  const auto fetch_rows = [&](int tile, int buffer) {
    if (tile >= tiles || thread_again() % 128 != 0) return;
    const int distance = rows_distance(maker, buffer) * kBlockOfRows;
    barrier_expect(barrier, kTileBytes);
    fetch_matrix(ones - 2 * distance, a.x_rows, tile, distance, barrier);
  };
  const auto row_of = [&](int tile) {
    const int own = thread_again() % 128;
    return static_cast<unsigned>(tile) * kRows + own / 32 * 16 + own / 4 % 8;
  };
  Masks mask;
  if (at < tiles) mask.read(a.mask, row_of(at));
  fetch_lines(at);
  fetch_rows(at, 0);
  bool is_first = true;
#pragma unroll 1
  for (int buffer = 0; at < tiles; at += step, buffer ^= 1) {
    mask.take();
    barrier_wait(barrier, buffer);
    await_copies<0>();
    meet_warpgroup();  // this tile is there
    const int distance = rows_distance(maker, buffer) * kBlockOfRows;
    const unsigned long long rows = matrix_at(ones - 2 * distance, 16), weights = matrix_at(image, 16);
    float both[64];  // projections of 64 channels, their gates
    clear(both);
    begin_products();
#pragma unroll
    for (int s = 0; s < kD / 16; ++s) {
      multiply_scores(both, rows + ((s / 4 * distance + s % 4 * 32) >> 4),
                      weights + ((s / 4 * (128 * 128) + s % 4 * 32) >> 4), s > 0 ? 1 : 0);
    }
    end_products();
    if (at + step < tiles) mask.read(a.mask, row_of(at + step));
    unsigned planes[2][2][4];
    {
      const int own = thread_again() % 128;
      const unsigned from = shared_address(lines) + chunk_at(own / 16 % 2 * 8 + own % 8, own / 32 * 2 + own / 8 % 2);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int p = 0; p < 2; ++p) load_turned_at(planes[half][p], from + 128 * (32 * half + 16 * p));
      }
    }
    await_products<0>();
    hold(both);
    meet_warpgroup();  // nobody reads lines any more
    fetch_lines(at + step);
    if (!is_first) await_other(kUsedPlace + maker);  // the last tile's rows and gradients
    is_first = false;
    fetch_rows(at + step, buffer ^ 1);
    if (at + 2 * step < tiles) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(a.x_rows) +
                                                    static_cast<long long>(at + 2 * step) * kTileBytes +
                                                    thread_again() % 128 * 128));
    }
    float of_mask[2] = {0.0f, 0.0f};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned of_z[2][4], of_gate[2][4];
      step_gradients<64>(planes[half], of_left ? a.left_scale : 1.0f, mask, both, 16 * half, 32 + 16 * half,
                         biases + 32 * half + thread_again() % 4 * 8, of_mask, of_z, of_gate);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int own = thread_again() % 128;
        char* const to = memory + kOnesAt + chunk_at(own / 32 * 16 + 8 * h + own / 4 % 8, 4 * half + own % 4);
        const auto pairs = [&](unsigned(&of)[2][4]) {
          return make_uint4(pair_of(of, 0, 0, h), pair_of(of, 0, 1, h), pair_of(of, 0, 2, h), pair_of(of, 0, 3, h));
        };
        *reinterpret_cast<uint4*>(to - gradients_distance(maker, 0) * kBlockOfRows) = pairs(of_z);
        *reinterpret_cast<uint4*>(to - gradients_distance(maker, 1) * kBlockOfRows) = pairs(of_gate);
      }
    }
    fence_copies();
    tell_other(kMadePlace + maker);
  }
  if (!is_first) await_other(kUsedPlace + maker);
}

/// Multiplies what makers have made of the tiles `at`, at + step, ..., which they take in turn.
__device__ void sum_made(const GradientArguments& a, const char* memory, int group, int first_channel, int at, int step,
                         int tiles) {
  float z_sums[68], gate_sums[68];
  clear(z_sums);
  clear(gate_sums);
  const unsigned ones = shared_address(memory) + kOnesAt;
  int maker = 0, buffer = 0;
#pragma unroll 1
  for (; at < tiles; at += step) {
    const int distance = rows_distance(maker, buffer) * kBlockOfRows;
    await_other(kMadePlace + maker);
    begin_products();
    multiply_rows(z_sums, ones - gradients_distance(maker, 0) * kBlockOfRows, ones - 2 * distance, distance);
    multiply_rows(gate_sums, ones - gradients_distance(maker, 1) * kBlockOfRows, ones - 2 * distance, distance);
    end_products();
    await_products<0>();
    hold(z_sums);
    hold(gate_sums);
    tell_other(kUsedPlace + maker);
    if (++maker == kMakers) {
      maker = 0;
      buffer ^= 1;
    }
  }
  float* const to = a.input_parts + static_cast<long long>(group) * 4 * kHidden * kD;
  write_part(to, z_sums, first_channel, true, true);
  write_part(to, gate_sums, 2 * kHidden + first_channel, true, true);
  const int lane = threadIdx.x % 32;
  if (lane % 4 != 0) return;
  float* of_ones = a.input_slots + static_cast<long long>(group) * 4 * kHidden + first_channel +
                   16 * (threadIdx.x % 128 / 32) + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    of_ones[8 * h] = z_sums[64 + 2 * h];
    of_ones[2 * kHidden + 8 * h] = gate_sums[64 + 2 * h];
  }
}

/// Grid: kWeightKinds blocks a group, then those of what is stored.
extern "C" __global__ void __launch_bounds__(kWeightThreads, 1) weight_gradients(GradientArguments a) {
  start_early();
  extern __shared__ __align__(16) uint4 all_memory[];
  char* const memory = reinterpret_cast<char*>(aligned_memory(all_memory));
  const int warpgroup = warpgroup_of_block(), block = blockIdx.x;
  const int tiles = static_cast<int>(a.shape.batch * a.shape.n * a.shape.n / kRows);
  const unsigned barriers = shared_address(memory) + kBarriersAt;
  if (threadIdx.x == 0) {
    for (int barrier = 0; barrier < kBarriers; ++barrier) barrier_begin(barriers + 8 * barrier, 1);
    fence_copies();
  }
  __syncthreads();
  if (block >= kWeightKinds * a.weight_groups) {
    if (warpgroup >= kStoredMakers) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kIdleRegisters));
      return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kStoredRegisters));
    const int group = block - kWeightKinds * a.weight_groups, groups = gridDim.x - kWeightKinds * a.weight_groups;
    char* const own = memory + warpgroup * kStoredBlocks * kBlockOfRows;
    const long long part = static_cast<long long>(group) * kOut * kD;
    float* const slot = a.output_slots + group * 2 * kOut;
    const bool of_gates =
        warpgroup == 0;  // what is projected is stored with neighbouring columns swapped, rows of o too
    if (kBesideO && !of_gates) {
      sum_beside_o(a, own, barriers + 8 * kStoredTiles * warpgroup, group, groups, tiles, a.output_parts + part, slot);
      return;
    }
    sum_stored(own, barriers + 8 * kStoredTiles * warpgroup, of_gates ? a.grad_gates : a.grad_projected,
               of_gates ? a.x_rows : a.o_normal, group, groups, tiles,
               (of_gates ? a.gate_parts : a.output_parts) + part, of_gates ? slot + kOut : slot, !of_gates);
    return;
  }
  const int kind = block % kWeightKinds, group = block / kWeightKinds, first_channel = 64 * kind;
  // Projections and gates of the block's channels, with columns as rows of x have them here: a vector of eight of them
  // comes from four of the image, whose columns are in the order of their places.
  const unsigned* from = static_cast<const unsigned*>(a.input_image);
  for (int word = threadIdx.x; word < kImageBytes / 4; word += kWeightThreads) {
    const int j = word % 4, chunk = word / 4 % 8, row = word / 32 % 128, of_columns = word / 4096;
    const int of_image = row < 64 ? first_channel + row : 2 * kHidden + first_channel + row - 64;
    const int vector = (of_columns * kGradientWidths + of_image) * 8 + ((chunk / 4 * 4 + j) ^ row % 8);
    reinterpret_cast<unsigned*>(memory + kImageAt)[(of_columns * 1024 + row * 8 + (chunk ^ row % 8)) * 4 + j] =
        from[4 * vector + chunk % 4];
  }
  for (int channel = threadIdx.x; channel < 128; channel += kWeightThreads) {
    reinterpret_cast<float*>(memory + kBiasesAt)[channel] =
        channel < 64 ? a.input_bias[first_channel + channel]
                     : 0.5f * a.input_bias[2 * kHidden + first_channel + channel - 64];
  }
  if (warpgroup == kMakers) write_ones(memory + kOnesAt);
  fence_copies();
  __syncthreads();
  if (warpgroup == kMakers) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kSummerRegisters));
    sum_made(a, memory, group, first_channel, group, a.weight_groups, tiles);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kMakerRegisters));
    make_gradients(a, memory, warpgroup, first_channel, group + warpgroup * a.weight_groups, kMakers * a.weight_groups,
                   tiles);
  }
}
