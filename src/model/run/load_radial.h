// The radial functions of a model that is loaded: the file's buffers against its metadata, tables for its dtype.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <utility>
#include <vector>

#include "model/run/impl.h"

namespace clebsch {

/// The module that holds the tensor of a path "a.b.name", and that name; throws Error when there is none.
std::pair<torch::jit::Module, std::string> locate_buffer(torch::jit::Module module, const std::string& path);

/// The radial buffers of one layer against its problem and the metadata; returns the networks in fp64. Throws Error
/// with the file and the layer where a tensor lacks, has another shape or dtype, or holds numbers that are not finite.
RadialNetworks check_radial(const Model::Impl& model, int layer);

/// Why the GPU's kernels cannot run the model with this option; empty if they can.
std::string gpu_refusal(const Model::Impl& model, RadialMode mode);

/// Fills table and table_index of every layer; `networks` come from check_radial. Returns a layer's tables as splines
/// where a GPU's kernels read those: made from tables in fp64, because a spline's coefficients magnify the rounding of
/// what they are made from by up to 7.5.
std::vector<at::Tensor> set_tables(Model::Impl& model, const std::vector<RadialNetworks>& networks,
                                   const LoadOptions& options);

}  // namespace clebsch
