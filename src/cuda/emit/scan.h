#pragma once
// From counts to offsets on CUDA: the middle step of every counting sort and of every row_ptr made on a device.
#include <cstdint>
#include <utility>

#include "cuda/emit/source_writer.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Threads of a block of the scan's kernels. A source that has them defines kScanThreads as this.
constexpr int kScanThreads = 1024;

/// Adds two kernels to a source, grid (tiles of the counts) each:
///   scan_tiles(const int* counts, int count, int* tiles): the sum of every tile
///   scan_counts(int* counts, int count, const int* tiles, int most, int* offsets, int* total)
///     offsets (count + 1) = min(sum of the counts before, most); *total (null: not wanted) = sum of all; counts become
///     zero, ready to be counted in again or to hand out places.
void write_scan(SourceWriter& w);

/// Launches them. Sums are of integers, so the result is the same in every run, however many blocks there are.
class Scan {
 public:
  Scan() = default;
  /// scan_tiles and scan_counts of a loaded module.
  Scan(Kernel tiles, Kernel counts) : tiles_(std::move(tiles)), counts_(std::move(counts)) {}

  /// Numbers (int32) of scratch memory that a call needs.
  static int64_t workspace(int64_t count);
  /// Device pointers, as write_scan() says. The sum must be below 2^31.
  void run(int32_t* counts, int32_t count, int32_t most, int32_t* offsets, int32_t* total, int32_t* workspace,
           Stream stream) const;

 private:
  Kernel tiles_, counts_;
};

}  // namespace clebsch::cuda
