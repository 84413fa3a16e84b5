// Rows of features gathered into what is sent, put where they belong, and added in a fixed order: what an exchange of
// features between processes does on a GPU. A row is a few to a few thousand numbers. Neighbouring threads have
// neighbouring words of a row, and rows shorter than a warp's 32 words share a warp.
#include "cuda/kernels/exchange_rows.h"
#include "cuda/kernels/int64.cuh"

using namespace clebsch::cuda;

/// The row that a thread works on (it may be one too many), and its place among the threads of that row.
__device__ __forceinline__ int64 row_of_thread(int lanes_shift, int& lane) {
  const int64 thread = static_cast<int64>(blockIdx.x) * kExchangeThreads + threadIdx.x;
  lane = static_cast<int>(thread) & ((1 << lanes_shift) - 1);
  return thread >> lanes_shift;
}

template <typename Word>
__device__ __forceinline__ void copy_row(const CopyRowsArguments& a) {
  int lane;
  const int64 k = row_of_thread(a.lanes_shift, lane);
  if (k >= a.count) return;
  const int64 from_row = a.from_rows ? __ldg(a.from_rows + k) : k, to_row = a.to_rows ? __ldg(a.to_rows + k) : k;
  const Word* from = static_cast<const Word*>(a.from) + from_row * a.words;
  Word* to = static_cast<Word*>(a.to) + to_row * a.words;
#pragma unroll 4
  for (int c = lane; c < a.words; c += 1 << a.lanes_shift) to[c] = __ldg(from + c);
}

__device__ __forceinline__ void add_word(float& sum, float x) { sum += x; }
__device__ __forceinline__ void add_word(double& sum, double x) { sum += x; }
__device__ __forceinline__ void add_word(float4& sum, const float4& x) {
  sum.x += x.x;
  sum.y += x.y;
  sum.z += x.z;
  sum.w += x.w;
}
__device__ __forceinline__ void add_word(double2& sum, const double2& x) {
  sum.x += x.x;
  sum.y += x.y;
}

template <typename Word>
__device__ __forceinline__ void add_row(const AddRowsArguments& a) {
  int lane;
  const int64 t = row_of_thread(a.lanes_shift, lane);
  if (t >= a.count) return;
  const int begin = __ldg(a.starts + t), end = __ldg(a.starts + t + 1);
  Word* target = static_cast<Word*>(a.target) + static_cast<int64>(__ldg(a.rows + t)) * a.words;
  const Word* received = static_cast<const Word*>(a.received);
  for (int c = lane; c < a.words; c += 1 << a.lanes_shift) {
    Word sum = target[c];
#pragma unroll 1
    for (int j = begin; j < end; ++j)  // mostly one to three
      add_word(sum, __ldg(received + static_cast<int64>(__ldg(a.places + j)) * a.words + c));
    target[c] = sum;
  }
}

// Grid of all: (ceil(count * 2^lanes_shift / kExchangeThreads)).
extern "C" __global__ void __launch_bounds__(kExchangeThreads) copy_rows_4(CopyRowsArguments a) { copy_row<float>(a); }
extern "C" __global__ void __launch_bounds__(kExchangeThreads) copy_rows_8(CopyRowsArguments a) { copy_row<double>(a); }
extern "C" __global__ void __launch_bounds__(kExchangeThreads) copy_rows_16(CopyRowsArguments a) {
  copy_row<float4>(a);
}
extern "C" __global__ void __launch_bounds__(kExchangeThreads) add_rows_float(AddRowsArguments a) { add_row<float>(a); }
extern "C" __global__ void __launch_bounds__(kExchangeThreads) add_rows_float4(AddRowsArguments a) {
  add_row<float4>(a);
}
extern "C" __global__ void __launch_bounds__(kExchangeThreads) add_rows_double(AddRowsArguments a) {
  add_row<double>(a);
}
extern "C" __global__ void __launch_bounds__(kExchangeThreads) add_rows_double2(AddRowsArguments a) {
  add_row<double2>(a);
}
