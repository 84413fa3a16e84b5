// As output_gradients_warpgroups.cu for d, hidden and out of 128, by three warpgroups: what one waits for is behind the
// others' work. All columns are done at once, in turn: gates (kept as tanh of half their argument, in 16 bits), what is
// projected, the gradient of o. So a thread has 64 sums at most beside one or two operands of 64 rows. Nothing is
// summed over rows here (weight_gradients).
#include "cuda/kernels/early_start.cuh"
#include "multilinear/triangle/kernels/gradient_warpgroups.cuh"
#include "multilinear/triangle/kernels/output_gradients.cuh"

static_assert(kD == 128 && kHidden == 128 && kOut == 128, "shared memory and registers are counted for these widths");
/// Rows of x and of the gradient are copied one tile ahead where they have 16 bits.
constexpr bool kAhead = sizeof(number) == 2;
constexpr int kImageIn = kOut * kD / 8, kImageOut = kOut * kHidden / 8, kTile = kGradientRows * 128 / 8;  // vectors
constexpr int kTileBytes = 16 * kTile;

// A warpgroup's tile of o, or of its gradient: lines of 64 rows, of channels in the order of their places.
/// Where 16 bytes of the line of a place lie.
__device__ __forceinline__ int line_at(int place, int chunk) { return place * 128 + (chunk ^ place % 8) * 16; }
/// Of the warp's 16 rows, as matrices of eight rows and eight places: where lane 8 i + r has line r of matrix i. The
/// next 16 places are 2,048 bytes on.
__device__ __forceinline__ int lines_of_lane() {
  const int own = thread_again();
  return line_at(own / 16 % 2 * 8 + own % 8, own / 32 % 4 * 2 + own / 8 % 2);
}
/// Lines in whole vectors: a warp has four channels at once, 16 on the next four. Where a lane's vector of the first of
/// them lies, and with kLinesOn of the sixteenth after it; 32 channels are 4,096 bytes on.
__device__ __forceinline__ int channel_of_lane() { return thread_again() / 8 % 16; }
__device__ __forceinline__ int vector_of_lane() { return line_at(place_of(channel_of_lane()), thread_again() % 8); }
constexpr int kLinesOn = 4 * 128 ^ 4 * 16;

/// A barrier of the warpgroup's own.
__device__ __forceinline__ void meet_warpgroup() {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + thread_again() / 128) : "memory");
}

/// Rows to the lines of channels.
__device__ __forceinline__ void store_turned(unsigned here, const unsigned (&o)[kHidden / 16][4]) {
#pragma unroll
  for (int s = 0; s < kHidden / 16; ++s) {
    const unsigned to = here + 2048 * s;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(o[s][0]),
                 "r"(o[s][1]), "r"(o[s][2]), "r"(o[s][3])
                 : "memory");
  }
}

__device__ __forceinline__ float inverse_near(float x) {
  float y;
  asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Sums of two columns as halves, which keep a tanh to 2^-12.
__device__ __forceinline__ unsigned pack_halves(float x, float y) { return pack(x, y, Half{}); }
__device__ __forceinline__ float half_of(unsigned pair, int e) {
  return to_real(Half{static_cast<unsigned short>(e == 0 ? pair & 0xffffu : pair >> 16)});
}

/// Whether o is left as it is for the sums over rows, and what is projected is stored, and multiplied, divided by o's
/// deviation.
constexpr bool kBesideO = sums_beside_o(kPrecision);

/// Takes the mean off a row of operands, and gives 1 / deviation (norm_of_row).
template <int kSteps>
__device__ __forceinline__ float center_row(unsigned (&rows)[kSteps][4], int h, float eps, float& mean) {
  float sum = 0, squares = 0;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    sum += low2(rows[s][h]) + high2(rows[s][h]) + low2(rows[s][2 + h]) + high2(rows[s][2 + h]);
  }
  mean = of_quad(sum) * (1.0f / (16 * kSteps));
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int p = h; p < 4; p += 2) {
      const float low = low2(rows[s][p]) - mean, high = high2(rows[s][p]) - mean;
      squares += low * low + high * high;
      rows[s][p] = pack2(low, high);
    }
  }
  return rsqrtf(of_quad(squares) * (1.0f / (16 * kSteps)) + eps);
}

/// Of two 16-bit numbers: bits that are set where one of them is infinite or no number.
__device__ __forceinline__ unsigned not_numbers(unsigned pair) {
  constexpr unsigned kExponent = kPrecision == kHalf ? 0x7c00u : 0x7f80u;
  return ((pair & kExponent) == kExponent ? 1u : 0u) | ((pair >> 16 & kExponent) == kExponent ? 2u : 0u);
}
/// Of two 16-bit numbers: what is not 0 becomes no number.
__device__ __forceinline__ unsigned zero_or_none(unsigned pair) {
  return ((pair & 0x7fffu) != 0 ? 0x7fffu : 0u) | ((pair & 0x7fff0000u) != 0 ? 0x7fff0000u : 0u);
}

#ifndef CLEBSCH_BULK_STORES
#define CLEBSCH_BULK_STORES 0
#endif
#ifndef CLEBSCH_OUTPUT_GROUPS
#define CLEBSCH_OUTPUT_GROUPS kThreeGroups
#endif
constexpr int kGroups = CLEBSCH_OUTPUT_GROUPS;
/// Whether rows of a warp's tile, as they will lie in memory, replace what they are made of in shared memory, and are
/// stored by bulk copies.
constexpr bool kBulk = CLEBSCH_BULK_STORES != 0;
/// Where a lane's vectors of a tile of rows lie, in bytes: columns 8 t .. of row g, and with 64 those that are 32 on;
/// all others are so many bytes on that it does not depend on the lane: columns 64 on, rows 8 on.
__device__ __forceinline__ int row_at(int lane) {
  return 16 * (kBulk ? lane_vector(0, lane / 4, lane % 4) : row_vector<128>(lane / 4, lane % 4));
}
constexpr int kColumnsOn = kBulk ? 2048 : 128, kRowsOn = kBulk ? 1024 : 2048;
__device__ __forceinline__ int vector_of_row(int row_at, int u, int h) {
  return (row_at ^ u % 2 * 64) + kColumnsOn * (u / 2) + kRowsOn * h;
}

extern "C" __global__ void __launch_bounds__(kThreeThreads, 1) output_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 all_memory[];
  uint4* const memory = aligned_memory(all_memory);
  const int warp = warp_of_block();
  const WarpgroupImage<kD, kOut> gates{shared_address(memory)};
  const WarpgroupImage<kHidden, kOut> output{shared_address(memory + kImageIn)};
  // Of a warpgroup: a tile of o; of each warp tiles of x and of the gradient. The latter become a tile of o's gradient.
  char* const of_o = reinterpret_cast<char*>(memory + kImageIn + kImageOut + warp / 4 * 12 * kTile);
  char *const of_x = of_o + (4 + warp % 4) * kTileBytes, *const of_lines = of_o + 8 * kTileBytes,
              *const of_grad = of_lines + warp % 4 * kTileBytes;
  // Halves of the gates' biases, then quarters of those of what is projected.
  float* const biases = reinterpret_cast<float*>(memory + kImageIn + kImageOut + kThreeWarps * 3 * kTile);
  // Of every warp entries of the mask of its tile's rows; and 1 / deviation of these rows of o, which no register is
  // left for.
  char* const masks = reinterpret_cast<char*>(biases + 2 * kOut);
  const auto inverse_at = [&](int h) -> float& {
    const int own = thread_again();
    return biases[2 * kOut + 16 * kThreeWarps + own / 32 * 16 + own / 4 % 8 + 8 * h];
  };
  const unsigned square = static_cast<unsigned>(a.shape.n * a.shape.n);
  const int tiles = static_cast<int>(a.rows / 64), step = static_cast<int>(gridDim.x) * kGroups;
  // First warpgroups of all blocks, then the others: at the end one multiprocessor has as much to do as another.
  int at = static_cast<int>(blockIdx.x) + warp / 4 * static_cast<int>(gridDim.x);
  const auto row_of = [&](int tile) { return static_cast<unsigned>(tile) * 64 + thread_again() / 32 % 4 * 16; };
  // Before the lane's vector of a tile's lines.
  const auto lines_of = [&](int tile) {
    const unsigned row = static_cast<unsigned>(tile) * 64, batch = a.shape.batch == 1 ? 0 : row / square;
    return static_cast<long long>(batch * kHidden + channel_of_lane()) * square + (row - batch * square) +
           lane_again() % 8 * 8;
  };
  // Copies come in three groups a tile, some of them empty: o, mask and x, the gradient.
  const auto fetch_mask = [&](bool there, unsigned row) {
    constexpr int kEntry = CLEBSCH_MASK == 1 ? 1 : 4, kVectors = kGradientRows * kEntry / 16;
    const int own = lane_again();
    if (CLEBSCH_MASK == 0 || !there || own >= kVectors) return;
    copy16(masks + thread_again() / 32 * 64 + 16 * own,
           static_cast<const char*>(a.mask) + static_cast<long long>(row) * kEntry + 16 * own);
  };
  const auto fetch_rows_of = [&](bool there, char* to, const void* tensor, unsigned row) {
    if (kAhead && there) {
      const int own = lane_again();
      const number* from = static_cast<const number*>(tensor) + static_cast<long long>(row) * 128 + 8 * own;
      if (kBulk) {
        const int first = own % 16 / 8 * kColumnsOn + own / 16 * 128 + (own % 8 ^ own / 16) * 16;
#pragma unroll
        for (int q = 0; q < kGradientRows / 2; ++q) copy16(to + (first ^ q % 4 * 32) + 256 * q, from + 256 * q);
      } else {
        to += 16 * row_vector<128>(own / 16, own % 16);
#pragma unroll
        for (int q = 0; q < kGradientRows / 2; ++q) copy16(to + 512 * q, from + 256 * q);
      }
    }
    end_copies();
  };
  const auto fetch_o = [&](bool there, int tile) {
    if (there) {
      const int vector = vector_of_lane();
      const unsigned short* from = static_cast<const unsigned short*>(a.o) + lines_of(tile);
#pragma unroll
      for (int q = 0; q < kHidden / 16; ++q, from += 16 * static_cast<long long>(square)) {
        copy16(of_o + (q % 2 == 0 ? vector : vector ^ kLinesOn) + 4096 * (q / 2), from);
      }
    }
    end_copies();
  };
  // Starts to store the warp's 16 rows of a tile.
  const auto store_rows = [&](void* tensor, int tile, const char* rows) {
    char* to = static_cast<char*>(tensor) + static_cast<long long>(tile) * (16 * kVectorsOfTile) +
               thread_again() / 32 % 4 * 2048;
    const unsigned from = shared_address(rows);
    store_bulk(to, from, 2048);
    store_bulk(to + 8 * kVectorsOfTile, from + kColumnsOn, 2048);
  };
  const int begin = min(at, tiles - 1);
  fetch_o(true, begin);
  fetch_mask(true, row_of(begin));
  fetch_rows_of(true, of_x, a.x, row_of(begin));
  fetch_rows_of(true, of_grad, a.grad, row_of(begin));
  await_kernel_before();  // images and biases
  // Images by each block from another piece of 8 KB on: all read the same at the same time.
#pragma unroll 1
  for (int count = 0; count < 8; ++count) {
    const int piece = (count + static_cast<int>(blockIdx.x)) % 8, first = 512 * piece;
    const uint4* from = piece < 4 ? static_cast<const uint4*>(a.input_image) +
                                        8 * (piece / 2 * (kGradientWidths - kOut) + 4 * kHidden) + first
                                  : static_cast<const uint4*>(a.output_image) + (first - kImageIn);
    for (int vector = threadIdx.x; vector < 512; vector += 128 * kGroups)
      copy16(memory + first + vector, from + vector);
  }
  end_copies();
  for (int at = threadIdx.x; at < 2 * kOut; at += 128 * kGroups) {
    biases[at] = at < kOut ? 0.5f * a.input_bias[4 * kHidden + at] : 0.25f * a.output_bias[at - kOut];
  }
  await_copies<0>();
  fence_copies();
  __syncthreads();
  const float scale = a.grad_scale ? a.grad_scale[0] : 1.0f;
#pragma unroll 1
  for (; at < tiles; at += step) {
    // Of row g, columns 8 t .. of tensors with 128 columns; row g + 8 is kEight numbers on.
    constexpr int kEight = 8 * 128;
    const auto place_again = [&] {
      const int own = lane_again();
      return static_cast<long long>(row_of(at) + own / 4) * 128 + own % 4 * 8;
    };
    const long long stored = static_cast<long long>(at) * kVectorsOfTile;
    const auto vector_again = [&] {
      const int own = thread_again();
      return lane_vector(own / 32 % 4, own / 4 % 8, own % 4);
    };
    const auto stored_at = [&](void* tensor, int own_vector, int u, int h) {
      return static_cast<operand*>(tensor) + 8 * (stored + stored_vector(own_vector, u, h));
    };
    const bool next = at + step < tiles;
    unsigned o[kHidden / 16][4];
    // tanh of half a gate's argument, as halves in the place of x: eight columns 32 u + 8 t on of row g + 8 h.
    const auto open_at = [&](int u, int h) {
      return kBulk ? reinterpret_cast<uint4*>(of_x + vector_of_row(row_at(lane_again()), u, h))
                   : reinterpret_cast<uint4*>(of_x) + 32 * (2 * u + h) + lane_again();
    };
    // Whether a gate or a row of o is not a number. That of gates is a bit that no half from -1 to 1 has, of all of
    // them: which also keeps the compiler from making tanh only where it is needed, with 64 sums until then.
    bool unsound = false;
    unsigned of_gates[2] = {0, 0};
    {
      unsigned x[kD / 16][4];
      await_copies<1>();
      __syncwarp();
      const int read_at = row_at(lane_again()), own_vector = vector_again();
      const auto is_masked = [&](int h) {
        if (CLEBSCH_MASK == 0) return false;
        const int own = thread_again(), entry = own / 4 % 8 + 8 * h;
        const char* const of_mask = masks + own / 32 * 64;
        if (CLEBSCH_MASK == 1) return of_mask[entry] == 0;
        return reinterpret_cast<const float*>(of_mask)[entry] == 0.0f;
      };
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float of_row[kD / 32][8], sum = 0, squares = 0;
#pragma unroll
        for (int u = 0; u < kD / 32; ++u) {
          if (kAhead) {
            load8(reinterpret_cast<const number*>(of_x + vector_of_row(read_at, u, h)), of_row[u]);
          } else {
            load8(static_cast<const number*>(a.x) + place_again() + kEight * h + 32 * u, of_row[u]);
          }
#pragma unroll
          for (int e = 0; e < 8; ++e) sum += of_row[u][e];
        }
        const float mean = of_quad(sum) * (1.0f / kD);
#pragma unroll
        for (int u = 0; u < kD / 32; ++u) {
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            of_row[u][e] -= mean;
            squares += of_row[u][e] * of_row[u][e];
          }
        }
        float of_x_row = rsqrtf(of_quad(squares) * (1.0f / kD) + a.eps);
        const bool none = is_masked(h) && !(of_x_row > 0.0f && mean - mean == 0.0f);
        if (none) of_x_row = 0.0f;
        a.x_inverse[row_of(at) + lane_again() / 4 + 8 * h] =
            of_x_row;  // four lanes the same: a branch would part the warp
#pragma unroll
        for (int u = 0; u < kD / 32; ++u) {
          unsigned pairs[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            pairs[j] = pack2(of_row[u][2 * j] * of_x_row, of_row[u][2 * j + 1] * of_x_row);
            if (none) pairs[j] = 0;
            pair_of(x, u, j, h) = pairs[j];
          }
          *(kBulk ? reinterpret_cast<uint4*>(of_x + vector_of_row(read_at, u, h))
                  : reinterpret_cast<uint4*>(stored_at(a.x_rows, own_vector, u, h))) =
              make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
      }
      if (kBulk) fence_copies();
      __syncwarp();
      if (kBulk && lane_again() == 0) {
        store_rows(a.x_rows, at, of_x);
        end_stores();
      }
      if (kBulk) __syncwarp();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float z[32];
        clear(z);
        begin_products();
        gates.multiply(z, x, 64 * half);
        end_products();
        await_products<0>();
        hold(z);
        if (kBulk && half == 0) {
          await_stores_read();
          __syncwarp();
        }
        const float* of_bias = biases + 64 * half + lane_again() % 4 * 8;
#pragma unroll
        for (int u = 0; u < 2; ++u) {
          unsigned open[2][4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float2 bias = *reinterpret_cast<const float2*>(of_bias + 32 * u + 2 * j);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              const float* of_tile = z + 4 * (4 * u + j) + 2 * h;
              open[h][j] =
                  pack_halves(tanh_near(fmaf(0.5f, of_tile[0], bias.x)), tanh_near(fmaf(0.5f, of_tile[1], bias.y)));
              of_gates[h] |= open[h][j];
            }
          }
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            *open_at(2 * half + u, h) = make_uint4(open[h][0], open[h][1], open[h][2], open[h][3]);
          }
        }
      }
    }
    unsound = __any_sync(0xffffffffu, ((of_gates[0] | of_gates[1]) & 0x40004000u) != 0);
    await_copies<1>();
    meet_warpgroup();
    {
      const unsigned from = shared_address(of_o) + lines_of_lane();
#pragma unroll
      for (int s = 0; s < kHidden / 16; ++s) load_turned_at(o[s], from + 2048 * s);
    }
    meet_warpgroup();  // nobody reads the tile any more
    fetch_o(next, at + step);
    const int own_vector = vector_again();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float mean, inverse;
      if (kBesideO) {
        inverse = center_row(o, h, a.eps_of_o, mean);
      } else {
        inverse = norm_of_row(o, h, a.eps_of_o, mean);
        const float nothing = -mean * inverse;
#pragma unroll
        for (int u = 0; u < kHidden / 32; ++u) {
          float normal[8];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            unsigned& pair = pair_of(o, u, j, h);
            normal[2 * j] = fmaf(low2(pair), inverse, nothing);
            normal[2 * j + 1] = fmaf(high2(pair), inverse, nothing);
            pair = pack2(normal[2 * j], normal[2 * j + 1]);
          }
          store_eight<true>(stored_at(a.o_normal, own_vector, u, h), normal);
        }
      }
      inverse_at(h) = inverse == inverse ? inverse : 0.0f;
      unsound |= !(inverse > 0.0f && mean - mean == 0.0f);
      if (kBesideO) {
        // Lanes of even t store the first term, the others the second; a row's lanes the same.
        const int own = thread_again(), second = own % 2, vector = own / 32 % 4 * 2 + h;
        const float deviation = inverse > 0.0f ? inverse_near(inverse) : 0.0f;
        const unsigned term = pack2(deviation, 0.0f) & 0xffffu;
        const float rest = deviation - low2(term);
        static_cast<unsigned short*>(
            a.o_deviations)[static_cast<long long>(at) * 128 + 64 * second + 8 * (vector ^ second) + own / 4 % 8] =
            static_cast<unsigned short>(second == 0 ? term : pack2(rest, 0.0f));
      }
    }
    unsound = __any_sync(0xffffffffu, unsound);
    unsigned projected[kOut / 16][4];  // its gradient
    await_copies<1>();
    __syncwarp();
    const int read_at = row_at(lane_again());
    int none = 0;  // bit h: what is not 0 of the gradient's row g + 8 h is no number
    const auto read_grad = [&](int u, int h, float(&given)[8]) {
      load8(kAhead ? reinterpret_cast<const number*>(of_grad + vector_of_row(read_at, u, h))
                   : static_cast<const number*>(a.grad) + place_again() + kEight * h + 32 * u,
            given);
      if (kAhead || (none >> h & 1) == 0) return;
#pragma unroll
      for (int e = 0; e < 8; ++e) given[e] = __uint_as_float(given[e] != 0.0f ? 0x7fffffffu : 0u);
    };
    if (unsound) {
      // What is 0 stays 0, whatever it is multiplied by, and all else of such a row is no number: then the gradient is
      // what says so, where it has 16 bits in shared memory, rather than o and the gates.
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        unsigned of_row = of_gates[h] & 0x40004000u;
#pragma unroll
        for (int s = 0; s < kHidden / 16; ++s) of_row |= not_numbers(o[s][h]) | not_numbers(o[s][2 + h]);
        of_row |= __shfl_xor_sync(0xffffffffu, of_row, 1);
        of_row |= __shfl_xor_sync(0xffffffffu, of_row, 2);
        if (of_row == 0) continue;
        none |= 1 << h;
#pragma unroll
        for (int u = 0; u < kOut / 32; ++u) {
          if (!kAhead) break;
          uint4& given = *reinterpret_cast<uint4*>(of_grad + vector_of_row(read_at, u, h));
          given =
              make_uint4(zero_or_none(given.x), zero_or_none(given.y), zero_or_none(given.z), zero_or_none(given.w));
        }
#pragma unroll
        for (int s = 0; s < kHidden / 16; ++s) o[s][h] = o[s][2 + h] = 0;
#pragma unroll
        for (int u = 0; u < kOut / 32; ++u) *open_at(u, h) = make_uint4(0, 0, 0, 0);
      }
      __syncwarp();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[32];
      clear(y);
      begin_products();
      output.multiply(y, o, 64 * half);
      end_products();
      await_products<0>();
      hold(y);
#pragma unroll
      for (int u = 2 * half; u < 2 * half + 2; ++u) {
        const float* of_bias = biases + kOut + 32 * u + lane_again() % 4 * 8;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float given[8], of_y[8], of_z[8];
          read_grad(u, h, given);
          const float inverse = kBesideO ? inverse_at(h) : 1.0f, quarter = 0.25f * inverse, half_of_it = 0.5f * inverse;
          const uint4 all = *open_at(u, h);
          const unsigned open[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            const float of_out = kPrecision == kHalf ? given[e] * scale : given[e];
            const float turned = half_of(open[e / 2], e % 2), own_y = y[4 * (4 * (u % 2) + e / 2) + 2 * h + e % 2];
            const float twice = fmaf(of_out, turned, of_out), wide = twice * fmaf(own_y, quarter, of_bias[e]);
            of_z[e] = fmaf(-wide, turned, wide);
            of_y[e] = twice * half_of_it;
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) pair_of(projected, u, j, h) = pack2(of_y[2 * j], of_y[2 * j + 1]);
          if (kBulk) {
            store_eight<true>(reinterpret_cast<operand*>(of_grad + vector_of_row(read_at, u, h)), of_y);
            store_eight<false>(reinterpret_cast<operand*>(open_at(u, h)), of_z);
          } else {
            const int own_here = vector_again();
            store_eight<true>(stored_at(a.grad_projected, own_here, u, h), of_y);
            store_eight<false>(stored_at(a.grad_gates, own_here, u, h), of_z);
          }
        }
      }
    }
    if (kBulk) fence_copies();
    __syncwarp();
    if (kBulk && lane_again() == 0) {
      store_rows(a.grad_projected, at, of_grad);
      store_rows(a.grad_gates, at, of_x);
      end_stores();
    }
    if (kBulk) __syncwarp();
    fetch_mask(next, row_of(at + step));
    if (!kBulk) fetch_rows_of(next, of_x, a.x, row_of(at + step));
    float grad_o[kHidden / 2];
    clear(grad_o);
    begin_products();
#pragma unroll
    for (int s = 0; s < kOut / 16; ++s) output.multiply_turned(grad_o, projected[s], 16 * s);
    end_products();
    await_products<0>();
    hold(grad_o);
    if (kBulk) {
      await_stores_read();
      __syncwarp();
      fetch_rows_of(next, of_x, a.x, row_of(at + step));
    }
    // The norm's gradient takes the places of the warps' gradients in shared memory, as lines of channels.
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float along = 0;
#pragma unroll
      for (int n = 0; n < kHidden / 8; ++n) {
        const unsigned pair = pair_of(o, n / 4, n % 4, h);
        along += grad_o[4 * n + 2 * h] * low2(pair) + grad_o[4 * n + 2 * h + 1] * high2(pair);
      }
      const float inverse = inverse_at(h);
      along = -of_quad(along) * (1.0f / kHidden) * (kBesideO ? inverse * inverse : 1.0f);
#pragma unroll
      for (int n = 0; n < kHidden / 8; ++n) {
        unsigned& pair = pair_of(o, n / 4, n % 4, h);
        const float low = fmaf(low2(pair), along, grad_o[4 * n + 2 * h]),
                    high = fmaf(high2(pair), along, grad_o[4 * n + 2 * h + 1]);
        pair = kBesideO ? pack2(low, high) : pack2(low * inverse, high * inverse);
      }
    }
    meet_warpgroup();  // nobody reads gradients any more
    store_turned(shared_address(of_lines) + lines_of_lane(), o);
    meet_warpgroup();
    const int vector = vector_of_lane();
    unsigned short* to = static_cast<unsigned short*>(a.grad_o) + lines_of(at);
#pragma unroll
    for (int q = 0; q < kHidden / 16; ++q, to += 16 * static_cast<long long>(square)) {
      *reinterpret_cast<uint4*>(to) =
          *reinterpret_cast<const uint4*>(of_lines + (q % 2 == 0 ? vector : vector ^ kLinesOn) + 4096 * (q / 2));
    }
    meet_warpgroup();
    fetch_rows_of(next, of_grad, a.grad, row_of(at + step));
  }
  await_copies<0>();
  if (kBulk) await_stores();
}
