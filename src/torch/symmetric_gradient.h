#pragma once
// The gradient of symmetric_contraction by its coefficients, made of at:: ops: for devices without a kernel of their
// own for it. Training alone wants it.
#include <ATen/core/Tensor.h>

#include "core/problem/symmetric_problem.h"

namespace clebsch::ops {

/// d sum(grad_out * out) / d coefficients, (type_count, K, C), on the device of x; with tangent_x, the change of that
/// along it. x, tangent_x (M, D*C), grad_out (M, W*C), types (M) int32; row_limit (1) int32 on the device, or
/// undefined: rows from there on, and rows of types out of range, count nothing. At most 256 MiB of temporaries at a
/// time. The sum over atoms is an index_add_: on CUDA its order is fixed only where torch's deterministic algorithms
/// are asked for. The caller has checked its arguments.
at::Tensor symmetric_coefficient_gradient(const SymmetricProblem& problem, const at::Tensor& grad_out,
                                          const at::Tensor& x, const at::Tensor& tangent_x, const at::Tensor& types,
                                          const at::Tensor& row_limit, int64_t type_count);

}  // namespace clebsch::ops
