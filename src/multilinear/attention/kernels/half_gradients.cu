// Gradients of 16-bit queries and keys on tensor cores, once the sums are there as two 16-bit terms each. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are multiples of 32 up to 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/half_coefficients.cuh"
#include "multilinear/attention/kernels/half_fragments.cuh"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv, kTiles = kAll / 8;
/// Row tiles of a warp: as many as registers hold.
constexpr int kHigh = kAll <= 96 ? 2 : 1, kRows = 16 * kHigh, kBlockRows = kRowWarps * kRows;
constexpr int kVectorsD = 4 * (kD / 16) * 32, kVectorsDv = 4 * (kDv / 16) * 32;
constexpr int kSlot = kVectorsD > kVectorsDv ? kVectorsD : kVectorsDv;

/// Fragments of M^T, then (grid of twice the size) of G, from sums in double precision. Grid: key heads x tiles.
extern "C" __global__ void __launch_bounds__(256) half_split(HalfGradients a) {
  constexpr int kMost = kD > kDv ? kD : kDv;
  __shared__ float terms[kMost * 8], largest[8];
  const int heads = a.shape.sequences * a.shape.key_heads, turned = heads * (kD / 8);
  const bool of_values = blockIdx.x < turned;
  const int place = of_values ? blockIdx.x : blockIdx.x - turned, head = place / (kD / 8), tile = place % (kD / 8);
  const int inner = of_values ? kDv : kD;
  if (!of_values && tile == 0 && threadIdx.x == 0) {
    for (int i = 0; i < 3; ++i) a.largest[3 * head + i] = 0;
    a.head_flags[head] = 0;
    if (a.readers) a.readers[2 * head] = a.readers[2 * head + 1] = 0;
  }
  const double* sums = a.sums + static_cast<long long>(head) * kD * kAll;
  float most = 0.0f;
  for (int at = threadIdx.x; at < inner * 8; at += 256) {
    const int row = at / 8, column = column_of(tile, at % 8);
    terms[at] = static_cast<float>(sums[column * kAll + row + (of_values ? kD : 0)]);
    most = fmaxf(most, fabsf(terms[at]));
  }
  most = largest_of(most, largest);
  if (of_values) {
    const long long to = static_cast<long long>(head) * (kD / 8) + tile;
    if (a.wide) {
      write_wide_fragments<kDv, kD / 8>(reinterpret_cast<uint4*>(static_cast<char*>(a.turned_fragments) +
                                                                 head * (a.term_step ? a.term_step : 4ll * kD * kDv)),
                                        a.turned_scales + to, terms, most, tile);
      return;
    }
    write_fragments<kDv>(static_cast<uint4*>(a.turned_fragments) + to * (kDv / 16) * 32, a.turned_scales + to, terms,
                         most);
  } else {
    const long long to = static_cast<long long>(head) * kTiles + tile;
    if (a.wide) {
      write_wide_fragments<kD, kD / 8>(
          static_cast<uint4*>(const_cast<void*>(a.fragments)) + static_cast<long long>(head) * kD * kAll / 4,
          const_cast<float*>(a.scales) + to, terms, most, tile);
      return;
    }
    write_fragments<kD>(static_cast<uint4*>(const_cast<void*>(a.fragments)) + to * (kD / 16) * 32,
                        const_cast<float*>(a.scales) + to, terms, most);
  }
}

/// c1, c2, their heads' largest numbers, and heads that need double precision. Grid: sequences x heads x parts.
extern "C" __global__ void __launch_bounds__(256) half_coefficients(HalfGradients a) {
  __shared__ float of_warps[8];
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  const int head = place % a.shape.heads, sequence = place / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  const double* sums = a.sums + static_cast<long long>(key_head) * kD * kAll;
  float trace = 0.0f;
  for (int i = threadIdx.x % 4; i < kD; i += 4) trace += static_cast<float>(__ldg(sums + i * kAll + i));
  bool flagged = false;
  const KeyWeights weights(a.multiplicity, multiplicity_row(a.shape, sequence));
  const long long keys = a.multiplicity ? key_rows(a.shape, sequence, 0).count : 0;
  for (long long key = 256ll * part + threadIdx.x; key < keys; key += 256ll * a.parts) weights.keeps(key, flagged);
  coefficients_of_rows(a, query_rows(a.shape, sequence, head), of_quad(trace), part, a.parts, key_head, flagged,
                       of_warps);
}

/// first = x A and y B, combined; for keys then second = x C. A and C are `fragments`, B is turned.
template <bool kOfKeys>
__device__ __forceinline__ void gradients(const HalfGradients& a, const void* x_tensor, const void* y_tensor, Rows all,
                                          int key_head, int part_of_head) {
  __shared__ __align__(16) uint4 ring[2 * kSlot];
  const KeyWeights weights(kOfKeys ? a.multiplicity : nullptr, multiplicity_row(a.shape, key_head / a.shape.key_heads));
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const long long where = key_head;
  const uint4* fragments = static_cast<const uint4*>(a.fragments) + where * kTiles * (kD / 16) * 32;
  const uint4* turned = static_cast<const uint4*>(a.turned_fragments) + where * (kD / 8) * (kDv / 16) * 32;
  const float *scales = a.scales + where * kTiles, *turned_scales = a.turned_scales + where * (kD / 8);
  for (long long block = static_cast<long long>(part_of_head) * kBlockRows; block < all.count;
       block += static_cast<long long>(a.parts) * kBlockRows) {
    long long rows[kHigh][2];
    bool there[kHigh][2];
    float of_x[kHigh][2], of_y[kHigh][2];
#pragma unroll
    for (int i = 0; i < kHigh; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const long long at = block + warp * kRows + 16 * i + 8 * h + g;
        there[i][h] = at < all.count;
        rows[i][h] = all.first + (there[i][h] ? at : 0);
        of_x[i][h] = of_y[i][h] = 1.0f;
        if (kOfKeys && weights.of_row) of_x[i][h] = unpack(__ldg(weights.of_row + (there[i][h] ? at : 0)));
        if (!kOfKeys) {
          const float2 c = *reinterpret_cast<const float2*>(a.coefficients + rows[i][h] * a.coefficient_step);
          of_y[i][h] = c.x;
          of_x[i][h] = c.y;
        }
      }
    }
    __syncthreads();
    fetch_tiles<kD>(ring, fragments);
    HalfRows<kD, kHigh> x;
    HalfRows<kDv, kHigh> y;
    x.load(x_tensor, rows, t);
    y.load(y_tensor, rows, t);
    float sums[kHigh][4], of_weight[kHigh][2] = {};
#pragma unroll 1
    for (int c = 0; c < kD / 32; ++c) {
      float of_form[4][kHigh][4];
      unsigned pairs[kHigh][2][4];
      await_tiles();
      fetch_tiles<kDv>(ring + kSlot, turned + c * kVectorsDv);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        x.multiply(of_form[part], ring + part * (kD / 16) * 32 + lane);
        const float scale = __ldg(scales + 4 * c + part);
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
#pragma unroll
          for (int r = 0; r < 4; ++r) of_form[part][i][r] *= scale * of_x[i][r / 2];
        }
      }
      await_tiles();
      if (kOfKeys || c + 1 < kD / 32) fetch_tiles<kD>(ring, fragments + (c + 1) * kVectorsD);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        y.multiply(sums, ring + kSlot + part * (kDv / 16) * 32 + lane);
        const float scale = __ldg(turned_scales + 4 * c + part);
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float by = scale * of_y[i][h], weight = kOfKeys ? of_x[i][h] : 1.0f;
            const float left = of_form[part][i][2 * h] + by * sums[i][2 * h];
            const float right = of_form[part][i][2 * h + 1] + by * sums[i][2 * h + 1];
            if (kOfKeys && weights.of_row) {
              const unsigned key =
                  __ldg(reinterpret_cast<const unsigned*>(x_tensor) + rows[i][h] * (kD / 2) + 16 * c + 4 * t + part);
              of_weight[i][h] += low_of(key) * left + high_of(key) * right;
            }
            pairs[i][h][part] = pack(weight * left, weight * right);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (there[i][h]) store_vector(kOfKeys ? a.grad_k : a.grad_q, rows[i][h], kD, 4 * c + t, pairs[i][h]);
        }
      }
    }
    if (kOfKeys && weights.of_row) {
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float sum = of_quad(of_weight[i][h]);
          if (t == 0 && there[i][h]) a.grad_multiplicity[rows[i][h]] = sum;
        }
      }
    }
#pragma unroll 1
    for (int c = 0; kOfKeys && c < kDv / 32; ++c) {  // values have gradients, queries have one kind
      unsigned pairs[kHigh][2][4];
      await_tiles();
      if (c + 1 < kDv / 32) fetch_tiles<kD>(ring + (c + 1) % 2 * kSlot, fragments + (kD / 32 + c + 1) * kVectorsD);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        x.multiply(sums, ring + c % 2 * kSlot + part * (kD / 16) * 32 + lane);
        const float scale = __ldg(scales + kD / 8 + 4 * c + part);
#pragma unroll
        for (int i = 0; i < kHigh; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float by = scale * of_x[i][h];
            pairs[i][h][part] = pack(by * sums[i][2 * h], by * sums[i][2 * h + 1]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kHigh; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (there[i][h]) store_vector(a.grad_v, rows[i][h], kDv, 4 * c + t, pairs[i][h]);
        }
      }
    }
  }
}

/// dq = c1 grad M^T + c2 q G. Grid: sequences x heads x parts.
extern "C" __global__ void __launch_bounds__(kRowThreads, 2) half_query_gradients(HalfGradients a) {
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  const int head = place % a.shape.heads, sequence = place / a.shape.heads;
  const int key_head = sequence * a.shape.key_heads + head / (a.shape.heads / a.shape.key_heads);
  gradients<false>(a, a.q, a.grad, query_rows(a.shape, sequence, head), key_head, part);
}

/// dk = v dM^T + k (dG + dG^T), dv = k dM. Grid: sequences x key heads x parts.
extern "C" __global__ void __launch_bounds__(kRowThreads, 2) half_key_gradients(HalfGradients a) {
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  gradients<true>(a, a.k, a.v, key_rows(a.shape, place / a.shape.key_heads, place % a.shape.key_heads), place, part);
}
