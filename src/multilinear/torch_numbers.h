#pragma once
// Number types of torch as the kernels count them.
#include <ATen/core/Tensor.h>

#include "core/errors.h"

namespace clebsch {

/// 0 for float64, 1 for float32, 2 for float16, 3 for bfloat16: kFloat64 to kBfloat16 of both operations' kernels.
/// Throws Error that names the op and the tensor for any other type.
inline int number_of(const char* op, const char* name, at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 0;
    case at::kFloat:
      return 1;
    case at::kHalf:
      return 2;
    case at::kBFloat16:
      return 3;
    default:
      fail("{}: {}: expected float64, float32, float16 or bfloat16, got {}", op, name, at::toString(dtype));
  }
}

}  // namespace clebsch
