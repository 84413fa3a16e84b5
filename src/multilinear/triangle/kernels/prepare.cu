// Weights as fragments of tensor cores, in 16 bits, with the norms' weights in them; biases with the norms' biases in
// them. fused.cuh says what this is compiled for, besides CLEBSCH_WEIGHTS, the weights' number type: with a branch for
// it every load waits for the one before.
#include "multilinear/triangle/kernels/fused.cuh"

#ifndef CLEBSCH_WEIGHTS
#define CLEBSCH_WEIGHTS 1
#endif

constexpr int kInVectors = kSets * kSteps * kGroupsOfSet * 2 * 32;
constexpr int kPVectors = kOut * kH / 8, kGVectors = kStored ? 0 : kGate * kD / 8;
constexpr bool kWideOut = CLEBSCH_X == 1, kWideGates = kWideOut && !kBefore;
constexpr int kInBiases = kSets * kGroupsOfSet * 32, kGBiases = kStored ? 0 : kGate;

/// A number of a tensor of weights.
__device__ __forceinline__ float number_of(const void* tensor, long long at) {
#if CLEBSCH_WEIGHTS == 0
  return static_cast<float>(__ldg(static_cast<const double*>(tensor) + at));
#elif CLEBSCH_WEIGHTS == 1
  return __ldg(static_cast<const float*>(tensor) + at);
#else
  const unsigned bits = __ldg(static_cast<const unsigned short*>(tensor) + at);
  return CLEBSCH_WEIGHTS == 2 ? half_to_float(bits) : __uint_as_float(bits << 16);
#endif
}
/// The same; `other` where there is no tensor.
__device__ __forceinline__ float number_or(const void* tensor, long long at, float other) {
  return tensor == nullptr ? other : number_of(tensor, at);
}

/// A row of one of the matrices, and what its numbers are multiplied by besides the norm's weights.
struct Row {
  const void *matrix = nullptr, *bias = nullptr, *norm_weight = nullptr, *norm_bias = nullptr;
  int row = 0, columns = 0;
  float factor = 0.0f;

  /// Pairs of neighbouring numbers in 16 bits, the first at `column`, the others kStep columns from each other. All
  /// loads are on their way at the same time.
  template <int kStep, int kPairs>
  __device__ __forceinline__ void get(unsigned (&pairs)[kPairs], int column) const {
    constexpr int kCount = 2 * kPairs;
    float numbers[kCount], norm[kCount];
    const long long first = static_cast<long long>(row) * columns;
    const auto at = [&](int i) { return column + i / 2 * kStep + i % 2; };
#pragma unroll
    for (int i = 0; i < kCount; ++i) numbers[i] = number_of(matrix, first + at(i));
#pragma unroll
    for (int i = 0; i < kCount; ++i) norm[i] = 1.0f;
    if (norm_weight != nullptr) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) norm[i] = number_of(norm_weight, at(i));
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) numbers[i] = factor == 0.0f ? 0.0f : factor * numbers[i] * norm[i];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) pairs[i] = pack(numbers[2 * i], numbers[2 * i + 1]);
  }
  template <int kStep>
  __device__ __forceinline__ uint4 get(int column) const {
    unsigned pairs[4];
    get<kStep>(pairs, column);
    return vector_of(pairs);
  }
};

__device__ __forceinline__ Row gate_row(const FusedArguments& a, int row) {
  const Weights& w = a.weights;
  return {w.g_out_weight,      w.g_out_bias, w.norm_in_weight,         w.norm_in_bias,
          min(row, kGate - 1), kD,           row < kGate ? 0.5f : 0.0f};
}

/// Row `row` (0 to 15) of the first or second half of a group.
__device__ __forceinline__ Row in_row(const FusedArguments& a, int group, int half, int row) {
  const Weights& w = a.weights;
  if (group >= kPairGroups) return gate_row(a, 32 * (group - kPairGroups) + 16 * half + row);
  const int channel = 16 * group + row;
  if (half == 0) return {w.p_in_weight, w.p_in_bias, w.norm_in_weight, w.norm_in_bias, channel, kD, 1.0f};
  return {w.g_in_weight, w.g_in_bias, w.norm_in_weight, w.norm_in_bias, channel, kD, 0.5f};
}

/// Row `row` (0 to 63) of the first or second half of a set of warpgroups.cuh.
__device__ __forceinline__ Row set_row(const FusedArguments& a, int set, int half, int row) {
  constexpr int kPairSets = 2 * kH / kSetChannels;
  if (set >= kPairSets) return gate_row(a, kSetChannels * (2 * (set - kPairSets) + half) + row);
  Row of_group = in_row(a, 4 * set + row / 16, half, row % 16);
  of_group.factor = 0.5f;  // of the projection too: 2 x sigmoid(2 z) = x + x tanh(z)
  return of_group;
}

/// Row `row` (0 to 63) of a unit of project_overlapped.cu: of 16 rows eight channels' projections, then their gates.
__device__ __forceinline__ Row unit_row(const FusedArguments& a, int unit, int row) {
  const int channel = 32 * unit + 8 * (row / 16) + row % 8;
  Row of_group = in_row(a, channel / 16, row / 8 % 2, channel % 16);
  of_group.factor = 0.5f;
  return of_group;
}

/// With the gate before the projection the norm's weights act between them.
__device__ __forceinline__ Row p_row(const FusedArguments& a, int row) {
  const Weights& w = a.weights;
  return {w.p_out_weight,
          w.p_out_bias,
          kBefore ? nullptr : w.norm_out_weight,
          kBefore ? nullptr : w.norm_out_bias,
          row,
          kH,
          kHalved ? 0.5f : 1.0f};
}

/// First operand: rows g and g + 8 of 16 channels.
__device__ __forceinline__ uint4 in_vector(const FusedArguments& a, int at) {
  const int lane = at % 32, g = lane / 4, t = lane % 4, half = at / 32 % 2, q = at / 64 % kGroupsOfSet;
  const int s = at / (64 * kGroupsOfSet) % kSteps, group = at / (64 * kGroupsOfSet) / kSteps * kGroupsOfSet + q;
  const int column = 32 * (s / 2) + 8 * t + 4 * (s % 2);
  const Row low = in_row(a, group, half, g), high = in_row(a, group, half, g + 8);
  unsigned of_low[2], of_high[2];
  low.get<2>(of_low, column);
  high.get<2>(of_high, column);
  const unsigned pairs[4] = {of_low[0], of_high[0], of_low[1], of_high[1]};
  return vector_of(pairs);
}

/// Eight numbers of a row, from `column` on: of a second operand, 32 c + 8 t.
__device__ __forceinline__ uint4 out_vector(const FusedArguments&, const Row& row, int column) {
  return row.get<2>(column);
}

/// The same of a second operand for warpgroups, whose rows lie as those of matrices below: `at` counts vectors of
/// a matrix of `rows` rows and 64 places of the inner index, which are columns as of fused.cuh.
template <bool kWide, typename RowOf>
__device__ __forceinline__ uint4 place_vector(const FusedArguments& a, int at, int rows, const RowOf& row_of) {
  const int block = at / (8 * rows), place = at % (8 * rows) / 8, chunk = at % 8 ^ place % 8;
  const Row row = row_of(a, column_of_out<kWide>(place / 8, place % 8));
  const int step = 4 * block + chunk / 2, column = 32 * (step / 2) + 4 * (step % 2) + 2 * (chunk % 2);
  return row.get<8>(column);
}

/// Matrices of 64 rows and columns, rows of 128 bytes whose 16-byte parts are exchanged (warpgroup.cuh).
__device__ __forceinline__ uint4 matrix_vector(const FusedArguments& a, int at) {
  constexpr int kOfMatrix = kSetChannels * 8, kBlocks = kD / 64 > 0 ? kD / 64 : 1;
  const int matrix = at / kOfMatrix, row = at % kOfMatrix / 8, columns = 8 * (at % 8 ^ row % 8);
  if (kOverlapped) return out_vector(a, unit_row(a, matrix / kBlocks, row), 64 * (matrix % kBlocks) + columns);
  return out_vector(a, set_row(a, matrix / (2 * kBlocks), matrix % 2, row), 64 * (matrix / 2 % kBlocks) + columns);
}

/// The vectors, a thread each, then the biases and the norm of o, a warp each. Grid: as many threads, 256 a block,
/// vectors in whole blocks.
extern "C" __global__ void __launch_bounds__(256) prepare(FusedArguments a) {
  constexpr int kVectors = kInVectors + kPVectors + kGVectors, kBlocks = (kVectors + 255) / 256;
  let_next_begin();
  if (blockIdx.x < kBlocks) {
    int at = blockIdx.x * 256 + threadIdx.x;
    const int lane = at % 32, g = lane / 4, t = lane % 4;
    if (at < kInVectors) {
      static_cast<uint4*>(a.in_fragments)[at] = kWarpgroups ? matrix_vector(a, at) : in_vector(a, at);
      return;
    }
    at -= kInVectors;
    if (at < kPVectors) {
      const int c = at / 32 % (kH / 32), tile = at / 32 / (kH / 32);
      static_cast<uint4*>(a.p_fragments)[at] =
          kOutWarpgroups ? place_vector<kWideOut>(a, at, kOut, p_row)
                         : out_vector(a, p_row(a, column_of_out<kWideOut>(tile, g)), 32 * c + 8 * t);
      return;
    }
    at -= kPVectors;
    if (at < kGVectors) {
      const int c = at / 32 % (kD / 32), tile = at / 32 / (kD / 32);
      static_cast<uint4*>(a.g_fragments)[at] =
          kOutWarpgroups ? place_vector<kWideGates>(a, at, kGate, gate_row)
                         : out_vector(a, gate_row(a, column_of_out<kWideGates>(tile, g)), 32 * c + 8 * t);
    }
    return;
  }
  int at = (blockIdx.x - kBlocks) * 8 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  Row row;
  float* to = nullptr;
  if (at < kInBiases) {
    row = kOverlapped   ? unit_row(a, at / 64, at % 64)
          : kWarpgroups ? set_row(a, at / 128, at / 64 % 2, at % 64)
                        : in_row(a, at / 32, at / 16 % 2, at % 16);
    to = a.in_bias + at;
  } else if ((at -= kInBiases) < kOut) {
    row = p_row(a, at);
    to = a.p_bias + at;
  } else if ((at -= kOut) < kGBiases) {
    row = gate_row(a, at);
    to = a.g_bias + at;
  } else {
    if (at == kGBiases) {
#pragma unroll 4
      for (int h = lane; h < kH; h += 32) {
        a.norm[h] = number_or(a.weights.norm_out_weight, h, 1.0f);
        a.norm[kH + h] = number_or(a.weights.norm_out_bias, h, 0.0f);
      }
    }
    return;
  }
  const float bias = number_or(row.bias, row.row, 0.0f);
  float sum = 0.0f;
  if (row.norm_bias != nullptr && row.factor != 0.0f) {
#pragma unroll 4
    for (int k = lane; k < row.columns; k += 32) {
      sum += number_of(row.matrix, static_cast<long long>(row.row) * row.columns + k) * number_of(row.norm_bias, k);
    }
  }
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
  if (lane == 0) *to = row.factor == 0.0f ? 0.0f : row.factor * (sum + bias);
}
