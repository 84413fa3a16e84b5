#pragma once
#include <ATen/core/Tensor.h>

#include "core/problem/node_problem.h"

namespace clebsch::ops {

/// The gate of x's first `rows` rows from at:: ops, on any device: the source of second and higher derivatives. The
/// other rows are zero.
at::Tensor gate_composite(const at::Tensor& x, int64_t rows, const GateProblem& problem);

}  // namespace clebsch::ops
