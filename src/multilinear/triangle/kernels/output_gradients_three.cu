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
constexpr int kTileBytes = 16 * kTile, kColumnTiles = kOut / 8;

/// Of four tiles of eight rows and channels, lane 8 i + r says where channel r of tile i begins.
__device__ __forceinline__ void store_turned(unsigned here, const unsigned (&o)[kHidden / 16][4]) {
  const int lane = lane_again(), i = lane / 8, r = lane % 8;
#pragma unroll
  for (int s = 0; s < kHidden / 16; ++s) {
    const unsigned to = here + 16 * plane_vector(8 * (i / 2) + r, i % 2) + 512 * s;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(o[s][0]),
                 "r"(o[s][1]), "r"(o[s][2]), "r"(o[s][3])
                 : "memory");
  }
}

/// Sums of two columns as halves, which keep a tanh to 2^-12.
__device__ __forceinline__ unsigned pack_halves(float x, float y) { return pack(x, y, Half{}); }
__device__ __forceinline__ float half_of(unsigned pair, int e) {
  return to_real(Half{static_cast<unsigned short>(e == 0 ? pair & 0xffffu : pair >> 16)});
}

// Where a lane's vectors of a tile lie, in bytes; all others are so many bytes on that it does not depend on the lane.
/// Of channels: that of channel lane / 2, and with kSixteenOn of the sixteenth after it.
__device__ __forceinline__ int channel_at(int lane) { return 16 * plane_vector(place_of(lane / 2), lane % 2); }
/// Of rows: columns 8 t .. of row g, and with 64 those that are 32 on.
__device__ __forceinline__ int row_at(int lane) { return 16 * row_vector<128>(lane / 4, lane % 4); }

extern "C" __global__ void __launch_bounds__(kThreeThreads, 1) output_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 all_memory[];
  uint4* const memory = aligned_memory(all_memory);
  const int warp = warp_of_block(), lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const WarpgroupImage<kD, kOut> gates{shared_address(memory)};
  const WarpgroupImage<kHidden, kOut> output{shared_address(memory + kImageIn)};
  char* const of_o = reinterpret_cast<char*>(memory + kImageIn + kImageOut + warp * 3 * kTile);
  char *const of_x = of_o + kTileBytes, *const of_grad = of_x + kTileBytes;
  // Halves of the gates' biases, then those of what is projected.
  float* const biases = reinterpret_cast<float*>(memory + kImageIn + kImageOut + kThreeWarps * 3 * kTile);
  char* const of_mask = reinterpret_cast<char*>(biases + 2 * kOut) + 64 * warp;  // entries of the tile's rows
  const unsigned square = static_cast<unsigned>(a.shape.n * a.shape.n);
  const int tiles = static_cast<int>(a.rows / 64), step = static_cast<int>(gridDim.x) * kThreeGroups;
  int at = static_cast<int>(blockIdx.x) * kThreeGroups + warp / 4;
  const auto row_of = [&](int tile) { return static_cast<unsigned>(tile) * 64 + 16 * (warp % 4); };
  const auto planes_of = [&](int tile) {
    const unsigned row = row_of(tile), batch = a.shape.batch == 1 ? 0 : row / square;
    return static_cast<long long>(batch) * kHidden * square + (row - batch * square);
  };
  // Copies come in three groups a tile, some of them empty: mask and x, o, the gradient.
  const auto fetch_mask = [&](bool there, unsigned row) {
    constexpr int kEntry = CLEBSCH_MASK == 1 ? 1 : 4, kVectors = kGradientRows * kEntry / 16;
    const int own = lane_again();
    if (CLEBSCH_MASK == 0 || !there || own >= kVectors) return;
    copy16(of_mask + 16 * own, static_cast<const char*>(a.mask) + static_cast<long long>(row) * kEntry + 16 * own);
  };
  const auto fetch_rows_of = [&](bool there, char* to, const void* tensor, unsigned row) {
    if (kAhead && there) {
      const int own = lane_again();
      const number* from = static_cast<const number*>(tensor) + static_cast<long long>(row) * 128 + 8 * own;
      to += 16 * row_vector<128>(own / 16, own % 16);
#pragma unroll
      for (int q = 0; q < kGradientRows / 2; ++q) copy16(to + 512 * q, from + 256 * q);
    }
    end_copies();
  };
  const auto fetch_o = [&](bool there, int tile) {
    if (there) {
      const int own = lane_again(), channel = channel_at(own);
      const unsigned short* from = static_cast<const unsigned short*>(a.o) + planes_of(tile) +
                                   static_cast<long long>(own / 2) * square + 8 * (own % 2);
#pragma unroll
      for (int q = 0; q < kHidden / 16; ++q, from += 16 * static_cast<long long>(square)) {
        copy16(of_o + (q % 2 == 0 ? channel : channel ^ kSixteenOn) + 1024 * (q / 2), from);
      }
    }
    end_copies();
  };
  const int begin = min(at, tiles - 1);
  fetch_mask(true, row_of(begin));
  fetch_rows_of(true, of_x, a.x, row_of(begin));
  fetch_o(true, begin);
  fetch_rows_of(true, of_grad, a.grad, row_of(begin));
  await_kernel_before();  // images and biases
  copy_images<kThreeThreads>(memory, a);
  end_copies();
  for (int at = threadIdx.x; at < 2 * kOut; at += kThreeThreads) {
    biases[at] = at < kOut ? 0.5f * a.input_bias[4 * kHidden + at] : a.output_bias[at - kOut];
  }
  await_copies<0>();
  fence_copies();
  __syncthreads();
  const float scale = a.grad_scale ? a.grad_scale[0] : 1.0f;
#pragma unroll 1
  for (; at < tiles; at += step) {
    const unsigned row = row_of(at);
    // Of row g, columns 8 t .. of tensors with 128 columns; row g + 8 is kEight numbers on.
    constexpr int kEight = 8 * 128;
    const long long place = static_cast<long long>(row + g) * 128 + 8 * t;
    const bool next = at + step < tiles;
    unsigned o[kHidden / 16][4], open[kColumnTiles][2];  // of two columns of rows g, g + 8
    float inverse[2];
    // Whether a gate or a row of o is not a number. That of gates is a bit that no half from -1 to 1 has, of all of
    // them: which also keeps the compiler from making tanh only where it is needed, with 64 sums until then.
    bool unsound = false;
    unsigned of_gates = 0;
    {
      unsigned x[kD / 16][4];
      await_copies<2>();
      __syncwarp();
      const int read_at = row_at(lane_again());
      const auto is_masked = [&](int h) {
        if (CLEBSCH_MASK == 0) return false;
        if (CLEBSCH_MASK == 1) return of_mask[lane_again() / 4 + 8 * h] == 0;
        return reinterpret_cast<const float*>(of_mask)[lane_again() / 4 + 8 * h] == 0.0f;
      };
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float of_row[kD / 32][8], sum = 0, squares = 0;
#pragma unroll
        for (int u = 0; u < kD / 32; ++u) {
          if (kAhead) {
            load8(reinterpret_cast<const number*>(of_x + (read_at ^ u % 2 * 64) + 128 * (u / 2) + 2048 * h), of_row[u]);
          } else {
            load8(static_cast<const number*>(a.x) + place + kEight * h + 32 * u, of_row[u]);
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
        a.x_inverse[row + g + 8 * h] = of_x_row;  // four lanes the same: a branch would part the warp
#pragma unroll
        for (int u = 0; u < kD / 32; ++u) {
          unsigned pairs[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            pairs[j] = pack2(of_row[u][2 * j] * of_x_row, of_row[u][2 * j + 1] * of_x_row);
            if (none) pairs[j] = 0;
            pair_of(x, u, j, h) = pairs[j];
          }
          *reinterpret_cast<uint4*>(static_cast<operand*>(a.x_rows) + place + kEight * h + 32 * u) =
              make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
      }
      __syncwarp();
      fetch_mask(next, row + 64 * static_cast<unsigned>(step));
      fetch_rows_of(next, of_x, a.x, row + 64 * static_cast<unsigned>(step));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float z[32];
        clear(z);
        begin_products();
        gates.multiply(z, x, 64 * half);
        end_products();
        await_products<0>();
        hold(z);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const float2 bias = *reinterpret_cast<const float2*>(biases + 64 * half + 32 * (n / 4) + 8 * t + 2 * (n % 4));
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            open[8 * half + n][h] = pack_halves(tanh_near(fmaf(0.5f, z[4 * n + 2 * h], bias.x)),
                                                tanh_near(fmaf(0.5f, z[4 * n + 2 * h + 1], bias.y)));
            of_gates |= open[8 * half + n][h];
          }
        }
      }
    }
    unsound = __any_sync(0xffffffffu, (of_gates & 0x40004000u) != 0);
    await_copies<2>();
    __syncwarp();
    {
      const int own = lane_again();
      const unsigned from = shared_address(of_o + 16 * plane_vector(8 * (own / 16) + own % 8, own / 8 % 2));
#pragma unroll
      for (int s = 0; s < kHidden / 16; ++s) load_turned_at(o[s], from + 512 * s);
    }
    __syncwarp();
    fetch_o(next, at + step);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = 0, squares = 0;
#pragma unroll
      for (int s = 0; s < kHidden / 16; ++s) {
        sum += low2(o[s][h]) + high2(o[s][h]) + low2(o[s][2 + h]) + high2(o[s][2 + h]);
      }
      const float mean = of_quad(sum) * (1.0f / kHidden);
#pragma unroll
      for (int s = 0; s < kHidden / 16; ++s) {
#pragma unroll
        for (int p = h; p < 4; p += 2) {
          const float low = low2(o[s][p]) - mean, high = high2(o[s][p]) - mean;
          squares += low * low + high * high;
        }
      }
      inverse[h] = rsqrtf(of_quad(squares) * (1.0f / kHidden) + a.eps_of_o);
      unsound |= !(inverse[h] > 0.0f && mean - mean == 0.0f);
      const float nothing = -mean * inverse[h];
      operand* to = static_cast<operand*>(a.o_normal) + place + kEight * h;
#pragma unroll
      for (int u = 0; u < kHidden / 32; ++u) {
        float normal[8];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          unsigned& pair = pair_of(o, u, j, h);
          normal[2 * j] = fmaf(low2(pair), inverse[h], nothing);
          normal[2 * j + 1] = fmaf(high2(pair), inverse[h], nothing);
          pair = pack2(normal[2 * j], normal[2 * j + 1]);
        }
        store_eight<true>(to + 32 * u, normal);
      }
    }
    unsound = __any_sync(0xffffffffu, unsound);
    unsigned projected[kOut / 16][4];  // its gradient
    await_copies<2>();
    __syncwarp();
    const int read_at = row_at(lane_again());
    const auto read_grad = [&](int u, int h, float(&given)[8]) {
      load8(kAhead ? reinterpret_cast<const number*>(of_grad + (read_at ^ u % 2 * 64) + 128 * (u / 2) + 2048 * h)
                   : static_cast<const number*>(a.grad) + place + kEight * h + 32 * u,
            given);
    };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[32];
      clear(y);
      begin_products();
      output.multiply(y, o, 64 * half);
      end_products();
      await_products<0>();
      hold(y);
      if (unsound) {  // 0 stays 0, whatever it is multiplied by
#pragma unroll
        for (int u = 2 * half; u < 2 * half + 2; ++u) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float given[8];
            read_grad(u, h, given);
#pragma unroll
            for (int e = 0; e < 8; ++e) {
              if (given[e] != 0.0f) continue;
              y[4 * (4 * (u % 2) + e / 2) + 2 * h + e % 2] = 0.0f;
              open[4 * u + e / 2][h] &= e % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
            }
          }
        }
      }
#pragma unroll
      for (int u = 2 * half; u < 2 * half + 2; ++u) {
        const float* of_bias = biases + kOut + 32 * u + 8 * t;
        __syncwarp();  // what is read from here on is not read before: there are no registers for it
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const long long of_group = place + kEight * h + 32 * u;
          float given[8], of_y[8], of_z[8];
          read_grad(u, h, given);
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            const float of_out = kPrecision == kHalf ? given[e] * scale : given[e];
            const float turned = half_of(open[4 * u + e / 2][h], e % 2);
            of_y[e] = of_out * fmaf(0.5f, turned, 0.5f);
            of_z[e] = of_y[e] * fmaf(-0.5f, turned, 0.5f) * (y[4 * (4 * (u % 2) + e / 2) + 2 * h + e % 2] + of_bias[e]);
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) pair_of(projected, u, j, h) = pack2(of_y[2 * j], of_y[2 * j + 1]);
          store_eight<true>(static_cast<operand*>(a.grad_projected) + of_group, of_y);
          store_eight<false>(static_cast<operand*>(a.grad_gates) + of_group, of_z);
        }
      }
    }
    float grad_o[kHidden / 2];
    clear(grad_o);
    begin_products();
#pragma unroll
    for (int s = 0; s < kOut / 16; ++s) output.multiply_turned(grad_o, projected[s], 16 * s);
    end_products();
    await_products<0>();
    hold(grad_o);
    // The norm's gradient takes the gradient's place in shared memory, as channels.
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = 0, along = 0;
#pragma unroll
      for (int n = 0; n < kHidden / 8; ++n) {
        const unsigned pair = pair_of(o, n / 4, n % 4, h);
        sum += grad_o[4 * n + 2 * h] + grad_o[4 * n + 2 * h + 1];
        along += grad_o[4 * n + 2 * h] * low2(pair) + grad_o[4 * n + 2 * h + 1] * high2(pair);
      }
      sum = -of_quad(sum) * (1.0f / kHidden) * inverse[h];
      along = -of_quad(along) * (1.0f / kHidden) * inverse[h];
#pragma unroll
      for (int n = 0; n < kHidden / 8; ++n) {
        unsigned& pair = pair_of(o, n / 4, n % 4, h);
        pair = pack2(fmaf(grad_o[4 * n + 2 * h], inverse[h], fmaf(low2(pair), along, sum)),
                     fmaf(grad_o[4 * n + 2 * h + 1], inverse[h], fmaf(high2(pair), along, sum)));
      }
    }
    __syncwarp();
    store_turned(shared_address(of_grad), o);
    __syncwarp();
    const int own = lane_again(), channel = channel_at(own);
    unsigned short* to = static_cast<unsigned short*>(a.grad_o) + planes_of(at) +
                         static_cast<long long>(own / 2) * square + 8 * (own % 2);
#pragma unroll
    for (int part = 0; part < kTile / 32; ++part, to += 16 * static_cast<long long>(square)) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(
          of_grad + (part % 2 == 0 ? channel : channel ^ kSixteenOn) + 1024 * (part / 2));
    }
    __syncwarp();
    fetch_rows_of(next, of_grad, a.grad, row + 64 * static_cast<unsigned>(step));
  }
  await_copies<0>();
}
