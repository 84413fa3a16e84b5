#pragma once
// The gradient of edge_embedding made of differentiable ops: what its second and higher derivatives come from.
#include <ATen/core/Tensor.h>

#include <string_view>
#include <tuple>

namespace clebsch::ops {

/// edge_embedding through the dispatcher; arguments and results as in ops.schema.
std::tuple<at::Tensor, at::Tensor> call_edge_embedding(const at::Tensor& edge_vec, at::TensorList graph,
                                                       const at::Tensor& types, at::TensorList radial, int64_t layer,
                                                       std::string_view problem, at::ScalarType dtype);

/// What clebsch::edge_embedding_backward computes, (E, 3) fp64, as a function that autograd can differentiate by both
/// gradients and by edge_vec, any number of times.
///
/// Harmonics: with R_l the solid harmonics, Y_l(r) = R_l(r) / |r|^l, and the gradient of R_l is the coupling of (1,
/// l-1) to l with R_(l-1) (the derivative of a harmonic polynomial is one of a degree less), so harmonics of lower
/// degree are all that is needed.
at::Tensor edge_embedding_gradient(const at::Tensor& grad_harmonics, const at::Tensor& grad_basis,
                                   const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                                   at::TensorList radial, int64_t layer, std::string_view problem);

}  // namespace clebsch::ops
