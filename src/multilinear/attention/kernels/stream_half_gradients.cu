// Gradients of streamed attention of 16-bit numbers on tensor cores (mma.sync). Weights and gradients of scores are
// made again; queries' gradients and keys' are two kernels, so that each has its sums to itself.
#include "cuda/kernels/warp.cuh"
#include "multilinear/attention/kernels/stream_half.cuh"

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr bool kSmall = kD + kDv <= 128;
/// Rows that pass by at once, and tiles of eight of them whose products a warp has at once.
constexpr int kOthers = kSmall ? 64 : 32, kStepTiles = kSmall ? 4 : 2;
constexpr int kStage = kOthers * (kStrideD + kStrideDv);
constexpr int kQueries = 16 * kWarps, kKeys = 16 * kWarps;
/// Bytes from a row of a tile of a mask of bytes to the next, so that lanes of a quad read other banks.
constexpr int kMaskStride = kKeys + 16;
/// Weights of unit norm and softmax's are at most one; so much larger they are far from both ends of a half.
constexpr float kWeightScale = 16384.0f;

__device__ __forceinline__ float largest_mask(const StreamArguments& a) {
  return kMask == kNumberMask ? __ldg(a.largest) : 1.0f;
}

/// half_rows: PairRow, its factor, and the bound of the gradients of its scores; and the largest of the bounds with the
/// factor for every key head. A warp a row; grid: rows.
extern "C" __global__ void __launch_bounds__(kThreads) stream_half_rows(StreamArguments a) {
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  const int head = place % a.shape.heads, sequence = place / a.shape.heads;
  const int key_head = head / (a.shape.heads / a.shape.key_heads), lane = threadIdx.x % 32;
  const Rows queries = query_rows(a.shape, sequence, head);
  const float values = bound_of(a, sequence, key_head, 1);
  float largest = 0.0f;
  for (long long i = static_cast<long long>(part) * kWarps + threadIdx.x / 32; i < queries.count;
       i += static_cast<long long>(a.parts) * kWarps) {
    const long long row = queries.first + i;
    float sum = 0.0f, most = 0.0f;
    for (int c = 2 * lane; c < kDv; c += 64) {
      const unsigned grad =
          __ldg(reinterpret_cast<const unsigned*>(static_cast<const unsigned short*>(a.grad) + row * kDv + c));
      const unsigned out =
          __ldg(reinterpret_cast<const unsigned*>(static_cast<const unsigned short*>(a.out) + row * kDv + c));
      sum += low_of(grad) * low_of(out) + high_of(grad) * high_of(out);
      most = fmaxf(most, largest_of_pair(grad));
    }
    sum = warp_sum(sum);
    for (int bits = 16; bits > 0; bits /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bits));
    const float norm = __ldg(static_cast<const float*>(a.norm) + row);
    const float of_norm = a.grad_norm ? __ldg(static_cast<const float*>(a.grad_norm) + row) : 0.0f;
    const PairRow<float> found = PairRow<float>::of(kNorm, norm, of_norm, sum);
    const float factor = row_factor(kNorm, found);
    const float bound = (kDv * most * values + fabsf(found.b)) * largest_mask(a);
    largest = fmaxf(largest, fabsf(factor) * bound);
    if (lane == 0) {
      reinterpret_cast<float4*>(a.half_rows)[row] = make_float4(found.c, found.b, factor, bound);
    }
  }
  if (lane == 0) {
    atomicMax(a.bounds + 4 * (sequence * a.shape.key_heads + key_head) + 3, __float_as_uint(largest));
  }
}

/// f of PairGradients.
__device__ __forceinline__ float weight_of(const StreamArguments& a, float c, float product, float bias) {
  const float x = static_cast<float>(a.scale) * product + bias;
  return kNorm == kSoftmax ? expf(x - c) : x;
}

/// dq. Grid: sequences x heads x parts; a block takes every `parts`-th tile of its head's queries.
extern "C" __global__ void __launch_bounds__(kThreads, 2) stream_half_query_gradients(StreamArguments a) {
  __shared__ __align__(16) unsigned short ring[2 * kStage];
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts;
  const int head = place % a.shape.heads, sequence = place / a.shape.heads;
  const int key_head = head / (a.shape.heads / a.shape.key_heads);
  const Rows queries = query_rows(a.shape, sequence, head), keys = key_rows(a.shape, sequence, key_head);
  const HeadPairs pairs(a, sequence, head);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const unsigned short* k = static_cast<const unsigned short*>(a.k) + keys.first * kD;
  const unsigned short* v = static_cast<const unsigned short*>(a.v) + keys.first * kDv;
  const int tiles = static_cast<int>((keys.count + kOthers - 1) / kOthers);
  const auto fetch = [&](int tile) {
    unsigned short* stage = ring + tile % 2 * kStage;
    if (tile < tiles) {
      copy_rows<kOthers, kD, kThreads>(stage, k, static_cast<long long>(tile) * kOthers, keys.count);
      copy_rows<kOthers, kDv, kThreads>(stage + kOthers * kStrideD, v, static_cast<long long>(tile) * kOthers,
                                        keys.count);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (long long from = static_cast<long long>(part) * kQueries; from < queries.count;
       from += static_cast<long long>(a.parts) * kQueries) {
    __syncthreads();
    fetch(0);
    const int own_row = static_cast<int>(from) + 16 * warp + g, rows = static_cast<int>(queries.count);
    OwnRows<kD> q[1];
    OwnRows<kDv> grad[1];
    q[0].load(a.q, queries.first + own_row, own_row < rows, own_row + 8 < rows, t);
    grad[0].load(a.grad, queries.first + own_row, own_row < rows, own_row + 8 < rows, t);
    float4 of_row[2];
    float up[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = own_row + 8 * h;
      of_row[h] = row < rows ? __ldg(reinterpret_cast<const float4*>(a.half_rows) + queries.first + row)
                             : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      int most = above(of_row[h].w);
      if (kMultiplicity) most += max(above(bound_of(a, sequence, key_head, 2)), 0);
      up[h] = two_to(min(max(15 - most, -100), 100));
    }
    float sums[1][kD / 8][4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();
      fetch(tile + 1);
      const unsigned short* keys_here = ring + tile % 2 * kStage;
      const unsigned short* values = keys_here + kOthers * kStrideD;
#pragma unroll
      for (int step = 0; step < kOthers; step += 32) {
        const long long j = static_cast<long long>(tile) * kOthers + step + 8 * t;
        EightPairs of_rows[2];
        Eight multiplicities;
        if (kMultiplicity) multiplicities = eight_multiplicities(a, pairs, j, keys.count);
#pragma unroll
        for (int h = 0; h < 2; ++h) of_rows[h].read(a, pairs, min(own_row + 8 * h, rows - 1), j, keys.count);
#pragma unroll
        for (int n = 0; n < 4; n += kStepTiles) {
          float x[1][kStepTiles][4], of_values[1][kStepTiles][4];
          inner_products<kD>(x, q, keys_here + (step + 8 * n) * kStrideD);
          inner_products<kDv>(of_values, grad, values + (step + 8 * n) * kStrideDv);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const PairRow<float> row{of_row[h].x, of_row[h].y};
#pragma unroll
            for (int at = 0; at < 2 * kStepTiles; ++at) {
              const int e = 2 * n + at;
              float& mine = x[0][at / 2][2 * h + at % 2];
              const float m = kMultiplicity ? multiplicities.at(e) : 1.0f;
              const float f =
                  weight_of(a, row.c, kMultiplicity ? m * mine : mine, kBias ? of_rows[h].bias.at(e) : 0.0f);
              mine =
                  PairGradients<float>::of(kNorm, row, f, of_rows[h].mask_of(e), of_values[0][at / 2][2 * h + at % 2])
                      .dx *
                  (kMultiplicity ? up[h] * m : up[h]);
            }
          }
#pragma unroll
          for (int half = 0; half < kStepTiles; half += 2) {
            unsigned weights[1][4];
            as_operand(weights[0], x[0][half], x[0][half + 1]);
            add_product<kD>(sums, weights, keys_here + (step + 8 * (n + half)) * kStrideD);
          }
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = own_row + 8 * h;
      if (row >= rows) continue;
      const float by = static_cast<float>(a.scale) * of_row[h].z, down = 1.0f / up[h];
      unsigned* to =
          reinterpret_cast<unsigned*>(static_cast<unsigned short*>(a.grad_q) + (queries.first + row) * kD) + t;
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        to[4 * n] = pack(sums[0][n][2 * h] * down * by, sums[0][n][2 * h + 1] * down * by);
      }
    }
  }
}

/// dk, dv and dm. Grid: sequences x key heads x parts; a block takes every `parts`-th tile of its head's keys.
extern "C" __global__ void __launch_bounds__(kThreads, 2) stream_half_key_gradients(StreamArguments a) {
  __shared__ __align__(16) unsigned short ring[2 * kStage];
  __shared__ __align__(16) float4 row_ring[2 * kOthers];
  __shared__ __align__(16) unsigned char masks[kMask == kBoolMask ? 2 * kOthers * kMaskStride : 16];
  const int part = blockIdx.x % a.parts, place = blockIdx.x / a.parts, group = a.shape.heads / a.shape.key_heads;
  const int key_head = place % a.shape.key_heads, sequence = place / a.shape.key_heads;
  const Rows keys = key_rows(a.shape, sequence, key_head);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const long long length = query_rows(a.shape, sequence, 0).count;
  const int tiles = static_cast<int>((length + kOthers - 1) / kOthers);
  long long own_keys = 0;  // the first of the tile
  const auto fetch = [&](int at) {
    if (at < group * tiles) {
      const Rows queries = query_rows(a.shape, sequence, key_head * group + at / tiles);
      const long long from = static_cast<long long>(at % tiles) * kOthers;
      unsigned short* stage = ring + at % 2 * kStage;
      copy_rows<kOthers, kD, kThreads>(stage, static_cast<const unsigned short*>(a.q) + queries.first * kD, from,
                                       length);
      copy_rows<kOthers, kDv, kThreads>(stage + kOthers * kStrideD,
                                        static_cast<const unsigned short*>(a.grad) + queries.first * kDv, from, length);
      if (threadIdx.x < kOthers) {
        const int here = static_cast<int>(threadIdx.x);
        const long long row = from + here / 32 * 32 + row_of_place(here % 32);
        copy_vector(row_ring + at % 2 * kOthers + here,
                    reinterpret_cast<const float4*>(a.half_rows) + queries.first + (row < length ? row : 0),
                    row < length);
      }
      if (kMask == kBoolMask && a.vectors == 2) {
        const HeadPairs pairs(a, sequence, key_head * group + at / tiles);
        for (int part = threadIdx.x; part < kOthers * (kKeys / 16); part += kThreads) {
          const int here = part / (kKeys / 16), column = part % (kKeys / 16) * 16;
          const long long row = from + here / 32 * 32 + row_of_place(here % 32);
          const bool there = row < length && own_keys + column < keys.count;
          copy_vector(masks + (at % 2 * kOthers + here) * kMaskStride + column,
                      static_cast<const unsigned char*>(a.mask.data) +
                          (there ? pairs.mask + row * a.mask.of_query + own_keys + column : 0),
                      there);
        }
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  const float up = two_to(min(max(15 - above(bound_of(a, sequence, key_head, 3)), -100), 100));
  for (long long from = static_cast<long long>(part) * kKeys; from < keys.count;
       from += static_cast<long long>(a.parts) * kKeys) {
    __syncthreads();
    own_keys = from;
    fetch(0);
    const int own_key = static_cast<int>(from) + 16 * warp + g, count = static_cast<int>(keys.count);
    OwnRows<kD> k[1];
    OwnRows<kDv> v[1];
    k[0].load(a.k, keys.first + own_key, own_key < count, own_key + 8 < count, t);
    v[0].load(a.v, keys.first + own_key, own_key < count, own_key + 8 < count, t);
    float m[2] = {1.0f, 1.0f};
    if (kMultiplicity) {
      const HeadPairs pairs(a, sequence, 0);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        m[h] = own_key + 8 * h < count ? unpack(multiplicity_number(a, pairs, own_key + 8 * h)) : 0.0f;
      }
    }
    float of_k[1][kD / 8][4] = {}, of_v[1][kDv / 8][4] = {};
    for (int at = 0; at < group * tiles; ++at) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();
      fetch(at + 1);
      const HeadPairs pairs(a, sequence, key_head * group + at / tiles);
      const unsigned short* queries_here = ring + at % 2 * kStage;
      const unsigned short* grads = queries_here + kOthers * kStrideD;
#pragma unroll
      for (int step = 0; step < kOthers; step += 32) {
        const long long i = static_cast<long long>(at % tiles) * kOthers + step + 8 * t;
        const float4* rows = row_ring + at % 2 * kOthers + step + 2 * t;
        EightPairs of_keys[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (kMask == kBoolMask && a.vectors == 2 && !kBias) {
            of_keys[h].read_tile(masks + (at % 2 * kOthers + step + 2 * t) * kMaskStride + 16 * warp + g + 8 * h,
                                 kMaskStride);
          } else {
            of_keys[h].read_down(a, pairs, i, min(own_key + 8 * h, count - 1), length);
          }
        }
#pragma unroll
        for (int n = 0; n < 4; n += kStepTiles) {
          float x[1][kStepTiles][4], of_values[1][kStepTiles][4];
          inner_products<kD>(x, k, queries_here + (step + 8 * n) * kStrideD);
          inner_products<kDv>(of_values, v, grads + (step + 8 * n) * kStrideDv);
#pragma unroll
          for (int e = 0; e < 2 * kStepTiles; ++e) {
            const float4 of_row = rows[8 * (n + e / 2) + e % 2];
            const PairRow<float> row{of_row.x, of_row.y};
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              float& mine = x[0][e / 2][2 * h + e % 2];
              float& value = of_values[0][e / 2][2 * h + e % 2];
              const float f =
                  weight_of(a, row.c, kMultiplicity ? m[h] * mine : mine, kBias ? of_keys[h].bias.at(2 * n + e) : 0.0f);
              const auto found = PairGradients<float>::of(kNorm, row, f, of_keys[h].mask_of(2 * n + e), value);
              mine = found.dx * of_row.z * up;
              value = found.u * kWeightScale;
            }
          }
#pragma unroll
          for (int half = 0; half < kStepTiles; half += 2) {
            unsigned weights[1][4];
            as_operand(weights[0], of_values[0][half], of_values[0][half + 1]);
            add_product<kDv>(of_v, weights, grads + (step + 8 * (n + half)) * kStrideDv);
            as_operand(weights[0], x[0][half], x[0][half + 1]);
            add_product<kD>(of_k, weights, queries_here + (step + 8 * (n + half)) * kStrideD);
          }
        }
      }
    }
    const float scale = static_cast<float>(a.scale), down = 1.0f / up;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool there = own_key + 8 * h < count;
      const long long row = keys.first + (there ? own_key + 8 * h : 0);
      unsigned* to_k = reinterpret_cast<unsigned*>(static_cast<unsigned short*>(a.grad_k) + row * kD) + t;
      unsigned* to_v = reinterpret_cast<unsigned*>(static_cast<unsigned short*>(a.grad_v) + row * kDv) + t;
      float of_weight = 0.0f;
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        const float first = of_k[0][n][2 * h] * down * scale, second = of_k[0][n][2 * h + 1] * down * scale;
        if (there) to_k[4 * n] = pack(first * m[h], second * m[h]);
        if (kMultiplicity) {
          const unsigned pair = k[0].x[n / 2][h + n % 2 * 2];
          of_weight += first * low_of(pair) + second * high_of(pair);
        }
      }
      if (there) {
#pragma unroll
        for (int n = 0; n < kDv / 8; ++n) {
          to_v[4 * n] = pack(of_v[0][n][2 * h] * (1.0f / kWeightScale), of_v[0][n][2 * h + 1] * (1.0f / kWeightScale));
        }
      }
      if (kMultiplicity) {
        of_weight = of_quad(of_weight);
        if (there && t == 0) static_cast<float*>(a.grad_multiplicity)[row] = of_weight;
      }
    }
  }
}
