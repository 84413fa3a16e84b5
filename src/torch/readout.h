#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace clebsch::ops {

/// The arguments of clebsch::readout, checked in shape and dtype, whatever their device.
struct ReadoutTensors {
  at::Tensor direct, hidden, last;  ///< undefined: none
  int64_t width = 0, hidden_count = 0, types = 0;
};

/// Throws Error unless shapes and dtypes are those of ops.schema.
ReadoutTensors check_readout(const at::Tensor& x, const std::optional<at::Tensor>& direct,
                             const std::optional<at::Tensor>& hidden, const std::optional<at::Tensor>& last,
                             const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& types);

}  // namespace clebsch::ops
