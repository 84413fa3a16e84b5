#pragma once
// The number type of an op of attention, and checks that its tensors have one.
#include <ATen/core/Tensor.h>

#include "core/errors.h"
#include "multilinear/attention/kernels/attention.h"
#include "multilinear/torch_device.h"
#include "multilinear/torch_numbers.h"

namespace clebsch::attention {

static_assert(kFloat64 == 0 && kFloat32 == 1 && kFloat16 == 2 && kBfloat16 == 3,
              "as multilinear/torch_numbers.h counts");

/// Of q, whose type the other tensors have.
inline int number_of(const char* op, at::ScalarType dtype) { return clebsch::number_of(op, "q", dtype); }

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
