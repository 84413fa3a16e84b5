#pragma once
// The exact radial functions of every edge, for descriptions that ops on tensors do not compute.
#include <ATen/core/Tensor.h>

#include "core/problem/problem.h"

namespace clebsch::ops {

/// W (E, columns) of `dtype` from the networks of core/radial/radial_network.h in fp64, with its first derivative by
/// edge_vec for autograd; zero at and beyond the cutoff and for edges of rows that `layer` does not compute. The other
/// arguments are those of clebsch::interaction, on the CPU. Slow: the reference of the tables.
at::Tensor exact_radial(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                        at::TensorList radial, int64_t layer, const Problem& problem, at::ScalarType dtype);

/// Whether an op's radial functions have no table and come from the network itself.
inline bool is_exact(at::TensorList radial) { return radial.empty() || !radial[0].defined() || radial[0].numel() == 0; }

}  // namespace clebsch::ops
