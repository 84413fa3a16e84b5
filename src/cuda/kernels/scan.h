#pragma once
// Arguments of the kernels in scan.cu, for the device and for emit/scan.cpp.

namespace clebsch::cuda {

/// Device pointers.
struct ScanArguments {
  int* counts = nullptr;  ///< (count), become zero: ready to be counted in again or to hand out places
  int count = 0;
  int* tiles = nullptr;    ///< a number a tile of kScanTile counts, scratch
  int most = 0;            ///< offsets end here at the latest
  int* offsets = nullptr;  ///< (count + 1), written: min(sum of the counts before, most)
  int* total = nullptr;    ///< (1), written: the sum of all counts; null: not wanted
};

/// Threads of a block, and the counts of a tile, of which a thread takes kScanEach one after another.
constexpr int kScanThreads = 1024, kScanEach = 8, kScanTile = kScanThreads * kScanEach;

}  // namespace clebsch::cuda
