#pragma once
// All pairs of atoms within a cutoff, found on CUDA: core/pair_grid.h's find_pairs.
#include <cstdint>
#include <memory>

#include "cuda/emit/scan.h"
#include "cuda/kernels/pair_finder.h"

namespace clebsch::cuda {

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run.
class PairFinder {
 public:
  static std::shared_ptr<const PairFinder> make();
  /// Bytes of scratch memory count() needs.
  static int64_t workspace(int32_t atoms);
  /// Writes pair_ptr (atoms + 1) and the number of pairs (1), which must be below 2^31.
  void count(const PairFinderOperands& operands, void* workspace, int* pair_ptr, int* total, Stream stream) const;
  /// Writes neighbours and packed shifts (pairs) where pair_ptr says.
  void fill(const PairFinderOperands& operands, const int* pair_ptr, int* neighbours, int* shifts, Stream stream) const;

 private:
  PairFinder();
  KernelOf<PairFinderArguments> count_, fill_;
  std::shared_ptr<const Scan> scan_;
};

}  // namespace clebsch::cuda
