#pragma once
// A first layer whose senders' features follow from their types: on a GPU its interaction is projected
// (core/radial/density_projection.h).
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "model/model.h"

namespace clebsch {

/// What stands for a layer's tables on a GPU (ops.schema).
struct ProjectedLayer {
  std::string module;      ///< where they lie
  std::string folded;      ///< the weight of a linear map that `table` has taken in and that is empty then; "": none
  at::Tensor table;        ///< (3, paths, slots, spline rows, channels) float32
  at::Tensor table_index;  ///< (T,T) int32: the slot of the second type, -1 for pairs that are not in use
};

/// Whether the device's ops know projections: those of a GPU, not the CPU's on padded buffers.
bool projects_here(const c10::Device& device);

/// Finds out whether the first layer of a model with tables can be projected. Its problem must allow it, and two
/// evaluations on the CPU must show that the features which it reads are the same for equal types and have no gradient.
/// If so, the calls in Model::Impl::calls become those of a projection, for GPUs. Returns none where it cannot be
/// projected, and also where an evaluation fails: the next evaluation of the model then reports the error.
std::optional<ProjectedLayer> project_first_layer(Model& model, Model::Impl& impl);

}  // namespace clebsch
