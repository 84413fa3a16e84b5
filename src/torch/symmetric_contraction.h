#pragma once
// What the devices' implementations of symmetric_contraction and its autograd functions share.
#include <ATen/core/Tensor.h>

#include <tuple>

namespace clebsch::ops {

/// Of grad_out, x and coefficients; undefined where not asked for.
using SymmetricGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

}  // namespace clebsch::ops
