// From the gradient of out to those of o, of what is projected and of the gates, 16 rows a warp. gradients.cuh says
// how.
#include "multilinear/triangle/kernels/gradients.cuh"

constexpr int kImageIn = kOut * kD / 8, kImageOut = kOut * kHidden / 8, kPlanes = 2 * kHidden;  // vectors

/// Dynamic shared memory: the image of g_out, that of p_out, a tile of o and the next for every warp, sums (warps, 2
/// out).
extern "C" __global__ void __launch_bounds__(kGradientThreads, 1) output_gradients(GradientArguments a) {
  extern __shared__ __align__(16) uint4 memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Image<kD> gates(memory);
  const Image<kHidden> output(memory + kImageIn);
  uint4* planes = memory + kImageIn + kImageOut + warp * 2 * kPlanes;
  float* all_sums = reinterpret_cast<float*>(memory + kImageIn + kImageOut + kGradientWarps * 2 * kPlanes);
  float* sums = all_sums + warp * 2 * kOut;
  const uint4* from = static_cast<const uint4*>(a.input_image) + 4 * kHidden * kD / 8;
  for (int at = threadIdx.x; at < kImageIn; at += kGradientThreads) copy16(memory + at, from + at);
  from = static_cast<const uint4*>(a.output_image);
  for (int at = threadIdx.x; at < kImageOut; at += kGradientThreads) copy16(memory + kImageIn + at, from + at);
  for (int at = lane; at < 2 * kOut; at += 32) sums[at] = 0;
  const long long tiles = a.rows / kGradientRows, step = static_cast<long long>(gridDim.x) * kGradientWarps;
  long long at = static_cast<long long>(blockIdx.x) * kGradientWarps + warp;
  const long long square = a.shape.n * a.shape.n;
  const auto fetch = [&](uint4* to, long long index) {
    if (index < tiles) {
      const unsigned short* o = static_cast<const unsigned short*>(a.o) + GradientTile(a, index).planes;
#pragma unroll
      for (int group = 0; group < kHidden / 32; ++group) {
        fetch_planes(to + 64 * group, o + 32 * group * square, square);
      }
    }
    end_copies();
  };
  fetch(planes, at);
  await_copies<0>();
  __syncthreads();
  const float scale = a.grad_scale ? a.grad_scale[0] : 1.0f;
  const float* gate_bias = a.input_bias + 4 * kHidden;
  for (int turn = 0; at < tiles; at += step, turn ^= 1) {
    const GradientTile tile(a, at);
    uint4* here = planes + turn * kPlanes;
    fetch(planes + (turn ^ 1) * kPlanes, at + step);
    float mask[2], inverse_x[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) mask[h] = mask_at(a.mask, tile.row + g + 8 * h);
    unsigned x[kD / 16][4], o[kHidden / 16][4];
    load_x(x, inverse_x, a, tile.row, mask, nullptr);
    await_copies<1>();
    __syncwarp();
    float inverse[2];
    {
      const int i = lane / 8, r = lane % 8;
#pragma unroll
      for (int s = 0; s < kHidden / 16; ++s) {
        load_turned(o[s],
                    reinterpret_cast<const unsigned short*>(here + plane_vector(16 * s + 8 * (i / 2) + r, i % 2)));
      }
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
        operand* to = static_cast<operand*>(a.o_normal) + (tile.row - a.first_row + g + 8 * h) * kHidden + 8 * t;
#pragma unroll
        for (int u = 0; u < kHidden / 32; ++u) {
          float normal[8];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            unsigned& pair = pair_of(o, u, j, h);
            normal[2 * j] = (low2(pair) - mean) * inverse[h];
            normal[2 * j + 1] = (high2(pair) - mean) * inverse[h];
            pair = pack2(normal[2 * j], normal[2 * j + 1]);
          }
          store_eight<true>(to + 32 * u, normal);
        }
      }
    }
    const long long row = tile.row - a.first_row + g;
    float grad_o[kHidden / 8][4] = {};
#pragma unroll 1
    for (int group = 0; group < kOut / 32; ++group) {
      float z[4][4], y[4][4], grad[2][8];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        load8(static_cast<const number*>(a.grad) + (tile.row + g + 8 * h) * kOut + 32 * group + 8 * t, grad[h]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = 32 * group + 8 * t + 2 * j;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          z[j][r] = __ldg(gate_bias + column + r % 2);
          y[j][r] = __ldg(a.output_bias + column + r % 2);
        }
      }
      gates.multiply(z, x, 32 * group);
      output.multiply(y, o, 32 * group);
      unsigned projected[2][4];
      float y_sums[8], z_sums[8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float of_out = grad[r / 2][2 * j + r % 2] * scale, open = sigmoid_near(z[j][r]);
          // 0 stays 0, whatever it is multiplied by.
          z[j][r] = of_out == 0.0f ? 0.0f : of_out * y[j][r] * open * (1.0f - open);
          y[j][r] = of_out == 0.0f ? 0.0f : of_out * open;
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          y_sums[2 * j + e] = y[j][e] + y[j][2 + e];
          z_sums[2 * j + e] = z[j][e] + z[j][2 + e];
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) pair_of(projected, 0, j, h) = pack2(y[j][2 * h], y[j][2 * h + 1]);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int column = 32 * group + 8 * t;
        store_columns<true>(static_cast<operand*>(a.grad_projected) + (row + 8 * h) * kOut + column, y, h);
        store_columns<false>(static_cast<operand*>(a.grad_gates) + (tile.row + g + 8 * h) * kOut + column, z, h);
      }
      const int column = 32 * group + 8 * t + place_in_eight();
      sums[column] += sum_of_rows(y_sums);
      sums[kOut + column] += sum_of_rows(z_sums);
      output.multiply_turned(grad_o, projected[0], 32 * group);
      output.multiply_turned(grad_o, projected[1], 32 * group + 16);
    }
    // The norm's gradient; then it takes o's place in shared memory, to be written by channel.
    __syncwarp();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = 0, along = 0;
#pragma unroll
      for (int n = 0; n < kHidden / 8; ++n) {
        const unsigned pair = pair_of(o, n / 4, n % 4, h);
        sum += grad_o[n][2 * h] + grad_o[n][2 * h + 1];
        along += grad_o[n][2 * h] * low2(pair) + grad_o[n][2 * h + 1] * high2(pair);
      }
      sum = of_quad(sum) * (1.0f / kHidden);
      along = of_quad(along) * (1.0f / kHidden);
#pragma unroll
      for (int n = 0; n < kHidden / 8; ++n) {
        const unsigned pair = pair_of(o, n / 4, n % 4, h);
        const unsigned both = pack2((grad_o[n][2 * h] - sum - low2(pair) * along) * inverse[h],
                                    (grad_o[n][2 * h + 1] - sum - high2(pair) * along) * inverse[h]);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          reinterpret_cast<unsigned short*>(here + plane_vector(8 * n + 2 * t + e, h))[g] =
              static_cast<unsigned short>(both >> 16 * e);
        }
      }
    }
    __syncwarp();
    unsigned short* to = static_cast<unsigned short*>(a.grad_o) + tile.planes;
#pragma unroll 4
    for (int part = lane; part < kPlanes; part += 32) {
      const int channel = part / 2, chunk = part % 2;
      *reinterpret_cast<uint4*>(to + channel * square + 8 * chunk) = here[plane_vector(place_of(channel), chunk)];
    }
    __syncwarp();
  }
  await_copies<0>();
  write_slot<2 * kOut>(a.output_slots, all_sums, a.first);
}
