#include "model/run/load_radial.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "core/problem/allegro_problem.h"
#include "core/problem/problem.h"

#ifdef CLEBSCH_HAS_CUDA
#include "cuda/interaction/interaction.h"
#endif

namespace clebsch {
namespace {

std::vector<double> as_doubles(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  const double* data = wide.const_data_ptr<double>();
  return {data, data + wide.numel()};
}

/// Radial functions of one layer as its problem describes them.
struct LayerRadial {
  RadialDescription description;
  int64_t own = 0;  ///< weights that every ordered pair of types has for itself, before the others in `network`
};

LayerRadial layer_radial(const std::string& family, const std::string& text) {
  if (family == "allegro") {
    const auto problem = cached_allegro_problem(text);
    return {problem->radial, problem->pair_weights()};
  }
  const auto problem = cached_problem(text);
  require(problem->radial.has_value(), "expected a problem with a radial part");
  return {*problem->radial, problem->radial->pair_weights()};
}

/// Whether the device's kernels read a layer's tables as splines (never Allegro's).
bool reads_splines(const Model::Impl& model, const RadialLayer& layer) {
#ifdef CLEBSCH_HAS_CUDA
  const auto scalar = model.dtype == Dtype::float64 ? cuda::Scalar::f64 : cuda::Scalar::f32;
  return model.device.device.is_cuda() && model.metadata.shown.family != "allegro" &&
         cuda::interaction_splines(static_cast<int64_t>(layer.cutoffs.size()), layer.networks.front()->description(),
                                   scalar);
#else
  (void)model, (void)layer;
  return false;
#endif
}

}  // namespace

std::pair<torch::jit::Module, std::string> locate_buffer(torch::jit::Module module, const std::string& path) {
  std::size_t begin = 0;
  for (std::size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    module = module.attr(path.substr(begin, dot - begin)).toModule();
  }
  return {module, path.substr(begin)};
}

RadialNetworks check_radial(const Model::Impl& model, int layer) {
  const auto& entry = model.metadata.radial[layer];
  auto tensor = [&](const char* buffer, at::ScalarType dtype, at::IntArrayRef shape) {
    const std::string path = entry.module + "." + buffer;
    const auto& compute = model.metadata.compute;
    const auto& fp64 = model.metadata.fp64;
    const bool known = std::find(compute.begin(), compute.end(), path) != compute.end() ||
                       std::find(fp64.begin(), fp64.end(), path) != fp64.end();
    require(known, "model file {}: layer {}: expected a tensor '{}', got none", model.name, layer, path);
    auto [module, name] = locate_buffer(model.module, path);
    const at::Tensor found = module.attr(name).toTensor();
    require(found.scalar_type() == dtype && found.sizes() == shape,
            "model file {}: layer {}: expected '{}' with {} items of {}, got {} of {}", model.name, layer, path,
            c10::multiply_integers(shape), at::toString(dtype), found.numel(), at::toString(found.scalar_type()));
    return found;
  };
  LayerRadial part;
  try {
    part = layer_radial(model.metadata.shown.family, entry.problem);
  } catch (const Error& error) {
    fail("model file {}: layer {}: {}", model.name, layer, error.what());
  }
  const auto stored = model.metadata.shown.dtype == Dtype::float64 ? at::kDouble : at::kFloat;
  const int64_t types = static_cast<int64_t>(model.metadata.shown.type_names.size());
  tensor("table", stored, {0});
  tensor("table_index", at::kInt, {0});
  const auto cutoffs = as_doubles(tensor("cutoffs", at::kDouble, {types, types}));
  for (std::size_t i = 0; i < cutoffs.size(); ++i) {
    require(cutoffs[i] == model.metadata.shown.pair_cutoffs[i],
            "model file {}: layer {}: expected the cutoffs of clebsch.json, got {} for {}", model.name, layer,
            cutoffs[i], model.metadata.shown.pair_cutoffs[i]);
  }
  const auto basis = as_doubles(tensor("basis", at::kDouble, {part.description.basis_values(types)}));
  const int64_t shared = part.description.weight_count() - part.own, pairs = part.own > 0 ? types * types : 0;
  const auto weights = as_doubles(tensor("network", stored, {pairs * part.own + shared}));
  for (const auto* values : {&basis, &weights}) {
    require(std::all_of(values->begin(), values->end(), [](double v) { return std::isfinite(v); }),
            "model file {}: layer {}: expected finite radial weights", model.name, layer);
  }
  return pair_networks(part.description, part.own, basis, weights, model.in_use);
}

std::string gpu_refusal(const Model::Impl& model, RadialMode mode) {
  const bool exact = mode == RadialMode::exact;
  const std::string& family = model.metadata.shown.family;
  if (exact && family == "allegro")
    return "the two-body part of an Allegro model runs there from tables alone (radial table)";
  for (const auto& entry : model.metadata.radial) {
    const RadialDescription radial = layer_radial(family, entry.problem).description;
    if (!radial.smooth_end())
      return "the model's radial functions jump at the cutoff (a network with LayerNorm behind the cutoff: "
             "apply_cutoff True), the kernels there need them to end in zero";
    if (exact && !radial.plain())
      return "radial functions with a distance transform, Gaussians, LayerNorm or a density run there from tables "
             "alone (radial table)";
  }
  return "";
}

std::vector<at::Tensor> set_tables(Model::Impl& model, const std::vector<RadialNetworks>& networks,
                                   const LoadOptions& options) {
  const auto dtype = model.dtype == Dtype::float64 ? at::kDouble : at::kFloat;
  const auto& metadata = model.metadata.shown;
  for (const auto& layer : networks) {
    model.radial.push_back(make_radial_layer(layer, metadata.pair_cutoffs, model.in_use));
    model.radial.back().splines = reads_splines(model, model.radial.back());
  }
  choose_pieces(model.radial, metadata.family, dtype, options.table_pieces, options.table_budget_bytes,
                options.progress);
  const int threads = options.threads > 0 ? options.threads : at::get_num_threads();
  const bool any_splines =
      std::any_of(model.radial.begin(), model.radial.end(), [](const RadialLayer& layer) { return layer.splines; });
  const auto tables = build_tables(model.radial, any_splines ? at::kDouble : dtype, threads, options.progress);
  std::vector<at::Tensor> splines(tables.size());
  const int64_t types = static_cast<int64_t>(metadata.type_names.size());
  for (std::size_t k = 0; k < tables.size(); ++k) {
    auto [module, name] = locate_buffer(model.module, model.metadata.radial[k].module + ".table");
    at::Tensor index = at::empty({types, types}, at::TensorOptions().dtype(at::kInt));
    std::copy(model.radial[k].table_index.begin(), model.radial[k].table_index.end(),
              index.mutable_data_ptr<int32_t>());
    if (model.radial[k].splines) splines[k] = spline_tables(tables[k]).to(dtype);
    const at::Tensor table = tables[k].to(dtype);
    module.setattr("table", table);
    module.setattr("table_index", index);
    model.table_bytes.push_back(splines[k].defined() ? splines[k].nbytes() : table.nbytes());
  }
  return splines;
}

}  // namespace clebsch
