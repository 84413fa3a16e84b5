#include "cuda/emit/scan.h"

namespace clebsch::cuda {
namespace {

/// Counts of a tile that a thread takes, kScanThreads apart.
constexpr int kCountsEach = 8;
constexpr int kTile = kScanThreads * kCountsEach;

int64_t tiles_of(int64_t count) { return (count + kTile - 1) / kTile; }

}  // namespace

// A block of the second kernel adds up the tiles before its own by itself: there are few of them, and that way no block
// waits for another.
void write_scan(SourceWriter& w) {
  w.line("constexpr int kCountsEach = {}, kScanTile = kScanThreads * kCountsEach;", kCountsEach);
  w.text(
      "// The sum over the block, in all threads; sums holds a number a warp.\n"
      "__device__ __forceinline__ int block_sum(int value, int* sums) {\n"
      "for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);\n"
      "if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;\n"
      "__syncthreads();\n"
      "int sum = sums[threadIdx.x % 32];\n"
      "for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);\n"
      "__syncthreads();\n"
      "return sum;\n"
      "}\n"
      "// The sum of the threads before this one; *all: of all threads.\n"
      "__device__ __forceinline__ int sum_before(int value, int* sums, int* all) {\n"
      "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n"
      "int upto = value;\n"
      "for (int by = 1; by < 32; by *= 2) {\n"
      "const int other = __shfl_up_sync(0xffffffffu, upto, by);\n"
      "if (lane >= by) upto += other;\n"
      "}\n"
      "if (lane == 31) sums[warp] = upto;\n"
      "__syncthreads();\n"
      "int warps = sums[lane];\n"
      "for (int by = 1; by < 32; by *= 2) {\n"
      "const int other = __shfl_up_sync(0xffffffffu, warps, by);\n"
      "if (lane >= by) warps += other;\n"
      "}\n"
      "*all = __shfl_sync(0xffffffffu, warps, 31);\n"
      "const int earlier = __shfl_sync(0xffffffffu, warps, max(warp - 1, 0));\n"
      "__syncthreads();\n"
      "return upto - value + (warp > 0 ? earlier : 0);\n"
      "}");
  w.text(
      "extern \"C\" __global__ void __launch_bounds__(kScanThreads)\n"
      "scan_tiles(const int* __restrict__ counts, int count, int* __restrict__ tiles) {\n"
      "__shared__ int sums[32];\n"
      "const int begin = blockIdx.x * kScanTile, end = min(count - begin, kScanTile);\n"
      "int sum = 0;\n"
      "for (int i = threadIdx.x; i < end; i += kScanThreads) sum += counts[begin + i];\n"
      "sum = block_sum(sum, sums);\n"
      "if (threadIdx.x == 0) tiles[blockIdx.x] = sum;\n"
      "}");
  w.text(
      "extern \"C\" __global__ void __launch_bounds__(kScanThreads)\n"
      "scan_counts(int* __restrict__ counts, int count, const int* __restrict__ tiles, int most, int* __restrict__ "
      "offsets,\n"
      "int* __restrict__ total) {\n"
      "__shared__ int sums[32];\n"
      "const int first = blockIdx.x * kScanTile + threadIdx.x;\n"
      "int own[kCountsEach], before = 0;\n"
      "#pragma unroll\n"
      "for (int k = 0; k < kCountsEach; ++k) {\n"
      "const int i = first + k * kScanThreads;\n"
      "own[k] = i < count ? counts[i] : 0;\n"
      "}\n"
      "for (int tile = threadIdx.x; tile < static_cast<int>(blockIdx.x); tile += kScanThreads) before += tiles[tile];\n"
      "before = block_sum(before, sums);\n"
      "#pragma unroll\n"
      "for (int k = 0; k < kCountsEach; ++k) {\n"
      "const int i = first + k * kScanThreads;\n"
      "int all;\n"
      "const int place = before + sum_before(own[k], sums, &all);\n"
      "if (i < count) {\n"
      "offsets[i] = min(place, most);\n"
      "counts[i] = 0;\n"
      "}\n"
      "before += all;\n"
      "}\n"
      "if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) {\n"
      "offsets[count] = min(before, most);\n"
      "if (total) *total = before;\n"
      "}\n"
      "}");
}

int64_t Scan::workspace(int64_t count) { return tiles_of(count); }

void Scan::run(int32_t* counts, int32_t count, int32_t most, int32_t* offsets, int32_t* total, int32_t* workspace,
               Stream stream) const {
  // One block even without counts: it writes the last offset and the total.
  const int64_t tiles = count > 0 ? tiles_of(count) : 1;
  if (tiles > 1) tiles_.launch(tiles, 1, kScanThreads, stream, {&counts, &count, &workspace});
  counts_.launch(tiles, 1, kScanThreads, stream, {&counts, &count, &workspace, &most, &offsets, &total});
}

}  // namespace clebsch::cuda
