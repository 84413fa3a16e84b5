// As output_gradients_warpgroups.cu for d, hidden and out of 128. Three warpgroups make gradients of 64 rows each, so
// that what one waits for is behind the others' work; all operands of products lie in shared memory
// (output_gradients_tiles.cuh), which leaves 112 registers enough. A fourth sums what is projected beside normalised
// rows of o, for the gradient of p_out. So neither of both is stored: what is read again are normalised rows of x and
// the gates' gradients.
#include "cuda/kernels/early_start.cuh"
#include "multilinear/triangle/kernels/output_gradients_copies.cuh"

static_assert(kD == 128 && kHidden == 128 && kOut == 128, "shared memory and registers are counted for these widths");

/// Gradients of the tiles `at`, at + step, ...
__device__ __forceinline__ void make_gradients(const MakerCopies& own, int at, int step, int tiles) {
  const GradientArguments& a = own.a;
  const unsigned images = shared_address(own.memory), of_o = shared_address(own.tiles), of_x = of_o + kTileBytes,
                 of_grad = of_x + kTileBytes;
  const WarpgroupImage<kD, kOut> gates{images};
  const WarpgroupImage<kHidden, kOut> output{images + kImageBytes};
  const float* const biases = reinterpret_cast<const float*>(own.memory + kBiasesAt);
  const float scale = a.grad_scale ? a.grad_scale[0] : 1.0f;
  // Eight columns 32 u + 8 t on of rows crossed(g) + 8 h: of x's tile and of the gradient's.
  const auto x_at = [&](int u, int h) {
    return reinterpret_cast<uint4*>(own.tiles + kTileBytes + vector_of_row(crossed_row_of_lane(), u, h));
  };
  const auto grad_at = [&](int u, int h) {
    return reinterpret_cast<uint4*>(own.tiles + 2 * kTileBytes + vector_of_row(crossed_row_of_lane(), u, h));
  };
  const auto read = [&](const uint4* here, const void* tensor, int row, int u, float(&to)[8]) {
    load8(kAhead ? reinterpret_cast<const number*>(here)
                 : static_cast<const number*>(tensor) + static_cast<long long>(own.row_of(at) + row) * 128 + 32 * u +
                       lane_again() % 4 * 8,
          to);
  };
#pragma unroll 1
  for (; at < tiles; at += step) {
    const bool next = at + step < tiles;
    await_copies<2>();
    __syncwarp();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float of_row[kD / 32][8], sum = 0, squares = 0;
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) {
        read(x_at(u, h), a.x, crossed(lane_again() / 4) + 8 * h, u, of_row[u]);
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
      float inverse = rsqrtf(of_quad(squares) * (1.0f / kD) + a.eps);
      const bool none = own.is_masked(h) && !has_norm(mean, inverse);
      if (none) inverse = 0.0f;
      a.x_inverse[own.row_of(at) + crossed(lane_again() / 4) + 8 * h] =
          inverse;  // four lanes the same: a branch would part the warp
#pragma unroll
      for (int u = 0; u < kD / 32; ++u) {
        unsigned pairs[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          pairs[j] = pack2(of_row[u][2 * j] * inverse, of_row[u][2 * j + 1] * inverse);
          if (none) pairs[j] = 0;
        }
        *x_at(u, h) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
    fence_copies();
    meet_makers();
    store_tile(a.x_rows, at, of_x);
    // Bit h: a gate or o of row g + 8 h is not a number. That of gates is a bit that no half from -1 to 1 has, of all
    // of them: which also keeps the compiler from making tanh only where it is needed, with 64 sums until then.
    int none;
    {
      float z[64];
      unsigned of_gates[2] = {0, 0};
      begin_products();
      multiply_tile(z, of_x, gates.straight, 0);
      end_products();
      await_products<0>();
      hold(z);
      await_stores_read();
      meet_makers();  // nobody reads rows of x any more
#pragma unroll
      for (int u = 0; u < kOut / 32; ++u) {
        const float* of_bias = biases + 32 * u + lane_again() % 4 * 8;
        unsigned open[2][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float2 bias = *reinterpret_cast<const float2*>(of_bias + 2 * j);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float* of_tile = z + 4 * (4 * u + j) + 2 * h;
            open[h][j] =
                pack_halves(tanh_near(fmaf(0.5f, of_tile[0], bias.x)), tanh_near(fmaf(0.5f, of_tile[1], bias.y)));
            of_gates[h] |= open[h][j];
          }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) *x_at(u, h) = make_uint4(open[h][0], open[h][1], open[h][2], open[h][3]);
      }
      none = ((of_gates[0] & 0x40004000u) != 0 ? 1 : 0) | ((of_gates[1] & 0x40004000u) != 0 ? 2 : 0);
    }
    await_copies<1>();
    meet_makers();
    {
      unsigned o[kHidden / 16][4];
      const unsigned from = of_o + lines_of_lane();
#pragma unroll
      for (int s = 0; s < kHidden / 16; ++s) load_turned_at(o[s], from + 2048 * s);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float mean;
        const float inverse = norm_of_row(o, h, a.eps_of_o, mean), nothing = -mean * inverse;
        own.inverse_at(h) = inverse;
        if (!(nothing - nothing == 0.0f)) none |= 1 << h;
#pragma unroll
        for (int s = 0; s < kHidden / 16; ++s) {
#pragma unroll
          for (int p = h; p < 4; p += 2) {
            o[s][p] = pack2(fmaf(low2(o[s][p]), inverse, nothing), fmaf(high2(o[s][p]), inverse, nothing));
          }
        }
      }
      meet_makers();  // nobody reads lines any more
      const int to = operand_of_lane();
#pragma unroll
      for (int s = 0; s < kHidden / 16; ++s) store_places_at(of_o + operand_at(to, s), o[s]);
    }
    await_copies<0>();
    __syncwarp();
    if (__any_sync(0xffffffffu, none != 0)) {
      // What is 0 stays 0, whatever it is multiplied by, and all else of such a row is no number: then the gradient is
      // what says so, where it has 16 bits in shared memory, rather than o and the gates.
      none |= __shfl_xor_sync(0xffffffffu, none, 1);
      none |= __shfl_xor_sync(0xffffffffu, none, 2);
#pragma unroll 1
      for (int h = 0; h < 2; ++h) {
        if ((none >> h & 1) == 0) continue;
#pragma unroll
        for (int u = 0; u < kOut / 32; ++u) {
          if (kAhead) {
            uint4& given = *grad_at(u, h);
            given =
                make_uint4(zero_or_none(given.x), zero_or_none(given.y), zero_or_none(given.z), zero_or_none(given.w));
          }
          *reinterpret_cast<uint4*>(own.tiles + vector_of_row(row_of_lane(), u, h)) = make_uint4(0, 0, 0, 0);
          *x_at(u, h) = make_uint4(0, 0, 0, 0);
        }
      }
      __syncwarp();
    }
    fence_copies();
    meet_makers();
    float along[2] = {0.0f, 0.0f};  // sums over a row of what is projected, without biases, times its gradient
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[32];
      begin_products();
      multiply_tile(y, of_o, output.straight, 64 * half);
      end_products();
      await_products<0>();
      hold(y);
#pragma unroll
      for (int u = 2 * half; u < 2 * half + 2; ++u) {
        const float* of_bias = biases + kOut + 32 * u + lane_again() % 4 * 8;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float given[8], of_y[8], of_z[8];
          read(grad_at(u, h), a.grad, lane_again() / 4 + 8 * h, u, given);
          if (!kAhead && (none >> h & 1) != 0) {
#pragma unroll
            for (int e = 0; e < 8; ++e) given[e] = __uint_as_float(given[e] != 0.0f ? 0x7fffffffu : 0u);
          }
          const uint4 all = *x_at(u, h);
          const unsigned open[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            const float of_out = kPrecision == kHalf ? given[e] * scale : given[e];
            const float turned = half_of(open[e / 2], e % 2), own_y = y[4 * (4 * (u % 2) + e / 2) + 2 * h + e % 2];
            const float twice = fmaf(of_out, turned, of_out), wide = twice * fmaf(own_y, 0.25f, of_bias[e]);
            of_z[e] = fmaf(-wide, turned, wide);
            of_y[e] = 0.5f * twice;
            along[h] = fmaf(of_y[e], own_y, along[h]);
          }
          __syncwarp();  // of eight rows and 32 columns all is read
          store_eight<false>(reinterpret_cast<operand*>(own.tiles + kTileBytes + vector_of_row(row_of_lane(), u, h)),
                             of_z);
          unsigned places[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) places[j] = pack2(of_y[2 * j], of_y[2 * j + 1]);
          store_places_at(of_grad + vector_of_row(places_of_lane(), u, h), places);
        }
      }
    }
    fence_copies();
    meet_makers();
    tell_other(kMadePlace + thread_again() / 128);
    store_tile(a.grad_gates, at, of_x);
    float grad_o[kHidden / 2];
    begin_products();
    multiply_tile_turned(grad_o, of_grad, output.turned);
    end_products();
    await_products<0>();
    hold(grad_o);
    await_stores_read();
    await_other(kUsedPlace + thread_again() / 128);  // all of the maker are here, too
    own.fetch_x(next, at + step);
    // The norm's gradient, to lines of channels in the gradient's place.
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      factor[h] = own.inverse_at(h);
      along[h] = -of_quad(along[h]) * (1.0f / kHidden) * factor[h];
    }
    {
      const int from = operand_of_lane();
      const unsigned to = of_grad + lines_of_lane();
#pragma unroll
      for (int s = 0; s < kHidden / 16; ++s) {
        unsigned o[4];
        load_rows_at(o, of_o + operand_at(from, s));
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const int h = p % 2;
          const float* of_tile = grad_o + 4 * (2 * s + p / 2) + 2 * h;
          o[p] = pack2(nearest_finite(fmaf(low2(o[p]), along[h], of_tile[0] * factor[h])),
                       nearest_finite(fmaf(high2(o[p]), along[h], of_tile[1] * factor[h])));
        }
        store_turned_at(to + 2048 * s, o);
      }
    }
    meet_makers();
    own.fetch_o(next, at + step);
    const int vector = vector_of_lane();
    unsigned short* to = static_cast<unsigned short*>(a.grad_o) + own.lines_of(at);
#pragma unroll
    for (int q = 0; q < kHidden / 16; ++q, to += own.sixteen_channels()) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(
          own.tiles + 2 * kTileBytes + (q % 2 == 0 ? vector : vector ^ kLinesOn) + 4096 * (q / 2));
    }
    meet_makers();
    own.fetch_gradient(next, at + step);
  }
  await_copies<0>();
  await_stores();
}

/// Sums of what makers have made of the tiles `at`, at + step, ..., which they take in turn: 64 columns of out each.
__device__ __forceinline__ void sum_projected(const GradientArguments& a, char* memory, int at, int step, int tiles) {
  float low_sums[64], high_sums[64], low_ones[4], high_ones[4];
  clear(low_sums);
  clear(high_sums);
  clear(low_ones);
  clear(high_ones);
  const unsigned here = shared_address(memory);
  int maker = 0;
#pragma unroll 1
  for (; at < tiles; at += step) {
    const unsigned of_o = here + kMakersAt + maker * kMakerBytes, of_grad = of_o + 2 * kTileBytes;
    const unsigned long long ones = matrix_at(here + kOnesAt, 16);
    await_other(kMadePlace + maker);
    begin_products();
#pragma unroll
    for (int s = 0; s < kRows / 16; ++s) {
      const unsigned long long low = matrix_at(of_grad + 2048 * s, 16),
                               high = matrix_at(of_grad + kTileBlock + 2048 * s, 16),
                               rows = matrix_at(of_o + 2048 * s, kTileBlock);
      multiply_group<1>(low_sums, low, rows, 1);
      multiply_group<1>(high_sums, high, rows, 1);
      multiply_narrow(low_ones, low, ones);
      multiply_narrow(high_ones, high, ones);
    }
    end_products();
    await_products<0>();
    hold(low_sums);
    hold(high_sums);
    hold(low_ones);
    hold(high_ones);
    tell_other(kUsedPlace + maker);
    if (++maker == kMakers) maker = 0;
  }
  // Places to columns, neighbours in each other's place (fold_gradients.cu). Lanes have pieces of 16 bytes, which
  // written to memory would be half of what the L2 cache takes at once: so half of the rows come together where g_out's
  // image was, by which nobody multiplies any more.
  float* const to = a.output_parts + static_cast<long long>(blockIdx.x) * kOut * kHidden;
  const int warp = threadIdx.x % 128 / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float(&sums)[64] = half == 0 ? low_sums : high_sums;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = column_of(16 * warp + 8 * h + g);
      float* const of_row = reinterpret_cast<float*>(memory) + (row ^ 1) * kHidden + 8 * t;
#pragma unroll
      for (int n = 0; n < kHidden / 8; n += 2) {
        *reinterpret_cast<float4*>(of_row + 32 * (n / 4) + 2 * (n % 4)) =
            make_float4(sums[4 * n + 2 * h + 1], sums[4 * n + 2 * h], sums[4 * n + 2 * h + 5], sums[4 * n + 2 * h + 4]);
      }
      if (t == 0) {
        a.projected_slots[blockIdx.x * 2 * kOut + 64 * half + row] = (half == 0 ? low_ones : high_ones)[2 * h];
      }
    }
    fence_copies();
    meet(kOwnPlace + kMakers);
    if (threadIdx.x % 128 == 0) {
      store_bulk(to + half * 64 * kHidden, here, 64 * kHidden * 4);
      end_stores();
      await_stores_read();
    }
    meet(kOwnPlace + kMakers);
  }
  if (threadIdx.x % 128 == 0) await_stores();
}

extern "C" __global__ void __launch_bounds__(kOutputThreads, 1) output_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 all_memory[];
  char* const memory = reinterpret_cast<char*>(aligned_memory(all_memory));
  const int warpgroup = warpgroup_of_block();
  const int tiles = static_cast<int>(a.rows / 64), blocks = static_cast<int>(gridDim.x);
  // First makers of all blocks, then the others: at the end one multiprocessor has as much to do as another.
  const int at = static_cast<int>(blockIdx.x) + warpgroup * blocks;
  const MakerCopies own{a, memory, memory + kMakersAt + warpgroup * kMakerBytes};
  if (warpgroup < kMakers) {
    own.fetch_x(at < tiles, at);
    own.fetch_o(at < tiles, at);
    own.fetch_gradient(at < tiles, at);
  }
  await_kernel_before();  // images and biases
  // Each block from another piece of an image on: all read the same at the same time. Rows of x have columns in order,
  // those of the image are in the order of their places: a vector of eight comes from four of the image.
  const unsigned* from = static_cast<const unsigned*>(a.input_image) + 4 * 8 * 4 * kHidden;
#pragma unroll
  for (int k = 0; k < kImageBytes / 16 / kOutputThreads; ++k) {
    const int vector = (k * kOutputThreads + threadIdx.x + 256 * blockIdx.x) % (kImageBytes / 16);
    copy16(memory + kImageBytes + 16 * vector, static_cast<const char*>(a.output_image) + 16 * vector);
  }
  end_copies();
#pragma unroll
  for (int k = 0; k < kImageBytes / 4 / kOutputThreads; ++k) {
    const int word = (k * kOutputThreads + threadIdx.x + 1024 * blockIdx.x) % (kImageBytes / 4), j = word % 4,
              chunk = word / 4 % 8, row = word / 32 % kOut, half = word / (32 * kOut);
    reinterpret_cast<unsigned*>(memory)[(half * 8 * kOut + row * 8 + (chunk ^ row % 8)) * 4 + j] =
        from[4 * ((half * kGradientWidths + row) * 8 + ((chunk / 4 * 4 + j) ^ row % 8)) + chunk % 4];
  }
  for (int column = threadIdx.x; column < 2 * kOut; column += kOutputThreads) {
    reinterpret_cast<float*>(memory + kBiasesAt)[column] =
        column < kOut ? 0.5f * a.input_bias[4 * kHidden + column] : 0.25f * a.output_bias[column - kOut];
  }
  const unsigned ones = pack2(1.0f, 1.0f);
  if (threadIdx.x < 64) reinterpret_cast<uint4*>(memory + kOnesAt)[threadIdx.x] = make_uint4(ones, ones, ones, ones);
  await_copies<0>();
  fence_copies();
  __syncthreads();
  if (warpgroup < kMakers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kMakerRegisters));
    make_gradients(own, at, kMakers * blocks, tiles);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kSummerRegisters));
    sum_projected(a, memory, static_cast<int>(blockIdx.x), blocks, tiles);
  }
}
