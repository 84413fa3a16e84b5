#pragma once
// A convolution whose weights are the same for every edge.
#include <ATen/core/Tensor.h>

#include <string_view>

namespace clebsch::ops {

/// tensor_product_conv with weights of shape (w,): the edges are summed first, by the convolution of the same paths
/// without weights, and the weights then act once a node instead of once an edge. Made of differentiable ops.
/// Arguments as the op's (ops.schema).
at::Tensor conv_with_shared_weights(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights,
                                    at::TensorList graph, int64_t layer, std::string_view problem);

/// The op itself, through the dispatcher.
at::Tensor call_conv(const at::Tensor& x, const at::Tensor& harmonics, const at::Tensor& weights, at::TensorList graph,
                     int64_t layer, std::string_view problem);

}  // namespace clebsch::ops
