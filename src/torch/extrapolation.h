#pragma once
#include <ATen/core/Tensor.h>

#include <string_view>

namespace clebsch::ops {

/// Arguments of clebsch::extrapolation, whatever their device: throws Error unless shapes and dtypes are those of
/// ops.schema.
void check_grades(const at::Tensor& x, const at::Tensor& types, const at::Tensor& transform, const at::Tensor& counts,
                  int64_t first, std::string_view grade);

}  // namespace clebsch::ops
