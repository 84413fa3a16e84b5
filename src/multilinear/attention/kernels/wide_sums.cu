// G = K^T K and M = K^T V of 16-bit numbers, and their gradients, by groups of four warps, for Hopper. Compiled with
// CLEBSCH_NUMBER, CLEBSCH_D and CLEBSCH_DV, which are 64 or 128.
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/attention/kernels/places.cuh"
#include "multilinear/attention/kernels/wide_tiles.cuh"

using namespace clebsch::attention;

constexpr int kD = CLEBSCH_D, kDv = CLEBSCH_DV, kAll = kD + kDv;
/// A group has 64 rows of the sums: both groups for d = 128, and for d = 64 each those of half of a stage's keys.
constexpr int kHalves = kD == 64 ? 2 : 1;
constexpr int kKeys = 32 * kHalves, kStages = kAll == 128 ? 6 : 8, kAhead = kStages - 2;
/// A stage has blocks of 64 columns, keys by lines of 128 bytes.
constexpr int kBlock = 128 * kKeys, kStage = kBlock * (kAll / 64);
constexpr int kTiles = kAll / 8, kTileVectors = 2 * kD;  // of four sums

/// Vectors of a stage for a thread, and the keys they are of.
constexpr int kParts = kKeys * (kAll / 8) / kWideThreads;
__device__ __forceinline__ int key_of(int part) {
  return (static_cast<int>(threadIdx.x) + part * kWideThreads) / (kAll / 8);
}

/// Which of a thread's keys there are, told a stage ahead: multiplicities take their time.
struct KeptKeys {
  bool kept[kParts];

  __device__ __forceinline__ void read(const KeyWeights& weights, long long from, long long end, bool& others) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const long long key = from + key_of(part);
      kept[part] = key < end && weights.keeps(key, others);
    }
  }
};

/// Copies keys `from` and on into a stage, zeros in place of those that are not kept.
__device__ __forceinline__ void copy_keys(char* stage, const unsigned short* k, const unsigned short* v, long long from,
                                          const KeptKeys& keys) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int key = key_of(part), vector = (threadIdx.x + part * kWideThreads) % (kAll / 8);
    const long long row = keys.kept[part] ? from + key : 0;
    const unsigned short* source = vector < kD / 8 ? k + row * kD + 8 * vector : v + row * kDv + 8 * vector - kD;
    copy_vector(stage + vector / 8 * kBlock + 128 * key + 16 * (vector % 8 ^ key % 8), source, keys.kept[part]);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Where the four sums `at` of a tile lie: those that lanes write or read at once are in different banks.
__device__ __forceinline__ int vector_at(int tile, int at) { return at ^ (tile % 2 + tile / 2 % 2 * 4); }

/// Four numbers at the same place in the shared memory of a block of the cluster.
template <int kCluster>
__device__ __forceinline__ float4 of_block(const float4* at, int block) {
  if constexpr (kCluster == 1) return *at;
  float4 x;
  asm volatile(
      "{\n.reg .b32 place;\nmapa.shared::cluster.u32 place, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [place];\n}"
      : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
      : "r"(shared_address(at)), "r"(block)
      : "memory");
  return x;
}

/// Adds the products of a stage's keys: of the 32 from `first` on, for the group's 64 rows of the sums, which are in
/// block `rows` of the stage.
template <int kProducts, int kColumns>
__device__ __forceinline__ void multiply_keys(float (&sums)[kProducts][kColumns / 2], unsigned stage, int rows,
                                              int first) {
  begin_products();
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const unsigned down = (first + 16 * step) * 128;
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
      multiply_group(sums[p], describe(stage + rows * kBlock + down, kBlock, 1024, 1),
                     describe(stage + p * (kColumns / 64) * kBlock + down, kBlock, 1024, 1), 1);
    }
  }
  end_products();
}

/// The same of queries, whose columns, as rows of the sums, are scaled in registers: by c1 for the columns of the
/// gradients, by c2 for those of the queries themselves.
template <int kProducts, int kColumns>
__device__ __forceinline__ void multiply_queries(float (&sums)[kProducts][kColumns / 2], const char* stage, int rows,
                                                 int first, const float2* factors, float by, float by_square) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, t = lane % 4;
  const unsigned address = shared_address(stage);
  unsigned of_gradients[2][4], of_queries[2][4];
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const int row = first + 16 * step + lane / 16 * 8 + lane % 8;
    unsigned x[4];
    load_transposed(x, reinterpret_cast<const unsigned short*>(stage + rows * kBlock + 128 * row +
                                                               16 * ((2 * warp + lane / 8 % 2) ^ row % 8)));
    const float2* of_step = factors + first + 16 * step + 2 * t;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float2 one = of_step[r / 2 * 8], two = of_step[r / 2 * 8 + 1];
      const float low = low_of(x[r]), high = high_of(x[r]);
      of_gradients[step][r] = pack(low * (one.x * by), high * (two.x * by));
      of_queries[step][r] = pack(low * (one.y * by_square), high * (two.y * by_square));
    }
  }
  begin_products();
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const unsigned down = (first + 16 * step) * 128;
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
      const unsigned long long right = describe(address + p * (kColumns / 64) * kBlock + down, kBlock, 1024, 1);
      if (p * kColumns < kD) {
        multiply_group<1>(sums[p], of_queries[step], right, 1);
      } else {
        multiply_group<1>(sums[p], of_gradients[step], right, 1);
      }
    }
  }
  end_products();
}

/// Sums of a chunk of keys, or of queries. The blocks of a cluster add theirs: to all sums of a head, split into two
/// 16-bit terms, where a head has one cluster; else to partial sums in the places of half_sums.cu.
template <bool kOfQueries, int kCluster>
__device__ __forceinline__ void sums_of_chunks(const HalfArguments& a) {
  // Columns of a product: those of queries have one kind of factor.
  constexpr int kColumns = (kOfQueries ? kD | kDv : kAll) % 128 == 0 ? 128 : 64, kProducts = kAll / kColumns;
  extern __shared__ __align__(1024) char memory[];
  __shared__ __align__(16) float2 factors[kOfQueries ? kStages * kKeys : 1];
  char* ring = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const int head = blockIdx.x / a.chunks, chunk = blockIdx.x % a.chunks;
  const int sequence = head / a.shape.key_heads, key_head = head % a.shape.key_heads;
  const int heads = kOfQueries ? a.shape.heads / a.shape.key_heads : 1, chunks = a.chunks / heads;
  const Rows all = kOfQueries ? query_rows(a.shape, sequence, key_head * heads + chunk / chunks)
                              : key_rows(a.shape, sequence, key_head);
  const KeyWeights weights(kOfQueries ? nullptr : a.multiplicity, multiplicity_row(a.shape, sequence));
  if (!kOfQueries && !a.multiplicity && chunk == 0 && threadIdx.x == 0) a.head_flags[head] = 0;
  if (!kOfQueries && a.readers && chunk == 0 && threadIdx.x < 2) a.readers[2 * head + threadIdx.x] = 0;
  bool others = false;
  KeptKeys kept;
  const Rows mine = chunk_of(all.count, chunks, chunk % chunks, kKeys);
  const unsigned short* left = static_cast<const unsigned short*>(kOfQueries ? a.q : a.k) + all.first * kD;
  const unsigned short* right = static_cast<const unsigned short*>(kOfQueries ? a.grad : a.v) + all.first * kDv;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const long long end = mine.first + mine.count;
  const int stages = static_cast<int>((mine.count + kKeys - 1) / kKeys);

  float sums[kProducts][kColumns / 2];
#pragma unroll
  for (int p = 0; p < kProducts; ++p) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sums[p][i] = 0.0f;
  }
  const auto copy = [&](int to, long long from) {
    if (kOfQueries && threadIdx.x < kKeys) {
      const bool there = from + threadIdx.x < end;
      copy_pair(factors + to * kKeys + threadIdx.x,
                a.coefficients + (all.first + (there ? from + threadIdx.x : 0)) * a.coefficient_step, there);
    }
    copy_keys(ring + to * kStage, left, right, from, kept);
    kept.read(weights, from + kKeys, end, others);
  };
  kept.read(weights, mine.first, end, others);
  const float by = kOfQueries ? row_power(a.largest + 3 * head) : 1.0f;
  const float by_square = kOfQueries ? square_power(a.largest + 3 * head) : 1.0f;
#pragma unroll
  for (int s = 0; s < kAhead; ++s) copy(s, mine.first + s * kKeys);
  int slot = 0, next = kAhead;
  for (int s = 0; s < stages; ++s) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - 1) : "memory");
    fence_copies();
    __syncthreads();  // the stage is there, and products of the stage before the last are done in all groups
    copy(next, mine.first + static_cast<long long>(s + kAhead) * kKeys);
    const char* stage = ring + slot * kStage;
    const int rows = kHalves == 1 ? group : 0, first = kHalves == 2 ? group * 32 : 0;
    if constexpr (kOfQueries) {
      multiply_queries<kProducts, kColumns>(sums, stage, rows, first, factors + slot * kKeys, by, by_square);
      await_products<0>();
    } else {
      multiply_keys<kProducts, kColumns>(sums, shared_address(stage), rows, first);
      await_products<1>();
    }
    slot = slot + 1 == kStages ? 0 : slot + 1;
    next = next + 1 == kStages ? 0 : next + 1;
  }
  await_products<0>();
  if (others) a.head_flags[head] = kOtherWeights;
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
    if (group == 0) {
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) sums[p][i] += parts[128 * (p * (kColumns / 2) + i)];
      }
    }
    __syncthreads();
  }
  // Tiles of eight columns in shared memory: of tile n rows, of a row eight places.
  float4* tiles = reinterpret_cast<float4*>(ring);
  if (kHalves == 1 || group == 0) {
    const int row = (kHalves == 1 ? 64 * group : 0) + 16 * warp + g;
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int j = 0; j < kColumns / 8; j += 2) {
        const int n = p * (kColumns / 8) + j, tile = n / 4 * 4 + t;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float* x = sums[p] + 4 * j + 2 * h;
          tiles[tile * kTileVectors + vector_at(tile, 2 * (row + 8 * h) + n % 4 / 2)] =
              make_float4(x[0], x[1], x[4], x[5]);
        }
      }
    }
  }
  meet_cluster<kCluster>();
  const int rank = kCluster == 1 ? 0 : static_cast<int>(blockIdx.x % kCluster);
  const bool all_of_head = a.chunks == kCluster;
  for (int tile = rank * (kTiles / kCluster) + threadIdx.x / 32; tile < (rank + 1) * (kTiles / kCluster);
       tile += kWideThreads / 32) {
    float4* mine = tiles + tile * kTileVectors;
    float4* partial = reinterpret_cast<float4*>(partial_of<kD * kAll / kCluster>(a, head)) +
                      (chunk / kCluster * kTiles + tile) * kTileVectors;
    double* to =
        a.sums ? a.sums + static_cast<long long>(head) * kD * kAll + 32 * (tile / 4) + 2 * (tile % 4) : nullptr;
    const float factor = kOfQueries ? sum_factor(a.largest + 3 * head, tile < kD / 8, true) : 1.0f;
    float most = 0.0f;
#pragma unroll 4
    for (int i = lane; i < kTileVectors; i += 32) {
      float4 sum = of_block<kCluster>(mine + vector_at(tile, i), 0);
#pragma unroll
      for (int block = 1; block < kCluster; ++block) {
        const float4 more = of_block<kCluster>(mine + vector_at(tile, i), block);
        sum.x += more.x;
        sum.y += more.y;
        sum.z += more.z;
        sum.w += more.w;
      }
      if (!all_of_head) {
        partial[i] = sum;
        continue;
      }
      if (kOfQueries) {
        sum.x *= factor;
        sum.y *= factor;
        sum.z *= factor;
        sum.w *= factor;
      }
      if (to) {
        double2* of_row = reinterpret_cast<double2*>(to + i / 2 * kAll + i % 2 * 16);
        double2 pair;
        pair.x = sum.x;
        pair.y = sum.y;
        of_row[0] = pair;
        pair.x = sum.z;
        pair.y = sum.w;
        of_row[4] = pair;
      }
      mine[vector_at(tile, i)] = sum;
      most = fmaxf(most, fmaxf(fmaxf(fabsf(sum.x), fabsf(sum.y)), fmaxf(fabsf(sum.z), fabsf(sum.w))));
    }
    if (!all_of_head) continue;
    for (int bits = 16; bits > 0; bits /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bits));
    __syncwarp();
    const auto term = [&](int row, int place) {
      return reinterpret_cast<const float*>(mine + vector_at(tile, 2 * row + place / 4))[place % 4];
    };
    if (lane == 0 && tile < kD / 8) {
      double trace = 0.0;
      for (int place = 0; place < 8; ++place) trace += term(column_of(tile, place), place);
      a.traces[head * (kD / 8) + tile] = static_cast<float>(trace);
    }
    write_wide_terms<kD, kTiles>(reinterpret_cast<uint4*>(fragments_of<kD * kAll>(a, head)),
                                 a.scales + static_cast<long long>(head) * kTiles + tile, term, most, tile, lane, 32);
  }
  meet_cluster<kCluster>();  // nobody's sums go before others have read them
}

/// Grid: key heads x chunks; clusters are of blocks that follow each other. A key head's chunks of queries are those of
/// its heads one after another.
extern "C" __global__ void __launch_bounds__(kWideThreads) wide_sums(HalfArguments a) { sums_of_chunks<false, 1>(a); }
extern "C" __global__ void __launch_bounds__(kWideThreads) __cluster_dims__(2, 1, 1) wide_sums_of_two(HalfArguments a) {
  sums_of_chunks<false, 2>(a);
}
extern "C" __global__ void __launch_bounds__(kWideThreads) __cluster_dims__(4, 1, 1)
    wide_sums_of_four(HalfArguments a) {
  sums_of_chunks<false, 4>(a);
}
extern "C" __global__ void __launch_bounds__(kWideThreads) wide_query_sums(HalfArguments a) {
  sums_of_chunks<true, 1>(a);
}
extern "C" __global__ void __launch_bounds__(kWideThreads) __cluster_dims__(2, 1, 1)
    wide_query_sums_of_two(HalfArguments a) {
  sums_of_chunks<true, 2>(a);
}
extern "C" __global__ void __launch_bounds__(kWideThreads) __cluster_dims__(4, 1, 1)
    wide_query_sums_of_four(HalfArguments a) {
  sums_of_chunks<true, 4>(a);
}
