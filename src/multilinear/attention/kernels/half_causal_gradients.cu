// Causal gradients of 16-bit queries and keys on tensor cores: sums before and behind a chunk as two 16-bit terms,
// scores within it. Compiled with CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are multiples of 32 up to 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/half_causal.cuh"
#include "multilinear/attention/kernels/half_coefficients.cuh"
#include "multilinear/attention/kernels/numbers.cuh"
#include "multilinear/attention/kernels/places.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv, kTiles = kAll / 8;
constexpr int kWarpRows = 16, kBlockRows = kRowWarps * kWarpRows;
constexpr int kVectorsD = 4 * (kD / 16) * 32, kVectorsDv = 4 * (kDv / 16) * 32;
constexpr int kSlot = kVectorsD > kVectorsDv ? kVectorsD : kVectorsDv;
constexpr int kStageRows = kAll > 128 ? 16 : 32;  // as registers hold
constexpr int kStrideD = kD + 8, kStrideDv = kDv + 8, kStage = kStageRows * (kStrideD + kStrideDv);
constexpr int kBytes = 4 * kStage > 32 * kSlot ? 4 * kStage : 32 * kSlot;

/// c1 and c2 of a chunk's queries, with the trace of the keys before it. Grid: chunks x heads.
extern "C" __global__ void __launch_bounds__(256) causal_half_coefficients(HalfGradients a) {
  __shared__ float of_warps[8];
  const int slot = blockIdx.x / a.shape.heads, head = blockIdx.x % a.shape.heads;
  const int key_head = head / (a.shape.heads / a.shape.key_heads);
  const CausalChunk chunk = causal_chunk(a.shape, a.rows, slot);
  const float* traces = a.traces + (static_cast<long long>(key_head) * a.chunks + slot) * (kD / 8);
  float trace = 0.0f;
  for (int tile = 0; tile < kD / 8; ++tile) trace += __ldg(traces + tile);
  bool flagged = false;
  const KeyWeights weights(a.multiplicity, multiplicity_row(a.shape, chunk.sequence) + chunk.first);
  for (int key = threadIdx.x; key < chunk.count; key += 256) weights.keeps(key, flagged);
  const Rows all = query_rows(a.shape, chunk.sequence, head);
  coefficients_of_rows(a, {all.first + chunk.first, chunk.count}, trace, 0, 1,
                       chunk.sequence * a.shape.key_heads + key_head, flagged, of_warps);
}

/// With P_ij = c1_i g_i . v_j + c2_i q_i . k_j and W_ij = c1_i q_i . k_j, over the pairs j <= i of a chunk, and sums
/// [G, M] before it and [S, D] behind it:
///   dq_i = c1_i M g_i + c2_i G q_i + sum_j P_ij k_j,
///   dk_j = D v_j + S k_j + sum_i P_ij q_i,   dv_j = D^T k_j + sum_i W_ij g_i.
/// Grid: chunks x key heads (queries: heads) x parts of a chunk.
template <bool kOfKeys>
__device__ __forceinline__ void gradients(const HalfGradients& a) {
  __shared__ __align__(16) char memory[kBytes];
  __shared__ __align__(16) float2 factors[2][kStageRows];
  const int group = a.shape.heads / a.shape.key_heads, heads = kOfKeys ? a.shape.key_heads : a.shape.heads;
  const int part_of_chunk = blockIdx.x % a.parts, place = blockIdx.x / a.parts, slot = place / heads;
  const int key_head = kOfKeys ? place % heads : place % heads / group;
  const CausalChunk chunk = causal_chunk(a.shape, a.rows, slot);
  const int count = static_cast<int>(chunk.count), begin = part_of_chunk * kBlockRows;
  if (begin >= count) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row = begin + warp * kWarpRows;
  const long long first_key = key_rows(a.shape, chunk.sequence, key_head).first + chunk.first;
  const auto first_query = [&](int head) { return query_rows(a.shape, chunk.sequence, head).first + chunk.first; };
  const long long first = kOfKeys ? first_key : first_query(place % heads);
  const KeyWeights weights(a.multiplicity, multiplicity_row(a.shape, chunk.sequence) + chunk.first);
  long long rows[1][2];
  bool there[2];
  float c1[2] = {1.0f, 1.0f}, c2[2] = {1.0f, 1.0f};  // of queries; of keys c2 is their multiplicity
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int at = row + 8 * h + g;
    there[h] = at < count;
    rows[0][h] = first + (there[h] ? at : 0);
    if (!kOfKeys) {
      const float2 c = *reinterpret_cast<const float2*>(a.coefficients + rows[0][h] * a.coefficient_step);
      c1[h] = c.x;
      c2[h] = c.y;
    } else if (weights.of_row) {
      c2[h] = unpack(__ldg(weights.of_row + (there[h] ? at : 0)));
    }
  }
  HalfRows<kD, 1> x;
  HalfRows<kDv, 1> y;
  x.load(kOfKeys ? a.k : a.q, rows, t);
  y.load(kOfKeys ? a.v : a.grad, rows, t);

  // Stages of the other side's rows: of keys those of all their heads.
  unsigned short* stages = reinterpret_cast<unsigned short*>(memory);
  const int from = kOfKeys ? begin : 0, until = kOfKeys ? count : min(count, begin + kBlockRows);
  const int steps = (until - from + kStageRows - 1) / kStageRows, all_steps = steps * (kOfKeys ? group : 1);
  const auto copy = [&](int step) {
    const int at = from + step % steps * kStageRows;
    const long long other = kOfKeys ? first_query(key_head * group + step / steps) : first_key;
    copy_stage<kStageRows, kD, kDv, kStrideD, kStrideDv>(
        stages + step % 2 * kStage, static_cast<const unsigned short*>(kOfKeys ? a.q : a.k) + other * kD,
        static_cast<const unsigned short*>(kOfKeys ? a.grad : a.v) + other * kDv, at, count,
        kOfKeys ? KeyWeights() : weights);
    if (kOfKeys && threadIdx.x < kStageRows) {
      const bool inside = at + static_cast<int>(threadIdx.x) < count;
      copy_pair(factors[step % 2] + threadIdx.x,
                a.coefficients + (other + (inside ? at + threadIdx.x : 0)) * a.coefficient_step, inside);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  ScaledSums<kD, 1> of_chunk;
  ScaledSums<kDv, 1> of_values;  // of keys
  copy(0);
  for (int step = 0; step < all_steps; ++step) {
    await_tiles();
    if (step + 1 < all_steps) copy(step + 1);
    const int at = from + step % steps * kStageRows;
    if (kOfKeys ? at + kStageRows <= row : at >= row + kWarpRows) continue;
    const unsigned short *left = stages + step % 2 * kStage, *right = left + kStageRows * kStrideD;
    float scores[1][kStageRows / 8][4], dots[1][kStageRows / 8][4];
    products_with_stage<kStrideD>(scores, x, left);
    products_with_stage<kStrideDv>(dots, y, right);
#pragma unroll
    for (int n = 0; n < kStageRows / 8; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int other = at + 8 * n + 2 * t + r % 2, mine = row + 8 * (r / 2) + g;
        const bool seen = kOfKeys ? mine <= other : other <= mine;
        float &score = scores[0][n][r], &dot = dots[0][n][r];
        if (kOfKeys) {
          const float2 c = factors[step % 2][8 * n + 2 * t + r % 2];
          score *= c2[r / 2];
          dot = seen ? c.x * dot + c.y * score : 0.0f;
          score = seen ? c.x * score : 0.0f;
        } else {
          dot = seen ? c1[r / 2] * dot + c2[r / 2] * score : 0.0f;
        }
      }
    }
    of_chunk.add<kStrideD>(dots, left);
    if (kOfKeys) of_values.add<kStrideDv>(scores, right);
  }
  of_chunk.finish();

  const long long state = static_cast<long long>(key_head) * a.chunks + slot;
  const uint4* fragments = static_cast<const uint4*>(a.fragments) + state * kTiles * (kD / 16) * 32;
  const uint4* turned = static_cast<const uint4*>(a.turned_fragments) + state * (kD / 8) * (kDv / 16) * 32;
  const float *scales = a.scales + state * kTiles, *turned_scales = a.turned_scales + state * (kD / 8);
  uint4* ring = reinterpret_cast<uint4*>(memory);
  float sums[1][4], of_weight[2] = {};
  __syncthreads();
  fetch_tiles<kD>(ring, fragments);
#pragma unroll
  for (int c = 0; c < kD / 32; ++c) {
    await_tiles();
    fetch_tiles<kDv>(ring + kSlot, turned + c * kVectorsDv);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      x.multiply(sums, ring + part * (kD / 16) * 32 + lane);
      const float scale = __ldg(scales + 4 * c + part);
#pragma unroll
      for (int r = 0; r < 4; ++r) of_chunk.sums[0][4 * c + part][r] += scale * c2[r / 2] * sums[0][r];
    }
    await_tiles();
    if (kOfKeys || c + 1 < kD / 32) fetch_tiles<kD>(ring, fragments + (c + 1) * kVectorsD);
    unsigned pairs[2][4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      y.multiply(sums, ring + kSlot + part * (kDv / 16) * 32 + lane);
      const float scale = __ldg(turned_scales + 4 * c + part);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float by = scale * c1[h], weight = kOfKeys ? c2[h] : 1.0f;
        const float first_sum = of_chunk.sums[0][4 * c + part][2 * h] + by * sums[0][2 * h];
        const float second_sum = of_chunk.sums[0][4 * c + part][2 * h + 1] + by * sums[0][2 * h + 1];
        const unsigned key = part_of(x.x[0][h][c], part);
        of_weight[h] += low_of(key) * first_sum + high_of(key) * second_sum;
        pairs[h][part] = pack(weight * first_sum, weight * second_sum);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (there[h]) store_vector(kOfKeys ? a.grad_k : a.grad_q, rows[0][h], kD, 4 * c + t, pairs[h]);
    }
  }
  if constexpr (!kOfKeys) return;  // values have gradients, queries have one kind
  of_values.finish();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = of_quad(of_weight[h]);
    if (weights.of_row && t == 0 && there[h]) a.grad_multiplicity[rows[0][h]] = sum;
  }
#pragma unroll
  for (int c = 0; c < kDv / 32; ++c) {
    unsigned pairs[2][4];
    await_tiles();
    if (c + 1 < kDv / 32) fetch_tiles<kD>(ring + (c + 1) % 2 * kSlot, fragments + (kD / 32 + c + 1) * kVectorsD);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      x.multiply(sums, ring + c % 2 * kSlot + part * (kD / 16) * 32 + lane);
      const float scale = __ldg(scales + kD / 8 + 4 * c + part);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        pairs[h][part] = pack(c2[h] * (scale * sums[0][2 * h] + of_values.sums[0][4 * c + part][2 * h]),
                              c2[h] * (scale * sums[0][2 * h + 1] + of_values.sums[0][4 * c + part][2 * h + 1]));
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (there[h]) store_vector(a.grad_v, rows[0][h], kDv, 4 * c + t, pairs[h]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kRowThreads) causal_half_query_gradients(HalfGradients a) {
  gradients<false>(a);
}
extern "C" __global__ void __launch_bounds__(kRowThreads) causal_half_key_gradients(HalfGradients a) {
  gradients<true>(a);
}
