// G = K^T K and M = K^T V of 16-bit numbers by groups of four warps, for Hopper. Compiled with CLEBSCH_NUMBER,
// CLEBSCH_D and CLEBSCH_DV, which are 64 or 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/places.cuh"
#include "multilinear/attention/kernels/wide_tiles.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
/// A group has 64 rows of the sums: both groups for d = 128, and for d = 64 each those of half of a stage's keys.
constexpr int kHalves = kD == 64 ? 2 : 1;
constexpr int kKeys = 32 * kHalves, kStages = kAll == 128 ? 6 : 8, kAhead = kStages - 2;
/// Columns of a product; a stage has blocks of 64 columns, keys by lines of 128 bytes.
constexpr int kColumns = kAll % 128 == 0 ? 128 : 64, kProducts = kAll / kColumns;
constexpr int kBlock = 128 * kKeys, kStage = kBlock * (kAll / 64);

/// Copies keys from .. from + kKeys into a stage, zeros from `end` on.
__device__ __forceinline__ void copy_keys(char* stage, const unsigned short* k, const unsigned short* v, long long from,
                                          long long end) {
#pragma unroll
  for (int part = 0; part < kKeys * (kAll / 8) / kWideThreads; ++part) {
    const int at = threadIdx.x + part * kWideThreads, key = at / (kAll / 8), vector = at % (kAll / 8);
    const bool there = from + key < end;
    const long long row = there ? from + key : 0;
    const unsigned short* source = vector < kD / 8 ? k + row * kD + 8 * vector : v + row * kDv + 8 * vector - kD;
    copy_vector(stage + vector / 8 * kBlock + 128 * key + 16 * (vector % 8 ^ key % 8), source, there);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Sums of a chunk of keys, in the places of half_sums.cu. Grid: key heads x chunks.
extern "C" __global__ void __launch_bounds__(kWideThreads) wide_sums(HalfArguments a) {
  extern __shared__ __align__(1024) char memory[];
  char* ring = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const int head = blockIdx.x / a.chunks, chunk = blockIdx.x % a.chunks;
  const Rows all = key_rows(a.shape, head / a.shape.key_heads, head % a.shape.key_heads);
  if (chunk == 0 && threadIdx.x == 0) a.head_flags[head] = 0;
  const Rows mine = chunk_of(all.count, a.chunks, chunk, kKeys);
  const unsigned short* k = static_cast<const unsigned short*>(a.k) + all.first * kD;
  const unsigned short* v = static_cast<const unsigned short*>(a.v) + all.first * kDv;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const long long end = mine.first + mine.count;
  const int stages = static_cast<int>((mine.count + kKeys - 1) / kKeys);

  float sums[kProducts][kColumns / 2];
#pragma unroll
  for (int p = 0; p < kProducts; ++p) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sums[p][i] = 0.0f;
  }
#pragma unroll
  for (int s = 0; s < kAhead; ++s) copy_keys(ring + s * kStage, k, v, mine.first + s * kKeys, end);
  int slot = 0, next = kAhead;
  for (int s = 0; s < stages; ++s) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - 1) : "memory");
    fence_copies();
    __syncthreads();  // the stage is there, and products of the stage before the last are done in all groups
    copy_keys(ring + next * kStage, k, v, mine.first + static_cast<long long>(s + kAhead) * kKeys, end);
    const unsigned stage = shared_address(ring + slot * kStage);
    const unsigned rows = stage + (kHalves == 1 ? group * kBlock : 0), first = kHalves == 2 ? group * 32 : 0;
    begin_products();
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const unsigned down = (first + 16 * step) * 128;
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
        multiply_group(sums[p], describe(rows + down, kBlock, 1024, 1),
                       describe(stage + p * (kColumns / 64) * kBlock + down, kBlock, 1024, 1), 1);
      }
    }
    end_products();
    await_products<1>();
    slot = slot + 1 == kStages ? 0 : slot + 1;
    next = next + 1 == kStages ? 0 : next + 1;
  }
  await_products<0>();
#pragma unroll
  for (int p = 0; p < kProducts; ++p) hold(sums[p]);
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  if (kHalves == 2) {  // the second group's sums are added to the first's
    float* parts = reinterpret_cast<float*>(ring) + threadIdx.x % 128;
    if (group == 1) {
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) parts[128 * (p * (kColumns / 2) + i)] = sums[p][i];
      }
    }
    __syncthreads();
    if (group == 1) return;
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) sums[p][i] += parts[128 * (p * (kColumns / 2) + i)];
    }
  }
  float* to = a.partial + static_cast<long long>(blockIdx.x) * kD * kAll;
  const int row = (kHalves == 1 ? 64 * group : 0) + 16 * warp + g;
#pragma unroll
  for (int p = 0; p < kProducts; ++p) {
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += 2) {
      const int n = p * (kColumns / 8) + j;
      float* place = to + (static_cast<long long>(n / 4 * 4 + t) * kD + row) * 8 + 2 * (n % 4);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* x = sums[p] + 4 * j + 2 * h;
        *reinterpret_cast<float4*>(place + 64 * h) = make_float4(x[0], x[1], x[4], x[5]);
      }
    }
  }
}
