// Evaluating a model: tensors over the caller's arrays, forward, gradient by edge vectors, forces and virials.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/errors.h"
#include "model/device/device_run.h"
#include "model/device/device_scope.h"
#include "model/run/compute_points.h"
#include "model/run/extrapolation.h"
#include "model/run/forward.h"
#include "model/run/guarded.h"
#include "model/run/guards.h"
#include "model/run/host_graph.h"
#include "model/run/impl.h"
#include "model/run/segments.h"
#include "torch/edge_gradient_sum.h"

#ifdef CLEBSCH_HAS_CUDA
#include "cuda/runtime/tuned_plans.h"
#endif

namespace clebsch {

Outputs run_forward(Model::Impl& model, const at::Tensor& edge_vec, const at::Tensor& types,
                    c10::List<at::Tensor> graph) {
  std::vector<c10::IValue> inputs{edge_vec, types, std::move(graph)};
  const c10::IValue out = model.module.forward(std::move(inputs));
  return c10::impl::toTypedDict<std::string, at::Tensor>(out.toGenericDict());
}

at::Tensor atomic_energies(const Model::Impl& model, const Outputs& outputs, const at::Tensor& types, int64_t rows) {
  const auto found = outputs.find("atomic_energy");
  require(found != outputs.end(), "model {}: expected an output 'atomic_energy', got none", model.name);
  const at::Tensor energy = found->value();
  require(energy.scalar_type() == at::kDouble && energy.dim() == 1 && energy.size(0) == rows,
          "model {}: expected 'atomic_energy' of {} float64 values, got {} values of {}", model.name, rows,
          energy.numel(), at::toString(energy.scalar_type()));
  if (!model.reference.defined()) return energy;
  return energy.sub(model.reference.index_select(0, types.narrow(0, 0, rows)));
}

void read_energies(const Model::Impl& model, const double* data, int32_t n_local, Result& result) {
  result.atomic_energy.assign(data, data + n_local);
  result.energy = 0;
  for (int32_t i = 0; i < n_local; ++i) {
    if (!std::isfinite(data[i])) {
      fail(
          "model {}: the energy of row {} is {}; expected a finite number. Atoms may have come too close: look at the "
          "structure, or shorten the time step",
          model.name, i, data[i]);
    }
    result.energy += data[i];
  }
}

at::Tensor edge_gradient(const at::Tensor& energy, const at::Tensor& edge_vec, const at::Tensor& weight) {
  if (!energy.requires_grad()) return {};
  const ops::EdgeGradientSum sum(edge_vec);
  const at::Tensor gradient =
      sum.with(torch::autograd::grad({energy}, {edge_vec}, {weight}, std::nullopt, false, true)[0]);
  return gradient.defined() ? gradient.contiguous() : gradient;
}

void require_finite_forces(const Model::Impl& model, const std::vector<double>& forces) {
  const auto bad = std::find_if(forces.begin(), forces.end(), [](double f) { return !std::isfinite(f); });
  if (bad == forces.end()) return;
  fail(
      "model {}: a force on row {} is {}; expected a finite number. Atoms may have come too close: look at the "
      "structure, "
      "or shorten the time step",
      model.name, (bad - forces.begin()) / 3, *bad);
}

void name_output(const std::string& name, const at::Tensor& tensor, OutputKind kind, Result::Named& named) {
  const at::Tensor values = tensor.to(at::TensorOptions().device(at::kCPU).dtype(at::kDouble)).contiguous();
  named.name = name;
  named.kind = kind;
  named.shape.assign(values.sizes().begin(), values.sizes().end());
  named.values.assign(values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
}

void read_outputs(Model::Impl& model, const Outputs& outputs, const Request& request, const StepRows& rows,
                  Result& result) {
  const auto& names = model.metadata.shown.outputs;
  result.outputs.resize(request.outputs.size());
  for (std::size_t k = 0; k < request.outputs.size(); ++k) {
    const std::string& name = request.outputs[k];
    if (follows_from_features(model.metadata.shown, name)) {
      name_output(name, output_of_features(model, name), OutputKind::atom, result.outputs[k]);
      continue;
    }
    const auto known = std::find(names.begin(), names.end(), name);
    const auto found = outputs.find(name);
    require(known != names.end() && found != outputs.end(), "model {}: expected an output among {}, got '{}'",
            model.name, joined(names, " "), name);
    const OutputKind kind = model.metadata.shown.kinds[known - names.begin()];
    at::Tensor values = found->value().detach();
    if (kind == OutputKind::atom) {
      require(values.dim() > 0 && values.size(0) == rows.capacity,
              "model {}: expected per-atom output '{}' to have {} rows, got {}", model.name, name, rows.capacity,
              values.dim() > 0 ? values.size(0) : 0);
      values = values.narrow(0, 0, rows.rows);
    }
    require(kind != OutputKind::system || rows.whole,
            "model {}: output '{}' is of the whole system and made from all rows of a graph: expected rows of owned "
            "atoms alone, got ghosts' or a device's padding too. Use one rank with its periodic images folded and "
            "device cpu, or a model that gives it per atom: the sum over owned atoms is right everywhere",
            model.name, name);
    name_output(name, values, kind, result.outputs[k]);
  }
}

namespace {

void sum_forces(const GraphView& graph, const at::Tensor& gradient, const Request& request, Result& result) {
  EdgeForceTargets targets;
  const std::size_t nodes = graph.n_nodes;
  auto prepare = [&](bool wanted, std::vector<double>& values, std::size_t columns) {
    values.assign(wanted ? nodes * columns : 0, 0.0);
    return wanted ? values.data() : nullptr;
  };
  targets.forces = prepare(request.forces, result.forces, 3);
  targets.atom_virial = prepare(request.atom_virial, result.atom_virial, 6);
  targets.centroid_virial = prepare(request.centroid_virial, result.centroid_virial, 9);
  std::fill(std::begin(result.virial), std::end(result.virial), 0.0);
  if (request.virial) targets.virial = result.virial;
  if (!gradient.defined()) return;
  accumulate_edge_forces(graph, gradient.const_data_ptr<double>(), targets, at::get_num_threads());
}

void compute_whole(Model::Impl& model, const GraphView& graph, const Request& request, Result& result) {
  const bool gradients = wants_gradient(request);
  at::Tensor edge_vec = as_tensor(graph.edge_vec, {graph.n_edges, 3});
  edge_vec.requires_grad_(gradients);
  const at::Tensor types = as_tensor(graph.types, {graph.n_nodes});
  at::Tensor features;
  const Outputs outputs = keeps_features(model, request)
                              ? run_layers(model, edge_vec, types, graph_tensors(graph), features)
                              : run_forward(model, edge_vec, types, graph_tensors(graph));
  take_features(model, features, types, graph.n_local);
  const at::Tensor energy = atomic_energies(model, outputs, types, graph.n_rows);
  read_energies(model, energy.detach().contiguous().const_data_ptr<double>(), graph.n_local, result);
  const bool whole = graph.n_local == graph.n_rows && graph.n_rows == graph.n_nodes;
  read_outputs(model, outputs, request, {graph.n_rows, graph.n_rows, whole}, result);
  at::Tensor gradient;
  if (gradients) {
    at::Tensor weight = at::zeros({graph.n_rows}, energy.options().requires_grad(false));
    weight.narrow(0, 0, graph.n_local).fill_(1.0);
    gradient = edge_gradient(energy, edge_vec, weight);
  }
  sum_forces(graph, gradient, request, result);
  require_finite_forces(model, result.forces);
}

/// The same with the features of other processes' nodes from an exchange.
void compute_with_exchange(Model::Impl& model, const GraphView& graph, const Request& request,
                           FeatureExchange& exchange, Result& result) {
  const at::Tensor edge_vec = as_tensor(graph.edge_vec, {graph.n_edges, 3});
  at::Tensor weight;
  if (wants_gradient(request)) weight = at::ones({graph.n_rows}, at::TensorOptions().dtype(at::kDouble));
  const at::Tensor types = as_tensor(graph.types, {graph.n_nodes});
  const SegmentedStep step = run_segments(model, edge_vec, types, graph_tensors(graph), graph.n_rows, weight, exchange,
                                          keeps_features(model, request));
  read_energies(model, step.energy.const_data_ptr<double>(), graph.n_local, result);
  take_features(model, step.features, types, graph.n_local);
  Outputs outputs;
  outputs.insert("atomic_energy", step.energy);
  read_outputs(model, outputs, request, {graph.n_rows, graph.n_rows, false}, result);
  sum_forces(graph, step.gradient, request, result);
  require_finite_forces(model, result.forces);
}

void compute_on_cpu(Model::Impl& model, const GraphView& graph, const Request& request, Result& result,
                    FeatureExchange* exchange) {
  if (exchange) {
    compute_with_exchange(model, graph, request, *exchange, result);
  } else {
    compute_whole(model, graph, request, result);
  }
}

void check_exchanged_outputs(const Model::Impl& model, const Request& request) {
  for (const std::string& name : request.outputs) {
    require(name == "atomic_energy" || follows_from_features(model.metadata.shown, name),
            "model {}: expected atomic_energy alone where features are exchanged, got output '{}', which only forward "
            "makes; let processes have their neighbours' neighbours as ghosts",
            model.name, name);
  }
}

/// What a graph and a request must be for an exchange.
void check_exchange(const Model::Impl& model, const GraphView& graph, const Request& request) {
  const bool owned_rows =
      graph.n_local == graph.n_rows && std::all_of(graph.layer_rows, graph.layer_rows + graph.n_layers,
                                                   [&](int32_t rows) { return rows == graph.n_rows; });
  require(owned_rows,
          "model {}: expected rows of owned atoms alone where features are exchanged, got {} rows, {} of them owned",
          model.name, graph.n_rows, graph.n_local);
  check_exchanged_outputs(model, request);
}

}  // namespace

bool wants_gradient(const Request& request) {
  return request.forces || request.virial || request.atom_virial || request.centroid_virial || request.system_virials;
}

namespace {

/// The edges of a list at a step, in buffers of the model.
GraphView graph_of_points(Model::Impl& model, const PointsView& points, GraphView graph) {
  const PairListView& list = model.pairs;
  const double* cutoffs = model.metadata.shown.pair_cutoffs.data();
  const int types = static_cast<int>(model.metadata.shown.type_names.size()), threads = at::get_num_threads();
  model.row_ptr.resize(static_cast<std::size_t>(list.n_rows) + 1);
  graph.n_edges = count_edges(list, points, cutoffs, types, model.row_ptr.data(), threads);
  model.senders.resize(static_cast<std::size_t>(graph.n_edges));
  model.edge_vec.resize(3 * static_cast<std::size_t>(graph.n_edges));
  fill_edges(list, points, cutoffs, types, model.row_ptr.data(), model.senders.data(), model.edge_vec.data(), threads);
  graph.row_ptr = model.row_ptr.data();
  graph.senders = model.senders.data();
  graph.edge_vec = model.edge_vec.data();
  return graph;
}

DeviceRun& device_run(const Model::Impl& model) {
  require(model.run != nullptr, "model {}: expected a model on a device, got one on the CPU", model.name);
  return *model.run;
}

}  // namespace

void Model::compute(const GraphView& graph_in, const Request& request, Result& result, FeatureExchange* exchange) {
  Impl& model = *impl_;
  const GraphView graph = complete_graph(model, graph_in);
  if (exchange) check_exchange(model, graph, request);
  const auto size = [&] { return fmt::format("{} atoms and {} edges", graph.n_nodes, graph.row_ptr[graph.n_rows]); };
  guarded(model, request, size, [&] {
    if (!model.run) {
      compute_on_cpu(model, graph, request, result, exchange);
      return;
    }
    try {
      model.run->compute(graph, request, result, exchange);
    } catch (const Error&) {
      require_finite_vectors(model, graph);
      throw;
    }
  });
}

void take_pairs(Model::Impl& model, const PairListView& list) {
  const Metadata& metadata = model.metadata.shown;
  validate_pairs(list, static_cast<int>(metadata.type_names.size()));
  require(list.layer_rows == nullptr || list.n_layers == metadata.layers,
          "model {}: expected layer_rows of {} layers, got {}", model.name, metadata.layers, list.n_layers);
  require_types_in_use(model, list.types, list.n_nodes);
  model.pairs = list;
  if (list.layer_rows == nullptr) {
    model.pair_layer_rows.assign(metadata.layers, list.n_rows);
    model.pairs.layer_rows = model.pair_layer_rows.data();
    model.pairs.n_layers = metadata.layers;
  }
  ++model.pairs_version;
}

void Model::set_neighbours(const PairListView& list) { take_pairs(*impl_, list); }

GraphView graph_of_list(const PairListView& list) {
  GraphView graph;
  graph.n_local = list.n_local;
  graph.n_rows = list.n_rows;
  graph.n_nodes = list.n_nodes;
  graph.n_layers = list.n_layers;
  graph.layer_rows = list.layer_rows;
  graph.types = list.types;
  return graph;
}

void compute_points(Model::Impl& model, const PointsView& points, const Request& request, Result& result,
                    FeatureExchange* exchange) {
  const PairListView& list = model.pairs;
  require((points.positions || list.n_points == 0) && (points.cell || !list.shifts),
          "model {}: expected positions{}, got none", model.name, list.shifts ? " and a cell" : "");
  const GraphView graph = graph_of_list(list);
  if (exchange) check_exchange(model, graph, request);
  require_finite_points(list, points);
  const auto size = [&] { return fmt::format("{} atoms and {} pairs", list.n_nodes, list.pairs()); };
  guarded(model, request, size, [&] {
    if (model.run) {
      model.run->compute(list, model.pairs_version, graph, points, request, result, exchange);
    } else {
      compute_on_cpu(model, complete_graph(model, graph_of_points(model, points, graph)), request, result, exchange);
    }
  });
}

void Model::compute(const PointsView& points, const Request& request, Result& result, FeatureExchange* exchange) {
  Impl& model = *impl_;
  require(model.pairs_version > 0 && model.systems_version != model.pairs_version,
          "model {}: expected set_neighbours() before positions", model.name);
  compute_points(model, points, request, result, exchange);
}

DeviceGraph Model::reserve(int32_t rows, int32_t nodes, int64_t edges, void* stream) {
  DeviceRun& run = device_run(*impl_);
  DeviceGraph graph;
  const auto size = [&] { return fmt::format("{} atoms and {} edges", nodes, edges); };
  guarded(*impl_, {}, size, [&] { graph = run.reserve({rows, nodes, edges}, stream); });
  return graph;
}

DeviceResult Model::compute_reserved(int32_t rows, const Request& request, void* stream, Result& result,
                                     FeatureExchange* exchange, int32_t nodes) {
  DeviceRun& run = device_run(*impl_);
  if (exchange) check_exchanged_outputs(*impl_, request);
  DeviceResult there;
  const auto size = [&] {
    return fmt::format("room for {} atoms and {} edges", run.report().nodes, run.report().edges);
  };
  guarded(*impl_, request, size, [&] {
    there = run.compute_reserved(rows, request, stream, result, {exchange, rows, nodes});
  });
  return there;
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const Metadata& Model::metadata() const { return impl_->metadata.shown; }
Dtype Model::dtype() const { return impl_->dtype; }
const std::vector<double>& Model::isolated_energies() const { return impl_->isolated_energies; }
std::string Model::device() const { return impl_->device.device.str(); }
bool Model::has_messages() const {
#ifdef CLEBSCH_HAS_CUDA
  if (cuda::has_plan_messages()) return true;
#endif
  return !impl_->messages.empty();
}

std::vector<std::string> Model::take_messages() {
  std::vector<std::string> messages = std::exchange(impl_->messages, {});
#ifdef CLEBSCH_HAS_CUDA
  for (std::string& message : cuda::take_plan_messages()) messages.push_back(std::move(message));
#endif
  return messages;
}
RunReport Model::last_run() const {
  RunReport report = impl_->run ? impl_->run->report() : RunReport{};
  report.lists = impl_->lists;
  return report;
}
double Model::time_device(int repeats) {
  require(impl_->run != nullptr && repeats > 0, "model {}: expected a model on a device and at least one repeat",
          impl_->name);
  const RunGuard guard(impl_->threads, true);
  return impl_->run->time(repeats);
}

const std::vector<int64_t>& Model::exchange_widths() {
  Impl& model = *impl_;
  if (!model.exchange_widths) {
    guarded(
        model, {false, false, false, false, {}}, [] { return std::string("an atom of each type"); },
        [&] {
          const DeviceScope scope(model.device.device, std::nullopt);
          model.exchange_widths = find_exchange_widths(model);
        });
  }
  return *model.exchange_widths;
}

std::vector<TableReport> Model::tables(const Progress& progress) const {
  if (!impl_->reports) {
    const int threads = impl_->threads > 0 ? impl_->threads : at::get_num_threads();
    impl_->reports = report_tables(impl_->radial, impl_->table_bytes, threads, progress);
  }
  return *impl_->reports;
}

void Model::set_threads(int threads) {
  require(threads >= 0, "model {}: expected a thread count of at least 0, got {}", impl_->name, threads);
  impl_->threads = threads;
}

}  // namespace clebsch
