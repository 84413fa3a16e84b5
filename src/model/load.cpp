// Loading a model: validate, convert parameters, build tables, try one atom of each type.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "core/errors.h"
#include "core/problem/allegro_problem.h"
#include "core/problem/problem.h"
#include "model/device/device_run.h"
#include "model/device/device_scope.h"
#include "model/file/own_products.h"
#include "model/file/validate.h"
#include "model/run/extrapolation.h"
#include "model/run/first_layer.h"
#include "model/run/fused_readout.h"
#include "model/run/guards.h"
#include "model/run/impl.h"
#include "model/run/op_recorder.h"
#include "model/run/segments.h"
#include "model/run/trial_evaluation.h"

#ifdef CLEBSCH_HAS_CUDA
#include "cuda/interaction/interaction.h"
#endif

namespace clebsch {
namespace {

class MemoryReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit MemoryReader(const std::string& bytes) : bytes_(bytes) {}
  size_t size() const override { return bytes_.size(); }
  size_t read(uint64_t at, void* to, size_t count, const char*) const override {
    if (at >= bytes_.size()) return 0;
    count = std::min<size_t>(count, bytes_.size() - at);
    std::memcpy(to, bytes_.data() + at, count);
    return count;
  }

 private:
  const std::string& bytes_;
};

/// Runs one step of a load; a message may quote the file, so what is not printable in it is replaced.
template <typename F>
auto quoted(F&& step) {
  try {
    return step();
  } catch (const Error& error) {
    std::string text = error.what();
    for (char& c : text) c = c >= 32 && c < 127 ? c : '?';
    throw Error(text);
  }
}

torch::jit::Module load_module(const CheckedFile& file, const std::string& name) {
  try {
    torch::jit::Module module =
        torch::jit::load(std::make_shared<MemoryReader>(file.archive), c10::Device(c10::kCPU), false);
    validate_module(module, file.metadata, name);
    use_own_products(module);
    return module;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail("model file {} refused: torch cannot load it: {}", name, plain_message(error));
  }
}

/// The module and attribute of a dotted name that check_buffers has found to exist.
std::pair<torch::jit::Module, std::string> locate_buffer(torch::jit::Module module, const std::string& path) {
  std::size_t begin = 0;
  for (std::size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    module = module.attr(path.substr(begin, dot - begin)).toModule();
  }
  return {module, path.substr(begin)};
}

void convert_parameters(Model::Impl& model) {
  const auto dtype = model.dtype == Dtype::float64 ? at::kDouble : at::kFloat;
  auto replace = [&](const std::string& path, bool compute) {
    auto [module, name] = locate_buffer(model.module, path);
    at::Tensor tensor = module.attr(name).toTensor().detach();
    if (compute) tensor = tensor.to(dtype);
    module.setattr(name, tensor);
  };
  for (const auto& path : model.metadata.compute) replace(path, true);
  for (const auto& path : model.metadata.fp64) replace(path, false);
}

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

/// The radial buffers of one layer against its problem and the metadata; returns the networks in fp64.
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

std::vector<bool> types_in_use(const Model::Impl& model, const std::vector<std::string>& wanted) {
  const auto& names = model.metadata.shown.type_names;
  if (wanted.empty()) return std::vector<bool>(names.size(), true);
  std::vector<bool> in_use(names.size(), false);
  for (const auto& name : wanted) {
    const auto found = std::find(names.begin(), names.end(), name);
    require(found != names.end(), "model {}: expected types in use among {}, got '{}'", model.name, joined(names, " "),
            name);
    in_use[found - names.begin()] = true;
  }
  return in_use;
}

/// Why the GPU's kernels cannot run the model with this option; empty if they can.
std::string gpu_refusal(const Model::Impl& model, RadialMode mode) {
  const bool exact = mode == RadialMode::exact;
  const std::string& family = model.metadata.shown.family;
  if (exact && family == "allegro")
    return "the two-body part of an Allegro model runs there from tables alone (radial table)";
  for (const auto& entry : model.metadata.radial) {
    const RadialDescription radial = layer_radial(family, entry.problem).description;
    if (!radial.smooth_end())
      return "the model's radial functions jump at the cutoff (a network with LayerNorm behind the cutoff: "
             "apply_cutoff "
             "True), the kernels there need them to end in zero";
    if (exact && !radial.plain())
      return "radial functions with a distance transform, Gaussians, LayerNorm or a density run there from tables "
             "alone "
             "(radial table)";
  }
  return "";
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

/// Fills table and table_index of every layer; `networks` come from check_radial. Returns a layer's tables as splines
/// where a GPU's kernels read those: made from tables in fp64, because a spline's coefficients magnify the rounding of
/// what they are made from by up to 7.5.
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

/// Moves all tensors of the model to its device, the tables included; where a layer's kernels read splines, `splines`
/// replace its tables, and a first layer that is projected has `first`. When memory does not suffice, the Error says
/// the sizes of what was asked for.
void move_to_device(Model::Impl& model, const std::vector<at::Tensor>& splines,
                    const std::optional<ProjectedLayer>& first) {
  for (std::size_t k = 0; k < splines.size(); ++k) {
    if (!splines[k].defined()) continue;
    locate_buffer(model.module, model.metadata.radial[k].module + ".table").first.setattr("table", splines[k]);
  }
  if (first) {
    torch::jit::Module module = locate_buffer(model.module, first->module + ".table").first;
    module.setattr("table", first->table);
    module.setattr("table_index", first->table_index);
    if (!first->folded.empty()) {
      auto [owner, name] = locate_buffer(model.module, first->folded);
      owner.setattr(name, at::empty({0}, owner.attr(name).toTensor().options()));
    }
    model.table_bytes.front() = first->table.nbytes();
  }
  const auto move = [&](const std::string& path) {
    auto [module, name] = locate_buffer(model.module, path);
    module.setattr(name, module.attr(name).toTensor().to(model.device.device));
  };
  try {
    for (const auto& path : model.metadata.compute) move(path);
    for (const auto& path : model.metadata.fp64) move(path);
  } catch (const c10::OutOfMemoryError& error) {
    fail("model {}: its weights and radial tables do not fit on {}: {}", model.name, model.device.device.str(),
         plain_message(error));
  }
}

/// Runs the segments of the file once. What torch's interpreter throws there is of another class than Error.
void try_segments(Model::Impl& model) {
  try {
    find_exchange_widths(model);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail("model file {} refused: its layers cannot be evaluated one after the other: {}", model.name,
         plain_message(error));
  }
}

}  // namespace

Model::Impl::Impl() = default;
Model::Impl::~Impl() = default;

std::string plain_message(const std::exception& error) {
  // what() of a torch error names the functions of its stack: work that crashes when memory has run out.
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch ? of_torch->what_without_backtrace() : error.what();
  // torch's interpreter puts a traceback of the file's code before the message, and torch's C++ code puts one after it.
  const std::string mark = "RuntimeError: ";
  if (const auto at = text.rfind(mark); at != std::string::npos) text = text.substr(at + mark.size());
  if (const auto at = text.find("\nException raised from"); at != std::string::npos) text.resize(at);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_out_of_memory(const std::exception& error) {
  // An exception that passes through torch's interpreter arrives as another class: then its text has to tell.
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         plain_message(error).find("out of memory") != std::string::npos;
}

bool is_out_of_host_memory(const std::exception& error) {
  const std::string text = plain_message(error);
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr || text.find("std::bad_alloc") != std::string::npos ||
         text.find("DefaultCPUAllocator") != std::string::npos;
}

std::shared_ptr<Model> Model::load(const std::string& path, const LoadOptions& options) {
  return load_bytes(read_file_bytes(path), path, options);
}

std::shared_ptr<Model> Model::load_bytes(const std::string& bytes, const std::string& name,
                                         const LoadOptions& options) try {
  require(options.threads >= 0, "model {}: expected a thread count of at least 0, got {}", name, options.threads);
  const RunGuard guard(options.threads, false);
  CheckedFile file = quoted([&] { return validate_file(bytes, name); });
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->module = quoted([&] { return load_module(file, name); });
  impl->module.eval();
  fuse_readouts(impl->module);
  impl->metadata = std::move(file.metadata);
  impl->dtype = options.dtype.value_or(impl->metadata.shown.dtype);
  impl->threads = options.threads;
  impl->in_use = types_in_use(*impl, options.types_in_use);
  std::vector<RadialNetworks> networks;
  for (int k = 0; k < static_cast<int>(impl->metadata.radial.size()); ++k) {
    networks.push_back(quoted([&] { return check_radial(*impl, k); }));
  }
  quoted([&] { check_extrapolation(*impl); });
  impl->device = choose_device(options.device, gpu_refusal(*impl, options.radial));
  convert_parameters(*impl);
  std::vector<at::Tensor> splines;
  if (options.radial == RadialMode::table) splines = set_tables(*impl, networks, options);
  std::shared_ptr<Model> model(new Model(std::move(impl)));
  // The trial runs on the CPU even for a GPU: it shows faults of the file, and the recorder learns which ops, and so
  // which GPU kernels, a step needs.
  {
    const OpRecorder recorder;
    model->impl_->isolated_energies = try_isolated_atoms(*model, model->impl_->in_use, name, true);
    model->impl_->calls = recorder.calls();
    for (cuda::OpCall& call : model->impl_->calls) call.deterministic = options.deterministic;
  }
  const std::optional<ProjectedLayer> first = [&] {
    const RunDevice wanted = std::exchange(model->impl_->device, RunDevice{});
    std::optional<ProjectedLayer> made = project_first_layer(*model, *model->impl_);
    model->impl_->device = wanted;
    return made;
  }();
  // A step that is asked for grades runs the file's segments instead of its forward(). They are tried on the CPU, too.
  if (model->impl_->metadata.shown.training) {
    const RunDevice wanted = std::exchange(model->impl_->device, RunDevice{});
    quoted([&] { try_segments(*model->impl_); });
    model->impl_->device = wanted;
  }
  find_output_kinds(*model, model->impl_->metadata.shown, model->impl_->in_use, name);
  const DeviceScope scope(model->impl_->device.device, std::nullopt);
  if (options.energy == EnergyReference::interaction) {
    model->impl_->reference = at::tensor(model->impl_->isolated_energies, at::kDouble).to(model->impl_->device.device);
  }
  if (model->impl_->device.padded) {
    move_to_device(*model->impl_, splines, projects_here(model->impl_->device.device) ? first : std::nullopt);
    model->impl_->run = std::make_unique<DeviceRun>(*model->impl_, options.deterministic, options.cuda_graph);
    if (options.prepare_kernels && !model->impl_->device.device.is_cpu()) model->prepare(options.progress);
    if (options.prepare_kernels) try_isolated_atoms(*model, model->impl_->in_use, name, false);
  }
  return model;
} catch (const c10::Error& error) {
  fail("model {}: it cannot be loaded: {}", name, plain_message(error));
} catch (const std::bad_alloc& error) {
  fail("model {}: out of memory on the host while it is loaded ({})", name, error.what());
}

Metadata Model::inspect(const std::string& path) {
  CheckedFile file = quoted([&] { return validate_file(read_file_bytes(path), path); });
  const RunGuard guard(0, false);
  Impl impl;
  impl.name = path;
  impl.module = quoted([&] { return load_module(file, path); });
  impl.metadata = std::move(file.metadata);
  quoted([&] { check_extrapolation(impl); });
  return impl.metadata.shown;
}

}  // namespace clebsch
