#pragma once
// Number types of torch as the kernels of attention count them.
#include <ATen/core/Tensor.h>

#include "core/errors.h"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/torch_device.h"

namespace clebsch::attention {

inline int number_of(const char* op, at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return kFloat64;
    case at::kFloat:
      return kFloat32;
    case at::kHalf:
      return kFloat16;
    case at::kBFloat16:
      return kBfloat16;
    default:
      fail("{}: q: expected float64, float32, float16 or bfloat16, got {}", op, at::toString(dtype));
  }
}

/// What sums are kept in.
inline at::ScalarType real_of(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

/// The type and the device of `tensor` are q's.
inline void check_like(const char* op, const char* name, const at::Tensor& tensor, const at::Tensor& q) {
  require(tensor.scalar_type() == q.scalar_type(), "{}: {}: expected {} as q, got {}: convert one of them", op, name,
          at::toString(q.scalar_type()), at::toString(tensor.scalar_type()));
  require(tensor.device() == q.device(), "{}: {}: expected a tensor on {} as q, got one on {}", op, name,
          q.device().str(), tensor.device().str());
}

}  // namespace clebsch::attention
