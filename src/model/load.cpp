// Loading a model: validate, convert parameters, build tables, try one atom of each type.
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
#include "model/device/device_run.h"
#include "model/device/device_scope.h"
#include "model/file/own_products.h"
#include "model/file/validate.h"
#include "model/run/extrapolation.h"
#include "model/run/first_layer.h"
#include "model/run/fused_readout.h"
#include "model/run/guards.h"
#include "model/run/impl.h"
#include "model/run/load_radial.h"
#include "model/run/op_recorder.h"
#include "model/run/segments.h"
#include "model/run/trial_evaluation.h"

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

[[noreturn]] static void fail_without_memory(const std::string& name, const std::string& why) {
  fail("model {}: out of memory on the host while it is loaded ({})", name, why);
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
  if (is_out_of_host_memory(error)) fail_without_memory(name, plain_message(error));
  fail("model {}: it cannot be loaded: {}", name, plain_message(error));
} catch (const std::bad_alloc& error) {
  fail_without_memory(name, error.what());
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
