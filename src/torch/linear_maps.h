#pragma once
// The one place that multiplies feature rows by the weights of a LinearProblem; linear and species_linear share it.
#include <ATen/core/Tensor.h>

#include "core/problem/node_problem.h"

namespace clebsch::ops {

/// out = x W (or x W^T), block by block, written over all of `out`.
///
/// x (rows, in.dim()), out (rows, out.dim()), weight (weight_count): see LinearProblem; with `transposed` x has out's
/// columns and out has in's. All are contiguous, on the CPU. No autograd.
void multiply_blocks(const LinearProblem& problem, const at::Tensor& x, const at::Tensor& weight, bool transposed,
                     const at::Tensor& out);

/// d/dweight of sum(grad * multiply_blocks(x, weight, transposed)): (weight_count). Built from at:: ops, so it
/// differentiates again and runs on any device; x and grad as above. Training alone needs it.
at::Tensor weight_gradient(const LinearProblem& problem, const at::Tensor& x, const at::Tensor& grad, bool transposed);

}  // namespace clebsch::ops
