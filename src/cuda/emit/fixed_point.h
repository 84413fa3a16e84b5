#pragma once
// Sums of float32 terms that are the same bits in every order: kernels/fixed_point.h with its launches.
#include <cstdint>
#include <memory>

#include "cuda/kernels/fixed_point.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Kernels for the current device; calls are asynchronous on the stream.
class FixedPoint {
 public:
  static std::shared_ptr<const FixedPoint> make();
  /// Bytes of scratch memory for sums of (nodes, width).
  static int64_t workspace(int64_t nodes, int64_t width);
  /// Where sums, bad and largest lie in it.
  static void place(void* workspace, FixedPointArguments& arguments);

  /// Clears the workspace and finds the largest number of `data`. The caller then adds terms to `sums`.
  void begin(const FixedPointArguments& arguments, Stream stream) const;
  /// The sums as numbers.
  void end(const FixedPointArguments& arguments, Stream stream) const;

 private:
  FixedPoint();
  KernelOf<FixedPointArguments> largest_, numbers_;
};

}  // namespace clebsch::cuda
