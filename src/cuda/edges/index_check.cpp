#include "cuda/edges/index_check.h"

#include <algorithm>

#include "cuda/kernels/fixed_kernels.h"
#include "cuda/runtime/kept.h"

namespace clebsch::cuda {
namespace {

/// Blocks of a loop over `count` places.
int64_t blocks_of(int64_t count, int64_t a_block) {
  return std::clamp<int64_t>((count + a_block - 1) / a_block, 1, 4096);
}

/// CUDA's atomicMin knows long long; it and int64_t are the same 64 bits.
long long* for_atomics(int64_t* first) { return reinterpret_cast<long long*>(first); }

}  // namespace

std::shared_ptr<const IndexCheck> IndexCheck::make() {
  return one_a_device<IndexCheck>([] { return new IndexCheck(); });
}

IndexCheck::IndexCheck() {
  const std::vector<Kernel> kernels = load_fixed("index_check", {"check_offsets", "check_range", "check_receivers"});
  offsets_ = kernels[0];
  range_ = kernels[1];
  receivers_ = kernels[2];
}

void IndexCheck::offsets(const int32_t* offsets, int64_t rows, int64_t capacity, int64_t* first, Stream stream) const {
  offsets_.launch(blocks_of(rows + 1, kIndexCheckThreads), kIndexCheckThreads, stream,
                  {offsets, rows + 1, capacity, for_atomics(first)});
}

void IndexCheck::range(const int32_t* values, int64_t count, int64_t bound, int64_t* first, Stream stream) const {
  if (count == 0) return;
  range_.launch(blocks_of(count, kIndexCheckThreads), kIndexCheckThreads, stream,
                {values, count, bound, for_atomics(first)});
}

void IndexCheck::receivers(const int32_t* row_ptr, int64_t rows, const int32_t* receivers, int64_t* first,
                           Stream stream) const {
  if (rows == 0) return;
  receivers_.launch(blocks_of(rows, kIndexCheckWarps), kIndexCheckThreads, stream,
                    {receivers, rows, 0, for_atomics(first), row_ptr});
}

}  // namespace clebsch::cuda
