#pragma once
// From counts to offsets on CUDA: launches the kernels of kernels/scan.cu.
#include <memory>

#include "cuda/kernels/scan.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Kernels for the current device; calls are asynchronous on the stream. Sums are of integers, so the result is the
/// same in every run, however many blocks there are.
class Scan {
 public:
  static std::shared_ptr<const Scan> make();
  /// Numbers (int32) of scratch memory, ScanArguments::tiles, that a call needs.
  static int64_t workspace(int64_t count);
  /// The sum must be below 2^31.
  void run(const ScanArguments& arguments, Stream stream) const;

 private:
  Scan();
  KernelOf<ScanArguments> tiles_, counts_;
};

}  // namespace clebsch::cuda
