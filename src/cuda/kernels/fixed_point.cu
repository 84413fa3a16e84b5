// Before and after sums in fixed point: the largest number of an array, and sums of quanta as numbers.
#include "cuda/kernels/fixed_point.cuh"
#include "cuda/kernels/fixed_point.h"
#include "cuda/kernels/int64.cuh"

using namespace clebsch::cuda;

/// The bits of |x|: as integers they are in the order of the numbers, with NaN after all of them.
__device__ __forceinline__ unsigned size_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

/// The largest |data| of the rows that count. Any grid; the largest of integers is the same in every order.
extern "C" __global__ void __launch_bounds__(kFixedPointThreads) largest_number(FixedPointArguments a) {
  const int rows = a.row_limit ? min(__ldg(a.row_limit), a.rows) : a.rows;
  const int64 count = static_cast<int64>(rows) * a.row;
  const int64 packs = reinterpret_cast<size_t>(a.data) % sizeof(float4) == 0 ? count / 4 : 0;
  const int64 thread = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64 threads = static_cast<int64>(gridDim.x) * blockDim.x;
  const float4* data = reinterpret_cast<const float4*>(a.data);
  unsigned most = 0;
#pragma unroll 4
  for (int64 i = thread; i < packs; i += threads) {
    const float4 four = __ldg(data + i);
    most = max(most, max(max(size_bits(four.x), size_bits(four.y)), max(size_bits(four.z), size_bits(four.w))));
  }
  for (int64 i = 4 * packs + thread; i < count; i += threads) most = max(most, size_bits(__ldg(a.data + i)));
  for (int bits = 16; bits > 0; bits /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, bits));
  if (threadIdx.x % 32 == 0 && most > 0) atomicMax(a.largest, most);
}

/// out = sums in quanta times the quantum. Grid: (nodes).
extern "C" __global__ void __launch_bounds__(kFixedPointThreads) quanta_to_numbers(FixedPointArguments a) {
  const int node = blockIdx.x;
  const unsigned largest = __ldg(a.largest);
  const bool known = largest < 0x7f800000u && __ldg(a.bad + node) == 0 &&
                     __ldg(a.first_term + node + 1) - __ldg(a.first_term + node) < 1 << kTermsExponent;
  const double quantum = one_quantum(largest);
  const long long* sums = a.sums + static_cast<int64>(node) * a.width;
  float* out = a.out + static_cast<int64>(node) * a.width;
  for (int i = threadIdx.x; i < a.width; i += kFixedPointThreads) {
    out[i] = known ? static_cast<float>(static_cast<double>(__ldcs(sums + i)) * quantum) : __uint_as_float(0x7fc00000u);
  }
}
