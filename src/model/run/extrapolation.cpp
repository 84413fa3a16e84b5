#include "model/run/extrapolation.h"

#include <algorithm>
#include <cmath>

#include "core/errors.h"

namespace clebsch {
namespace {

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A buffer of the module `grade`; load has found that the file lists all of its tensors.
at::Tensor grade_buffer(const Model::Impl& model, const char* buffer, at::IntArrayRef shape) {
  const std::string path = std::string("grade.") + buffer;
  require(has(model.metadata.fp64, path), "model file {}: expected a tensor '{}' in fp64, got none", model.name, path);
  const at::Tensor found = model.module.attr("grade").toModule().attr(buffer).toTensor();
  bool fits = found.scalar_type() == at::kDouble && found.dim() == static_cast<int64_t>(shape.size());
  for (std::size_t k = 0; fits && k < shape.size(); ++k) fits = shape[k] < 0 || found.size(k) == shape[k];
  require(fits, "model file {}: expected '{}' to have the shape ({}) in float64 (-1: any), got ({}) in {}", model.name,
          path, joined(shape.vec(), ", "), joined(found.sizes().vec(), ", "), at::toString(found.scalar_type()));
  const double* values = found.const_data_ptr<double>();
  require(std::all_of(values, values + found.numel(), [](double v) { return std::isfinite(v); }),
          "model file {}: expected finite numbers in '{}'", model.name, path);
  return found;
}

}  // namespace

bool follows_from_features(const Metadata& metadata, const std::string& output) {
  return (output == kGrade && metadata.training) ||
         (output == kLastFeatures && metadata.features > 0 && !has(metadata.outputs, output));
}

bool keeps_features(const Model::Impl& model, const Request& request) {
  const auto& wanted = request.outputs;
  return request.keep_features || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
           return follows_from_features(model.metadata.shown, name);
         });
}

at::Tensor last_layer(Model::Impl& model, const at::Tensor& x, const at::Tensor& edge_vec, const at::Tensor& types,
                      const c10::List<at::Tensor>& graph, at::Tensor* features) {
  const Metadata& metadata = model.metadata.shown;
  // A network that is one op gives its features behind the energies, when it is asked for them.
  const bool inside = features != nullptr && metadata.family == "allegro" && metadata.features > 0;
  const std::string method = inside ? kInnerFeatures : "layer_" + std::to_string(metadata.layers - 1);
  const at::Tensor y = model.module.get_method(method)({x, edge_vec, types, graph}).toTensor();
  if (features != nullptr) *features = y.detach();
  if (!inside) return y;
  require(y.dim() == 2 && y.size(1) > 1, "model {}: expected {} to give energies and features, got ({})", model.name,
          method, joined(y.sizes().vec(), ", "));
  return y.select(1, 0);
}

Outputs run_layers(Model::Impl& model, const at::Tensor& edge_vec, const at::Tensor& types,
                   const c10::List<at::Tensor>& graph, at::Tensor& features) {
  const auto call = [&](const std::string& method, std::vector<c10::IValue> arguments) {
    return model.module.get_method(method)(std::move(arguments)).toTensor();
  };
  at::Tensor x = call("embed", {types});
  for (int k = 0; k + 1 < model.metadata.shown.layers; ++k)
    x = call("layer_" + std::to_string(k), {x, edge_vec, types, graph});
  x = last_layer(model, x, edge_vec, types, graph, &features);
  at::Tensor energy = call("readout", {x, types});
  if (model.module.find_method("pair_energy")) energy = energy.add(call("pair_energy", {edge_vec, types, graph}));
  const int64_t rows = graph.get(0).size(0) - 1;
  require(energy.dim() == 1 && energy.size(0) >= rows, "model {}: expected readout to give {} energies, got ({})",
          model.name, rows, joined(energy.sizes().vec(), ", "));
  Outputs outputs;
  outputs.insert("atomic_energy", energy.narrow(0, 0, rows));
  return outputs;
}

void take_features(Model::Impl& model, const at::Tensor& features, const at::Tensor& types, int64_t rows) {
  model.features = model.feature_types = model.grades = at::Tensor();
  if (!features.defined()) return;
  require(features.dim() == 2 && features.size(0) >= rows && types.size(0) >= rows,
          "model {}: expected the last layer to give {} rows of features, got ({})", model.name, rows,
          joined(features.sizes().vec(), ", "));
  model.features = features.narrow(0, 0, rows);
  model.feature_types = types.narrow(0, 0, rows);
  // On the CPU these are the caller's memory, which may be gone when the features are read.
  if (types.is_cpu()) model.feature_types = model.feature_types.clone();
}

at::Tensor output_of_features(Model::Impl& model, const std::string& name) {
  const Metadata& metadata = model.metadata.shown;
  require(follows_from_features(metadata, name),
          "model {}: expected a file with the output '{}', got one without; `clebsch export --extrapolation TRAIN.xyz` "
          "adds a grade",
          model.name, name);
  require(model.features.defined(), "model {}: expected a step that keeps its features before '{}' is read, got none",
          model.name, name);
  if (name == kLastFeatures) {
    const int64_t first = metadata.first_feature, count = metadata.features;
    require(model.features.size(1) >= first + count, "model {}: expected {} features at least, got {}", model.name,
            first + count, model.features.size(1));
    return model.features.narrow(1, first, count);
  }
  if (model.grades.defined()) return model.grades;
  const at::Tensor grade =
      model.module.get_method(kGrade)({model.features, model.feature_types.contiguous()}).toTensor().detach();
  require(grade.dim() == 1 && grade.size(0) == model.features.size(0) && grade.scalar_type() == at::kDouble,
          "model {}: expected {} grades of float64, got ({}) of {}", model.name, model.features.size(0),
          joined(grade.sizes().vec(), ", "), at::toString(grade.scalar_type()));
  return grade;
}

void check_extrapolation(Model::Impl& model) {
  const auto& training = model.metadata.shown.training;
  if (!training) return;
  const int64_t types = static_cast<int64_t>(training->counts.size()), width = model.metadata.shown.features;
  const int64_t matrices = training->pooled ? 1 : types;
  require(model.module.hasattr("grade") && model.module.attr("grade").isModule(),
          "model file {}: expected a module 'grade', got none", model.name);
  const auto grade = model.module.attr("grade").toModule();
  for (const char* buffer : {"transform", "counts", "covariance"})
    require(grade.hasattr(buffer) && grade.attr(buffer).isTensor(),
            "model file {}: expected a tensor 'grade.{}', got none", model.name, buffer);
  // Squares of the features, and 1, are features as well there (torch/extrapolation.h).
  const bool squares = training->grade == "squares";
  const int64_t most = squares ? 2 * width + 1 : width;
  const at::Tensor transform = grade_buffer(model, "transform", {matrices, squares ? 3 * width + 1 : width, -1});
  require(transform.size(2) >= (squares ? width : 1) && transform.size(2) <= most,
          "model file {}: expected 'grade.transform' of {} to {} columns, got {}", model.name, squares ? width : 1,
          most, transform.size(2));
  const at::Tensor counts = grade_buffer(model, "counts", {types});
  for (int64_t t = 0; t < types; ++t)
    require(counts.const_data_ptr<double>()[t] == static_cast<double>(training->counts[t]),
            "model file {}: expected 'grade.counts' to be the counts of clebsch.json, got {} for {}", model.name,
            counts.const_data_ptr<double>()[t], training->counts[t]);
  const at::Tensor covariance = grade_buffer(model, "covariance", {matrices, width, width});
  const double* values = covariance.const_data_ptr<double>();
  model.covariance.assign(values, values + covariance.numel());
}

}  // namespace clebsch
