#pragma once
// Grades of extrapolation on CUDA: what clebsch::extrapolation computes, in one launch
// (docs/developers/extrapolation.md).
#include <cstdint>
#include <memory>

#include "cuda/kernels/grades.h"
#include "cuda/nodes/group_rows.h"
#include "cuda/plan/scalar.h"
#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// Kernels for the current device; calls are asynchronous on the stream and give the same bits in every run.
class Grades {
 public:
  static std::shared_ptr<const Grades> make();
  /// The kernel of a choice, which `make()` takes by the device.
  static std::shared_ptr<const Grades> make(bool tensor_cores);
  /// Bytes of scratch memory a call needs; `pooled`: all types share one transform.
  static int64_t workspace(const GradeArguments& arguments, bool pooled);
  /// Sets order and group_type of the arguments itself. features: the type of x.
  void run(GradeArguments arguments, Scalar features, bool pooled, void* workspace, Stream stream) const;

 private:
  explicit Grades(const char* source);
  KernelOf<GradeArguments> of_float_, of_double_, squares_of_float_, squares_of_double_;
};

}  // namespace clebsch::cuda
