#include "cuda/edges/index_check.h"

#include <algorithm>
#include <vector>

#include "cuda/emit/source_writer.h"

namespace clebsch::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

/// Blocks of a loop over `count` places.
int64_t blocks_of(int64_t count, int64_t a_block) {
  return std::clamp<int64_t>((count + a_block - 1) / a_block, 1, 4096);
}

}  // namespace

std::string index_check_source() {
  SourceWriter w;
  w.line("constexpr int kThreads = {}, kWarps = {};", kThreads, kWarps);
  w.text(
      "typedef long long int64;\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "check_offsets(const int* __restrict__ offsets, int64 rows, int64 capacity, int64* first) {\n"
      "const int64 threads = static_cast<int64>(gridDim.x) * kThreads;\n"
      "for (int64 i = static_cast<int64>(blockIdx.x) * kThreads + threadIdx.x; i <= rows; i += threads) {\n"
      "const int own = offsets[i];\n"
      "if (i == 0 ? own != 0 : own < offsets[i - 1] || own > capacity) atomicMin(first, i);\n"
      "}\n"
      "}");
  w.text(
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "check_range(const int* __restrict__ values, int64 count, int64 bound, int64* first) {\n"
      "const int64 threads = static_cast<int64>(gridDim.x) * kThreads;\n"
      "for (int64 i = static_cast<int64>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += threads) {\n"
      "if (values[i] < 0 || values[i] >= bound) atomicMin(first, i);\n"
      "}\n"
      "}");
  w.text(
      "// A warp a row.\n"
      "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
      "check_receivers(const int* __restrict__ row_ptr, int64 rows, const int* __restrict__ receivers, int64* first) "
      "{\n"
      "const int64 warps = static_cast<int64>(gridDim.x) * kWarps;\n"
      "for (int64 row = static_cast<int64>(blockIdx.x) * kWarps + threadIdx.x / 32; row < rows; row += warps) {\n"
      "for (int e = row_ptr[row] + threadIdx.x % 32; e < row_ptr[row + 1]; e += 32) {\n"
      "if (receivers[e] != row) atomicMin(first, static_cast<int64>(e));\n"
      "}\n"
      "}\n"
      "}");
  return w.str();
}

Cubin compile_index_check(int arch, const CubinCache& cache) {
  return cached_compile(cache, index_check_source(), "index_check", arch);
}

std::shared_ptr<const IndexCheck> IndexCheck::make() {
  return one_a_device<IndexCheck>([] { return std::shared_ptr<const IndexCheck>(new IndexCheck()); });
}

IndexCheck::IndexCheck() {
  const Cubin cubin = compile_index_check(device_limits(current_device()).arch, CubinCache::standard());
  const std::vector<Kernel> kernels = load_module(cubin.code, {"check_offsets", "check_range", "check_receivers"});
  offsets_ = kernels[0];
  range_ = kernels[1];
  receivers_ = kernels[2];
}

void IndexCheck::offsets(const int32_t* offsets, int64_t rows, int64_t capacity, int64_t* first, Stream stream) const {
  offsets_.launch(blocks_of(rows + 1, kThreads), 1, kThreads, stream, {&offsets, &rows, &capacity, &first});
}

void IndexCheck::range(const int32_t* values, int64_t count, int64_t bound, int64_t* first, Stream stream) const {
  if (count > 0) range_.launch(blocks_of(count, kThreads), 1, kThreads, stream, {&values, &count, &bound, &first});
}

void IndexCheck::receivers(const int32_t* row_ptr, int64_t rows, const int32_t* receivers, int64_t* first,
                           Stream stream) const {
  if (rows == 0) return;
  receivers_.launch(blocks_of(rows, kWarps), 1, kThreads, stream, {&row_ptr, &rows, &receivers, &first});
}

}  // namespace clebsch::cuda
