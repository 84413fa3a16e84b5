#pragma once
// Outputs that no forward() makes: they follow from the last layer's features, of a step that is asked for them.
#include <string>

#include "model/run/forward.h"

namespace clebsch {

/// The name of the grade among outputs.
constexpr const char* kGrade = "extrapolation";
/// The name of the columns that a readout reads, (rows, features), which every file of `clebsch export` gives.
constexpr const char* kLastFeatures = "last_features";

/// The method of an Allegro file that gives (M, 1 + d), the energies of layer_0 with the features behind them.
constexpr const char* kInnerFeatures = "layer_0_features";

/// Whether the output is made here, from the last features, and not by the file's own forward().
bool follows_from_features(const Metadata& metadata, const std::string& output);

/// Whether a step has to keep its last features.
bool keeps_features(const Model::Impl& model, const Request& request);

/// Calls the last layer and returns what readout() reads. Where `features` is not null it becomes the layer's output
/// without gradient, in which Metadata::first_feature and features name the columns. Of an Allegro file another method
/// (kInnerFeatures) is called then, since its layer alone gives energies only.
at::Tensor last_layer(Model::Impl& model, const at::Tensor& x, const at::Tensor& edge_vec, const at::Tensor& types,
                      const c10::List<at::Tensor>& graph, at::Tensor* features);

/// As run_forward(), one layer after the other; `features` becomes what the last layer gave, without gradient.
Outputs run_layers(Model::Impl& model, const at::Tensor& edge_vec, const at::Tensor& types,
                   const c10::List<at::Tensor>& graph, at::Tensor& features);

/// Keeps the first `rows` rows for the outputs that follow from them; undefined features: keeps none.
void take_features(Model::Impl& model, const at::Tensor& features, const at::Tensor& types, int64_t rows);

/// The output of the rows of take_features(), on the model's device, or grades that are on the host already. Throws
/// Error when none were kept, or when the file does not give it.
at::Tensor output_of_features(Model::Impl& model, const std::string& name);

/// Compares the buffers of a file's grade with its metadata, their sizes, dtype and that they are finite, and keeps the
/// covariance. Throws Error naming file and buffer. Of a file without a grade: nothing.
void check_extrapolation(Model::Impl& model);

}  // namespace clebsch
