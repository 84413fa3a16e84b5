#pragma once
// The derivatives of tensor_product_conv as calls through the dispatcher; arguments and results as in ops.schema.
#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

namespace clebsch::ops {

using ConvGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using ConvSecondGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

ConvGradients call_conv_backward(const at::Tensor& grad_out, const at::Tensor& x, const at::Tensor& harmonics,
                                 const at::Tensor& weights, at::TensorList graph, int64_t layer,
                                 std::string_view problem, std::array<bool, 3> mask);

ConvSecondGradients call_conv_double_backward(const at::Tensor& grad_out, const at::Tensor& x,
                                              const at::Tensor& harmonics, const at::Tensor& weights,
                                              const std::optional<at::Tensor>& from_x,
                                              const std::optional<at::Tensor>& from_harmonics,
                                              const std::optional<at::Tensor>& from_weights, at::TensorList graph,
                                              int64_t layer, std::string_view problem, std::array<bool, 4> mask);

/// tensor_product_conv_double_backward as a sum of six calls of the ops of lower order, so that it can be
/// differentiated any number of times: the reference of fused kernels, and what is used where there is none. A
/// derivative to which nothing contributes is undefined.
ConvSecondGradients compose_conv_double_backward(const at::Tensor& grad_out, const at::Tensor& x,
                                                 const at::Tensor& harmonics, const at::Tensor& weights,
                                                 const std::optional<at::Tensor>& from_x,
                                                 const std::optional<at::Tensor>& from_harmonics,
                                                 const std::optional<at::Tensor>& from_weights, at::TensorList graph,
                                                 int64_t layer, std::string_view problem, std::array<bool, 4> mask);

}  // namespace clebsch::ops
