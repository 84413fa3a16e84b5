#pragma once
// A step of a model as segments, one a layer, with an exchange of features between two of them.
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "model/feature_exchange.h"
#include "model/run/forward.h"

namespace clebsch {

/// What run_segments() leaves.
struct SegmentedStep {
  at::Tensor energy;    ///< (N) fp64 eV without gradient, measured from the model's energy reference
  at::Tensor gradient;  ///< (E,3) fp64, d sum(weight * energy of all processes) / d edge_vec; undefined: not wanted
};

/// Evaluates a graph whose rows are the owned atoms alone (n_local = N = every entry of layer_rows) and whose further
/// nodes, M - N of them, are other processes'. The exchange is called as FeatureExchange says, whatever the numbers
/// are: checks for values that are not finite belong behind this. Each layer is differentiated by itself, so no
/// communication is part of autograd. weight: (N) fp64, undefined when no gradient is wanted. All tensors on the
/// model's device; graph as ops.schema says. Throws Error when a segment does not keep to its shapes.
SegmentedStep run_segments(Model::Impl& model, const at::Tensor& edge_vec, const at::Tensor& types,
                           const c10::List<at::Tensor>& graph, int64_t rows, const at::Tensor& weight,
                           FeatureExchange& exchange);

/// The width of each exchange, (layers - 1), found by evaluating a few atoms without other processes. Throws Error when
/// the file's segments and its forward() give different energies: then a step cannot be cut between layers.
std::vector<int64_t> find_exchange_widths(Model::Impl& model);

}  // namespace clebsch
