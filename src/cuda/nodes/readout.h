#pragma once
// Atomic energies from rows of features on CUDA: what clebsch::readout computes, in one launch each way.
#include <memory>

#include "cuda/kernels/readout.h"
#include "cuda/plan/scalar.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run.
class Readout {
 public:
  static std::shared_ptr<const Readout> make();
  /// scalar: the number type of features and weights.
  void forward(const ReadoutArguments& arguments, Scalar scalar, Stream stream) const;
  void backward(const ReadoutGradientArguments& arguments, Scalar scalar, Stream stream) const;

 private:
  Readout();
  KernelOf<ReadoutArguments> of_float_, of_double_;
  KernelOf<ReadoutGradientArguments> back_float_, back_double_;
};

}  // namespace clebsch::cuda
