// Atomic energies from rows of features, cpu/readout.h, and their gradient in the same pass: a row needs no other, so
// what would be a launch for each small product, activation and sum is one. Sums have one order.
#include "cuda/kernels/int64.cuh"
#include "cuda/kernels/readout.h"
#include "cuda/kernels/warp.cuh"

using namespace clebsch::cuda;

/// Bytes of shared memory for the hidden layer's weights; larger ones are read where they lie.
constexpr int kWeightBytes = 24576;
constexpr int kWarps = kReadoutThreads / 32;

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

/// Lanes that share a row's hidden units: as many as there are units, a power of two; the others take other features.
__device__ __forceinline__ int lanes_of(int hidden) {
  int lanes = 1;
  while (lanes < hidden && lanes < 32) lanes *= 2;
  return lanes;
}

template <typename real>
__device__ __forceinline__ void read_out(const ReadoutArguments& a) {
  __shared__ real kept[kWeightBytes / sizeof(real)];
  __shared__ real slopes[kWarps][kReadoutHidden];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.x * kWarps + warp;
  const real* const direct = static_cast<const real*>(a.direct);
  const real* weights = static_cast<const real*>(a.hidden);
  // Rows of an odd number of numbers: lanes that read a column meet different banks.
  int pitch = a.hidden_count | 1;
  const int lanes = lanes_of(a.hidden_count), unit = lane % lanes;
  if (static_cast<int64>(a.width) * pitch * static_cast<int>(sizeof(real)) <= kWeightBytes) {
    const int step = kReadoutThreads / lanes;
    for (int j = unit; j < a.hidden_count; j += lanes) {
      // Unrolled, so that copies do not wait for each other; __ldg, so that they may pass the stores.
#pragma unroll 8
      for (int c = threadIdx.x / lanes; c < a.width; c += step)
        kept[c * pitch + j] = __ldg(weights + c * a.hidden_count + j);
    }
    weights = kept;
  } else {
    pitch = a.hidden_count;
  }
  const real* const x = static_cast<const real*>(a.x) + static_cast<int64>(row) * a.width;
  real sum = 0;
  if (direct && row < a.rows) {
#pragma unroll 4
    for (int c = lane; c < a.width; c += 32) sum += __ldg(x + c) * __ldg(direct + c);
  }
  __syncthreads();
  if (row >= a.rows) return;
  for (int first = 0; first < a.hidden_count; first += lanes) {
    const int j = first + unit;
    real argument = 0;
    if (j < a.hidden_count) {
#pragma unroll 8
      for (int c = lane / lanes; c < a.width; c += 32 / lanes) argument += __ldg(x + c) * weights[c * pitch + j];
    }
    for (int by = lanes; by < 32; by *= 2) argument += __shfl_xor_sync(0xffffffffu, argument, by);
    if (j < a.hidden_count && lane < lanes) {
      const real s = 1 / (1 + exponential(-argument)), last = __ldg(static_cast<const real*>(a.last) + j);
      sum += last * (argument * s);
      slopes[warp][j] = last * (s * (1 + argument * (1 - s)));
    }
  }
  sum = warp_sum(sum);
  const int type = __ldg(a.types + row);
  const bool known = type >= 0 && type < a.type_count;
  const double scale = known ? __ldg(a.scale + type) : __longlong_as_double(0x7ff8000000000000ll);
  if (lane == 0) a.energy[row] = scale * static_cast<double>(sum) + (known ? __ldg(a.shift + type) : 0.0);
  if (!a.gradient) return;
  __syncwarp();
  real* const gradient = static_cast<real*>(a.gradient) + static_cast<int64>(row) * a.width;
#pragma unroll 2
  for (int c = lane; c < a.width; c += 32) {
    real slope = direct ? __ldg(direct + c) : real(0);
#pragma unroll 8
    for (int j = 0; j < a.hidden_count; ++j) slope += weights[c * pitch + j] * slopes[warp][j];
    gradient[c] = static_cast<real>(scale) * slope;
  }
}

template <typename real>
__device__ __forceinline__ void scale_rows(const ReadoutGradientArguments& a) {
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= a.rows) return;
  const real factor = static_cast<real>(__ldg(a.grad_energy + row));
  const int64 begin = static_cast<int64>(row) * a.width;
  for (int c = threadIdx.x % 32; c < a.width; c += 32)
    static_cast<real*>(a.grad_x)[begin + c] = factor * __ldg(static_cast<const real*>(a.gradient) + begin + c);
}

// Grid of all: a warp a row.
extern "C" __global__ void __launch_bounds__(kReadoutThreads) readout_float(ReadoutArguments a) { read_out<float>(a); }
extern "C" __global__ void __launch_bounds__(kReadoutThreads) readout_double(ReadoutArguments a) {
  read_out<double>(a);
}
extern "C" __global__ void __launch_bounds__(kReadoutThreads) readout_backward_float(ReadoutGradientArguments a) {
  scale_rows<float>(a);
}
extern "C" __global__ void __launch_bounds__(kReadoutThreads) readout_backward_double(ReadoutGradientArguments a) {
  scale_rows<double>(a);
}
