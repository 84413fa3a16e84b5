#pragma once
#include <ATen/core/Tensor.h>

namespace clebsch::ops {

/// clebsch::dense through the dispatcher: x (M, k), weight (k, n) or (k), of one compute dtype and device; (M, n) or
/// (M).
at::Tensor dense(const at::Tensor& x, const at::Tensor& weight);

}  // namespace clebsch::ops
