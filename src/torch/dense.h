#pragma once
#include <ATen/core/Tensor.h>

namespace clebsch::ops {

/// clebsch::dense through the dispatcher: x (M, k) or (k), weight (k, n) or (k), of one compute dtype and device. The
/// result's shape is matmul's: (M, n), (M), (n) or ().
at::Tensor dense(const at::Tensor& x, const at::Tensor& weight);

}  // namespace clebsch::ops
