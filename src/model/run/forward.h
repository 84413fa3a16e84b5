#pragma once
// Calling a loaded model's forward and its gradient: what the runs on the CPU and on a device share.
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include "model/run/impl.h"

namespace clebsch {

using Outputs = c10::Dict<std::string, at::Tensor>;

/// The model's named outputs. graph as ops.schema says; all tensors on the model's device.
Outputs run_forward(Model::Impl& model, const at::Tensor& edge_vec, const at::Tensor& types,
                    c10::List<at::Tensor> graph);

/// The output 'atomic_energy' (rows) fp64; throws Error when it is not that.
at::Tensor atomic_energies(const Model::Impl& model, const Outputs& outputs, int64_t rows);

/// d sum(weight * energy) / d edge_vec (E,3), contiguous; undefined when nothing depends on the vectors.
at::Tensor edge_gradient(const at::Tensor& energy, const at::Tensor& edge_vec, const at::Tensor& weight);

/// Fills energy and atomic_energy; throws Error naming the first row that is not finite.
void read_energies(const Model::Impl& model, const double* energies, int32_t n_local, Result& result);

/// Throws Error naming the first row whose force is not finite.
void require_finite_forces(const Model::Impl& model, const std::vector<double>& forces);

/// Copies the named outputs that were asked for; rows beyond `rows` of outputs with `capacity` rows are left out.
void read_outputs(const Model::Impl& model, const Outputs& outputs, const Request& request, int64_t rows,
                  int64_t capacity, Result& result);

}  // namespace clebsch
