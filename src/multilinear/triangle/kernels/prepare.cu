// Weights as fragments of tensor cores, and biases, for the kernels after this one. weights.cuh says what this is
// compiled for.
#include "multilinear/triangle/kernels/weights.cuh"

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
    const int at = blockIdx.x * 256 + threadIdx.x;
    if (at < kInVectors) {
      static_cast<uint4*>(a.in_fragments)[at] = kWarpgroups ? matrix_vector(a, at) : in_vector(a, at);
    } else {
      write_out_vector(a, at - kInVectors);
    }
    return;
  }
  const int at = (blockIdx.x - kBlocks) * 8 + threadIdx.x / 32;
  if (at >= kInBiases) {
    write_out_bias(a, at - kInBiases);
    return;
  }
  const float bias = bias_of(kOverlapped   ? unit_row(a, at / 64, at % 64)
                             : kWarpgroups ? set_row(a, at / 128, at / 64 % 2, at % 64)
                                           : in_row(a, at / 32, at / 16 % 2, at % 16));
  if (threadIdx.x % 32 == 0) a.in_bias[at] = bias;
}
