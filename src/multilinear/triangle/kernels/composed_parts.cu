// What the composed passes begin and end with: weights as products read them, sums of parts, the scale of gradients,
// operands of two TF32 terms.
#include "multilinear/triangle/kernels/composed.cuh"

/// One weight a thread: the matrices, then the vectors.
extern "C" __global__ void __launch_bounds__(kThreads) composed_pack(PackArguments a) {
  constexpr int kHalf_ = 2 * kHidden * kD, kInput = (4 * kHidden + kGate) * kD, kOutput = kOut * kHidden;
  const int type = a.number;
  int at = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (at < kInput) {
    const real x = at < kHalf_       ? number_at(a.weights.p_in_weight, type, at, 0)
                   : at < 2 * kHalf_ ? number_at(a.weights.g_in_weight, type, at - kHalf_, 0)
                                     : number_at(a.weights.g_out_weight, type, at - 2 * kHalf_, 0);
    store_operand(a.packed.input, at, x);
    return;
  }
  at -= kInput;
  if (at < kOutput) {
    store_operand(a.packed.output, at, number_at(a.weights.p_out_weight, type, at, 0));
    return;
  }
  at -= kOutput;
  if (at < kD) {
    static_cast<real*>(a.packed.norm_in)[at] = number_at(a.weights.norm_in_weight, type, at, 1);
    static_cast<real*>(a.packed.norm_in)[kD + at] = number_at(a.weights.norm_in_bias, type, at, 0);
    return;
  }
  at -= kD;
  if (at < 4 * kHidden + kGate) {
    static_cast<real*>(a.packed.bias_in)[at] = at < 2 * kHidden ? number_at(a.weights.p_in_bias, type, at, 0)
                                               : at < 4 * kHidden
                                                   ? number_at(a.weights.g_in_bias, type, at - 2 * kHidden, 0)
                                                   : number_at(a.weights.g_out_bias, type, at - 4 * kHidden, 0);
    return;
  }
  at -= 4 * kHidden + kGate;
  if (at < kHidden) {
    static_cast<real*>(a.packed.norm_out)[at] = number_at(a.weights.norm_out_weight, type, at, 1);
    static_cast<real*>(a.packed.norm_out)[kHidden + at] = number_at(a.weights.norm_out_bias, type, at, 0);
    return;
  }
  at -= kHidden;
  if (at < kOut) static_cast<real*>(a.packed.bias_out)[at] = number_at(a.weights.p_out_bias, type, at, 0);
}

/// A block adds 32 columns of a task: eight groups of lanes take every eighth part.
extern "C" __global__ void __launch_bounds__(kThreads) composed_sum(SumArguments a) {
  __shared__ real shared[kThreads];
  int of = 0;
  while (of + 1 < a.count && blockIdx.x >= a.tasks[of + 1].first_block) ++of;
  const SumTask& task = a.tasks[of];
  const int lane = threadIdx.x % kSumsOfBlock, group = threadIdx.x / kSumsOfBlock;
  const long long column = (blockIdx.x - task.first_block) * kSumsOfBlock + lane;
  const real* parts = static_cast<const real*>(task.parts) + task.first + column;
  real sum = 0;
  if (column < task.wanted) {
    for (long long part = group; part < task.count; part += kThreads / kSumsOfBlock) {
      sum += parts[part * task.columns];
    }
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (group != 0 || column >= task.wanted) return;
  for (int g = 1; g < kThreads / kSumsOfBlock; ++g) sum += shared[g * kSumsOfBlock + lane];
  const real scale = task.scale ? static_cast<real>(*static_cast<const float*>(task.scale)) : real(1);
  set_number(task.out, task.number, column, sum * scale);
}

extern "C" __global__ void __launch_bounds__(kThreads) composed_split(SplitArguments a) {
  const long long at = (static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x) * 8;
  if (at + 8 <= a.count) {
    real x[8];
    load8(static_cast<const operand*>(a.from) + at, x);
    store_operand(a.to, at, x);
  } else {
    for (long long e = at; e < a.count; ++e) store_operand(a.to, e, to_real(static_cast<const operand*>(a.from)[e]));
  }
}

/// What is no number, or infinite, does not count.
__device__ __forceinline__ float largest_of_block(float most, float* shared) {
  shared[threadIdx.x] = most;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
  }
  __syncthreads();
  return shared[0];
}

extern "C" __global__ void __launch_bounds__(kThreads) composed_largest(ScaleArguments a) {
  __shared__ float shared[kThreads];
  float most = 0;
  for (long long at = (static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x) * 8; at < a.count;
       at += static_cast<long long>(gridDim.x) * kThreads * 8) {
    real x[8];
    load8(static_cast<const number*>(a.grad) + at, x);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float size = fabsf(static_cast<float>(x[e]));
      if (size < 3e38f) most = fmaxf(most, size);
    }
  }
  most = largest_of_block(most, shared);
  if (threadIdx.x == 0) a.parts[blockIdx.x] = most;
}

extern "C" __global__ void __launch_bounds__(kThreads) composed_scale(ScaleArguments a) {
  __shared__ float shared[kThreads];
  float most = 0;
  for (int block = threadIdx.x; block < a.blocks; block += kThreads) most = fmaxf(most, a.parts[block]);
  most = largest_of_block(most, shared);
  if (threadIdx.x != 0) return;
  // The powers whose inverses are numbers too.
  const int exponent = most == 0 ? 127 : min(max(static_cast<int>(__float_as_uint(most) >> 23), 2), 252);
  a.scale[0] = __uint_as_float(static_cast<unsigned>(254 - exponent) << 23);
  a.scale[1] = __uint_as_float(static_cast<unsigned>(exponent) << 23);
}
