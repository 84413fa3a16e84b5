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

/// The output 'atomic_energy' (rows) fp64, measured from the model's energy reference; throws Error when the output is
/// not that. types: of all nodes, rows first.
at::Tensor atomic_energies(const Model::Impl& model, const Outputs& outputs, const at::Tensor& types, int64_t rows);

/// d sum(weight * energy) / d edge_vec (E,3), contiguous; undefined when nothing depends on the vectors.
at::Tensor edge_gradient(const at::Tensor& energy, const at::Tensor& edge_vec, const at::Tensor& weight);

/// Fills energy and atomic_energy; throws Error naming the first row that is not finite.
void read_energies(const Model::Impl& model, const double* energies, int32_t n_local, Result& result);

/// Throws Error naming the first row whose force is not finite.
void require_finite_forces(const Model::Impl& model, const std::vector<double>& forces);

/// The rows of a step's tensors.
struct StepRows {
  int64_t rows;      ///< of the graph
  int64_t capacity;  ///< of the tensors, which a device's padding makes longer
  bool whole;        ///< all of them are owned atoms': neither ghosts nor padding
};

/// Copies a tensor of any device and dtype to an output of the result.
void name_output(const std::string& name, const at::Tensor& tensor, OutputKind kind, Result::Named& named);

/// Copies the named outputs that were asked for, per-atom ones without the padding. Throws Error where one has not the
/// shape of its kind, and for one of the system unless the rows are whole. Outputs that follow from the last features
/// (model/run/extrapolation.h) are those of the rows that were kept.
void read_outputs(Model::Impl& model, const Outputs& outputs, const Request& request, const StepRows& rows,
                  Result& result);

}  // namespace clebsch
