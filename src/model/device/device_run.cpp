#include "model/device/device_run.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/errors.h"
#include "model/device/device_scope.h"
#include "model/device/start_copy.h"
#include "model/run/extrapolation.h"
#include "model/run/guarded.h"
#include "torch/index_check.h"
#ifdef CLEBSCH_HAS_CUDA
#include "cuda/edges/edge_forces.h"
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {
namespace {

/// How many graphs in a row must be far below the capacities before the buffers shrink.
constexpr int kSmallSteps = 8;

bool allowed_by_environment() {
  const char* text = std::getenv("CLEBSCH_CUDA_GRAPH");
  return (!text || std::strcmp(text, "0") != 0) && !ops::checks_device_indices();
}

}  // namespace

DeviceRun::DeviceRun(Model::Impl& model, bool deterministic, bool cuda_graph)
    : model_(model), deterministic_(deterministic), wants_graph_(cuda_graph && allowed_by_environment()) {
  const c10::Device device = model.device.device;
  if (device.is_cpu()) {
    wants_graph_ = false;
    return;
  }
  // The model runs on a stream of its own, because the default stream cannot be recorded. Memory that torch allocates
  // for the buffers belongs to that stream too.
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

void DeviceRun::synchronize() const {
  if (stream_) stream_->synchronize();
}

bool DeviceRun::outgrown(const Capacity& need) {
  small_steps_ = buffers_ && far_below(buffers_->capacity(), need) ? small_steps_ + 1 : 0;
  return !buffers_ || !buffers_->capacity().holds(need) || small_steps_ >= kSmallSteps;
}

void DeviceRun::forget_recording() {
  last_.reset();  // it lives in the recording's memory, as do features
  for (auto& recorded : recorded_) recorded.reset();
  model_.features = model_.grades = at::Tensor();
  features_marked_ = false;
  graph_.reset();
  if (segments_) segments_->forget();
  warm_steps_[0] = warm_steps_[1] = 0;
}

void DeviceRun::prepare_for(bool points, bool exchanged) {
  if (points == from_points_ && exchanged == exchanged_) return;
  forget_recording();
  from_points_ = points;
  exchanged_ = exchanged;
  list_version_ = -1;
}

void DeviceRun::make_buffers(const Capacity& need) {
  const Capacity capacity = grown(buffers_ ? buffers_->capacity() : Capacity{}, need);
  const c10::Device device = model_.device.device;
  const bool recorded =
      (graph_ && (graph_->recorded(0) || graph_->recorded(1))) || (segments_ && segments_->recorded() > 0);
  release();  // before the new ones are made
  const auto in_use = std::find(model_.in_use.begin(), model_.in_use.end(), true);
  auto buffers = std::make_unique<DeviceBuffers>(device, capacity, model_.metadata.shown.layers,
                                                 static_cast<int32_t>(in_use - model_.in_use.begin()));
  const auto reals = at::TensorOptions().dtype(at::kDouble);
  const int64_t count = 9 + capacity.rows + 3 * capacity.nodes;
  results_ = at::zeros({count}, reals.device(device));
  staged_results_ = at::empty({count}, reals.pinned_memory(!device.is_cpu()));
  buffers_ = std::move(buffers);  // last: there are buffers when all that belongs to them fits
  small_steps_ = 0;
  report_.rows = capacity.rows;
  report_.nodes = capacity.nodes;
  report_.edges = capacity.edges;
  if (recorded) {
    model_.messages.push_back(fmt::format(
        "the system no longer fits the buffers of the recorded step: now room for {} atoms ({} with neighbors) and {} "
        "edges; the step is recorded again",
        capacity.nodes, capacity.rows, capacity.edges));
  }
}

void DeviceRun::find_graph() {
  if (!from_points_) return;
  points_->find_edges(*buffers_, at::get_num_threads());
  buffers_->transpose();
}

void DeviceRun::take_energies(const at::Tensor& energy) {
  results_.narrow(0, 9, buffers_->capacity().rows).copy_(energy);
}

void DeviceRun::take_gradient(const at::Tensor& gradient) {
  const Capacity& capacity = buffers_->capacity();
  const at::Tensor forces = results_.narrow(0, 9 + capacity.rows, 3 * capacity.nodes);
  const at::Tensor virial = results_.narrow(0, 0, 9);
  const at::Tensor systems = from_points_ ? points_->virials() : at::Tensor();
  if (!gradient.defined()) {
    forces.zero_();
    virial.zero_();
    if (systems.defined()) systems.zero_();
    return;
  }
  sum_on_device(gradient, forces.mutable_data_ptr<double>(), virial.mutable_data_ptr<double>(), nullptr, nullptr,
                systems.defined() ? systems.mutable_data_ptr<double>() : nullptr);
}

void DeviceRun::evaluate(bool gradients) {
  find_graph();
  const DeviceBuffers& b = *buffers_;
  at::Tensor edge_vec = b.edge_vec().detach();
  edge_vec.requires_grad_(gradients);
  last_.reset();
  auto made = std::make_shared<Evaluation>();
  made->outputs = keeps_features_
                      ? run_layers(model_, edge_vec, b.types(), b.graph_list(deterministic_), made->features)
                      : run_forward(model_, edge_vec, b.types(), b.graph_list(deterministic_));
  if (keeps_features_) mark_features();
  const at::Tensor energy = atomic_energies(model_, made->outputs, b.types(), b.capacity().rows);
  take_energies(energy.detach());
  if (gradients) {
    made->gradient = edge_gradient(energy, edge_vec, b.weight());
    take_gradient(made->gradient);
  }
  // Outputs are detached: the graph behind them, which torch keeps for gradients, would hold every layer's features.
  for (const auto& output : made->outputs) made->outputs.insert_or_assign(output.key(), output.value().detach());
  last_ = std::move(made);
  if (from_points_) fetch_results();  // of a recorded step, one launch does all
}

void DeviceRun::fetch_results() {
  start_copy(staged_results_, results_);
  if (from_points_) points_->fetch();
}

void DeviceRun::sum_on_device(const at::Tensor& gradient, double* forces, double* virial, double* atom_virial,
                              double* centroid_virial, [[maybe_unused]] double* system_virials) const {
  const DeviceBuffers& b = *buffers_;
  const Capacity& capacity = b.capacity();
  const int32_t rows = static_cast<int32_t>(capacity.rows), nodes = static_cast<int32_t>(capacity.nodes);
  if (model_.device.device.is_cpu()) {
    GraphView view;
    view.n_rows = rows;
    view.n_nodes = nodes;
    view.n_edges = capacity.edges;
    view.row_ptr = b.row_ptr().const_data_ptr<int32_t>();
    view.senders = b.senders().const_data_ptr<int32_t>();
    view.col_ptr = b.col_ptr().const_data_ptr<int32_t>();
    view.col_edge = b.col_edge().const_data_ptr<int32_t>();
    view.edge_vec = b.edge_vec().const_data_ptr<double>();
    const auto clear = [&](double* values, int64_t count) {
      if (values) std::fill_n(values, count, 0.0);
    };
    clear(forces, 3 * nodes);
    clear(virial, 9);
    clear(atom_virial, 6 * int64_t{nodes});
    clear(centroid_virial, 9 * int64_t{nodes});
    accumulate_edge_forces(view, gradient.const_data_ptr<double>(), {forces, virial, atom_virial, centroid_virial},
                           at::get_num_threads());
    return;
  }
#ifdef CLEBSCH_HAS_CUDA
  cuda::EdgeForceOperands o;
  o.edge_vec = b.edge_vec().const_data_ptr<double>();
  o.gradient = gradient.const_data_ptr<double>();
  o.row_ptr = b.row_ptr().const_data_ptr<int32_t>();
  o.col_ptr = b.col_ptr().const_data_ptr<int32_t>();
  o.col_edge = b.col_edge().const_data_ptr<int32_t>();
  o.rows = rows;
  o.nodes = nodes;
  if (system_virials) {
    o.system_rows = points_->system_rows().const_data_ptr<int32_t>();
    o.systems = static_cast<int32_t>(points_->capacity().systems);
  }
  const at::Tensor workspace =
      ops::scratch(cuda::EdgeForces::workspace(nodes, system_virials != nullptr), b.edge_vec());
  cuda::EdgeForces::make()->run(o, {forces, virial, atom_virial, centroid_virial, system_virials},
                                ops::address(workspace), ops::current_stream(model_.device.device));
#endif
}

void DeviceRun::try_to_record(bool gradients) {
  std::string reason;
  try {
    last_.reset();
    graph_->record(
        *stream_, [&] { evaluate(gradients); }, gradients);
    recorded_[gradients] = last_;
    ++report_.captures;
    return;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    reason = plain_message(error);
  }
  last_.reset();
  give_up_recording(reason);
}

void DeviceRun::give_up_recording(const std::string& reason) {
  for (auto& recorded : recorded_) recorded.reset();
  graph_.reset();
  wants_graph_ = false;
  model_.messages.push_back("steps are not recorded as a CUDA graph, which makes small systems slower: " + reason);
}

void DeviceRun::run(bool gradients, const Exchanging& with) {
  if (with.exchange) {
    run_segments(gradients, with);
  } else {
    run_whole(gradients);
  }
}

void DeviceRun::run_segments(bool gradients, const Exchanging& with) {
  if (!segments_) segments_ = std::make_unique<DeviceSegments>(model_, stream_, wants_graph_);
  last_.reset();
  const StepEnds ends{[this] { find_graph(); }, [this](const at::Tensor& energy) { take_energies(energy); },
                      [this](const at::Tensor& gradient) { take_gradient(gradient); }};
  segments_->keep_features(keeps_features_);
  const int before = segments_->recorded();
  segments_->run(*buffers_, deterministic_, ends, with, gradients);
  report_.replayed = segments_->replayed();
  report_.captures += segments_->recorded() - before;
  last_ = std::make_shared<Evaluation>();
  last_->outputs.insert("atomic_energy", results_.narrow(0, 9, buffers_->capacity().rows));
  if (gradients) last_->gradient = segments_->gradient();
  if (keeps_features_) last_->features = segments_->features();
}

void DeviceRun::run_whole(bool gradients) {
  report_.replayed = false;
  std::string reason;
  if (wants_graph_ && !graph_) {
    if (CudaGraph::available(&reason)) {
      graph_ = std::make_unique<CudaGraph>(model_.device.device);
    } else {
      give_up_recording(reason);
    }
  }
  if (graph_ && !graph_->recorded(gradients) && warm_steps_[gradients] >= kWarmSteps) try_to_record(gradients);
  if (graph_ && graph_->recorded(gradients)) {
    graph_->replay(*stream_, gradients);
    last_ = recorded_[gradients];
    report_.replayed = true;
  } else if (graph_) {
    // The steps before a recording use its memory pool as well, so that the recording reuses what they free.
    graph_->warm_up(*stream_, [&] { evaluate(gradients); });
  } else {
    evaluate(gradients);
  }
  ++warm_steps_[gradients];
}

void DeviceRun::extra_virials(const Request& request) {
  const int64_t nodes = buffers_->capacity().nodes;
  if (!extra_.defined()) {
    const auto reals = at::TensorOptions().dtype(at::kDouble);
    extra_ = at::zeros({15 * nodes}, reals.device(model_.device.device));
  }
  if (!last_->gradient.defined()) {
    extra_.zero_();
  } else {
    double* atoms = extra_.mutable_data_ptr<double>();
    sum_on_device(last_->gradient, nullptr, nullptr, request.atom_virial ? atoms : nullptr,
                  request.centroid_virial ? atoms + 6 * nodes : nullptr);
  }
}

void DeviceRun::read(const GraphView& graph, const Request& request, Result& result) {
  const Capacity& capacity = buffers_->capacity();
  const double* values = staged_results_.const_data_ptr<double>();
  const std::size_t nodes = static_cast<std::size_t>(graph.n_nodes);
  read_energies(model_, values + 9, graph.n_local, result);
  const double* forces = values + 9 + capacity.rows;
  result.forces.assign(forces, forces + (request.forces ? 3 * nodes : 0));
  std::fill(std::begin(result.virial), std::end(result.virial), 0.0);
  if (request.virial) std::copy_n(values, 9, result.virial);
  const auto take = [&](bool wanted, int64_t offset, std::size_t width, std::vector<double>& target) {
    const double* from = wanted ? staged_extra_.const_data_ptr<double>() + offset : nullptr;
    target.assign(from, from + (wanted ? width * nodes : 0));
  };
  take(request.atom_virial, 0, 6, result.atom_virial);
  take(request.centroid_virial, 6 * capacity.nodes, 9, result.centroid_virial);
  read_outputs(model_, last_->outputs, request, {graph.n_rows, capacity.rows, false}, result);
  require_finite_forces(model_, result.forces);
}

void DeviceRun::compute(const GraphView& graph, const Request& request, Result& result, FeatureExchange* exchange) {
  const DeviceScope scope(model_.device.device, stream_);
  synchronize();  // a step that failed may have left transfers under way
  const Clock::time_point start = Clock::now();
  prepare_for(false, exchange != nullptr);
  prepare_for(request);
  if (const Capacity need = Capacity::of(graph); outgrown(need)) make_buffers(need);
  buffers_->upload(graph, at::get_num_threads());
  const Clock::time_point uploaded = Clock::now();
  run_to_the_end(request, {exchange, graph.n_local, graph.n_nodes});
  finish(start, uploaded, graph, request, result);
}

void DeviceRun::compute(const PairListView& list, int64_t version, const GraphView& graph, const PointsView& points,
                        const Request& request, Result& result, FeatureExchange* exchange) {
  const DeviceScope scope(model_.device.device, stream_);
  synchronize();
  const Clock::time_point start = Clock::now();
  prepare_for(true, exchange != nullptr);
  prepare_for(request);
  // With an exchange no step may be done again by one process alone, so there is room for all that the list can give.
  Capacity need{list.n_rows, list.n_nodes, exchange ? list.pairs() : 0};
  const bool small = outgrown(need);
  if (small && exchange) {
    make_buffers(need);
  } else if (small) {
    // Only the device counts edges, and it needs buffers for that. For the first ones the host counts them once.
    std::vector<int32_t> row_ptr(static_cast<std::size_t>(list.n_rows) + 1);
    const Metadata& metadata = model_.metadata.shown;
    need.edges = count_edges(list, points, metadata.pair_cutoffs.data(), static_cast<int>(metadata.type_names.size()),
                             row_ptr.data(), at::get_num_threads());
    make_buffers(need);
  }
  Clock::time_point uploaded;
  for (;;) {
    fit_points({list.n_points, list.pairs(), 1, list.shifts != nullptr});
    if (list_version_ != version) {
      buffers_->upload_nodes(graph);
      points_->upload(list);
      list_version_ = version;
    }
    points_->upload(list, points);
    uploaded = Clock::now();
    run_to_the_end(request, {exchange, graph.n_local, graph.n_nodes});
    if (points_->found() <= buffers_->capacity().edges) break;
    require(!exchange, "model {}: {} edges of {} pairs, room for {}; please report this", model_.name, points_->found(),
            list.pairs(), buffers_->capacity().edges);
    // There were more edges than room, so the last rows lost some: the step is done again with more room.
    need.edges = points_->found();
    make_buffers(need);
  }
  finish(start, uploaded, graph, request, result);
}

void DeviceRun::run_to_the_end(const Request& request, const Exchanging& with) {
  run(wants_gradient(request), with);
  if (!from_points_ || with.exchange) fetch_results();
  if (request.atom_virial || request.centroid_virial) {
    extra_virials(request);
    if (!staged_extra_.defined())
      staged_extra_ =
          at::empty({extra_.numel()}, at::TensorOptions().dtype(at::kDouble).pinned_memory(stream_.has_value()));
    staged_extra_.copy_(extra_, true);
  }
  // A replay has left the host free: what it does here, it does while the device works.
  hand_over_features(request, with.owned);
  if (wants_grades(request)) start_grades();
  synchronize();
}

void DeviceRun::finish(Clock::time_point start, Clock::time_point uploaded, const GraphView& graph,
                       const Request& request, Result& result) {
  const Clock::time_point computed = Clock::now();
  read(graph, request, result);
  report_.upload_ms = milliseconds(start, uploaded);
  report_.compute_ms = milliseconds(uploaded, computed);
  report_.read_ms = milliseconds(computed, Clock::now());
}

double DeviceRun::time(int repeats) {
  require(buffers_ != nullptr && !exchanged_, "model {}: expected a step without an exchange before it is timed",
          model_.name);
  const DeviceScope scope(model_.device.device, stream_);
  run_whole(true);
  synchronize();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < repeats; ++i) run_whole(true);
  synchronize();
  return milliseconds(start, Clock::now()) / repeats;
}

}  // namespace clebsch
