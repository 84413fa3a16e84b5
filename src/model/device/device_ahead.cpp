// Batches of systems on a GPU, whose host does not wait between two of them (docs/developers/systems.md, 11).
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "core/errors.h"
#include "model/device/device_run.h"
#include "model/device/device_scope.h"
#include "model/device/start_copy.h"
#include "model/run/extrapolation.h"
#include "model/run/guarded.h"
#ifdef CLEBSCH_HAS_CUDA
#include "torch/cuda_tensors.h"
#endif

namespace clebsch {

#ifdef CLEBSCH_HAS_CUDA
void DeviceRun::prepare(int place, const SystemList& list) {
  const c10::Device device = model_.device.device;
  // The count of pairs passes by the step that runs, on a stream that the device looks at first.
  if (!search_stream_)
    search_stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
  const DeviceScope scope(device, search_stream_);
  const cuda::DeviceTurn turn(device.index());  // this may be a thread that has done nothing yet
  DeviceAhead& ahead = ahead_[place];
  if (ahead.pending) ahead.done.wait();  // somebody gave up between start() and finish()
  ahead.pending = false;
  search_stream_->synchronize();  // a count that failed may have left transfers under way
  if (!ahead.search) ahead.search = std::make_unique<PairSearch>(device);
  ahead.search->count(list.grid(), list.points());
  search_stream_->synchronize();
}

void DeviceRun::start(int place, const SystemList& list, int64_t version, const GraphView& graph, int32_t room,
                      const Request& request) {
  const DeviceScope scope(model_.device.device, stream_);
  DeviceAhead& ahead = ahead_[place];
  const SystemsView& systems = list.points();
  const int64_t pairs = ahead.search->pairs(), atoms = std::max(systems.atoms, room);
  const PointCapacity points{atoms, pairs, systems.count, true};
  const bool grows = outgrown({atoms, atoms, 0});
  const bool changes = grows || !from_points_ || exchanged_ || !points_ ||
                       !points_->holds(points, buffers_->capacity().rows) ||
                       (!keeps_features_ && keeps_features(model_, request));
  if (changes) {
    synchronize();  // the step before uses what is given back here
  } else {
    staged_.wait();  // its transfers come from the areas that are filled below; it has begun, or soon will
  }
  ahead.pending = false;
  try {
    put(ahead, list, version, graph, room, request, grows);
  } catch (...) {
    synchronize();  // nothing of it is under way when the caller tries again
    throw;
  }
}

void DeviceRun::put(DeviceAhead& ahead, const SystemList& list, int64_t version, const GraphView& graph, int32_t room,
                    const Request& request, bool grows) {
  const SystemsView& systems = list.points();
  const int64_t pairs = ahead.search->pairs(), atoms = std::max(systems.atoms, room);
  prepare_for(true, false);
  prepare_for(request);
  if (grows) {
    Capacity need{atoms, atoms, 0};
    need.edges = expected_edges(pairs, model_.metadata.shown.r_max, list.grid().cutoff);
    make_buffers(need);
  }
  fit_points({atoms, pairs, systems.count, true});
  list_version_ = -1;
  buffers_->upload_nodes(graph);
  points_->upload(systems, *ahead.search);
  points_->upload(systems);
  list_version_ = version;
  void* const stream = ops::current_stream(model_.device.device);
  staged_.note(stream);
  run(wants_gradient(request), {});
  hand_over_features(request, graph.n_local);
  const at::Tensor& virials = points_->virials();
  const int64_t count = results_.numel() + virials.numel();
  const auto pinned = at::TensorOptions().pinned_memory(true);
  if (!ahead.results.defined() || ahead.results.numel() < count)
    ahead.results = at::empty({count}, pinned.dtype(at::kDouble));
  if (!ahead.found.defined()) ahead.found = at::empty({1}, pinned.dtype(at::kInt));
  start_copy(ahead.results.narrow(0, 0, results_.numel()), results_);
  start_copy(ahead.results.narrow(0, results_.numel(), virials.numel()), virials.view({-1}));
  start_copy(ahead.found, points_->found_on_device());
  ahead.done.note(stream);
  ahead.pending = true;
  ahead.capacity = buffers_->capacity();
}

bool DeviceRun::finish(int place, const SystemList& list, const Request& request, Result& result) {
  const DeviceScope scope(model_.device.device, stream_);
  DeviceAhead& ahead = ahead_[place];
  const Clock::time_point start = Clock::now();
  ahead.done.wait();
  const Clock::time_point computed = Clock::now();
  ahead.pending = false;
  if (*ahead.found.const_data_ptr<int32_t>() > ahead.capacity.edges) return false;
  const SystemsView& systems = list.points();
  const double* values = ahead.results.const_data_ptr<double>();  // as DeviceRun::results_, then virials of systems
  read_energies(model_, values + 9, systems.atoms, result);
  const double* forces = values + 9 + ahead.capacity.rows;
  result.forces.assign(forces, forces + (request.forces ? 3 * int64_t{systems.atoms} : 0));
  require_finite_forces(model_, result.forces);
  std::fill(std::begin(result.virial), std::end(result.virial), 0.0);
  if (request.virial) std::copy_n(values, 9, result.virial);
  result.atom_virial.clear();
  result.centroid_virial.clear();
  result.outputs.clear();
  const double* virials = forces + 3 * ahead.capacity.nodes;
  if (request.system_virials) result.system_virials.assign(virials, virials + 6 * int64_t{systems.count});
  report_.upload_ms = 0;
  report_.compute_ms = milliseconds(start, computed);
  report_.read_ms = milliseconds(computed, Clock::now());
  return true;
}
#else
void DeviceRun::prepare(int, const SystemList&) { fail("systems: this build has no GPU backend"); }
void DeviceRun::start(int, const SystemList&, int64_t, const GraphView&, int32_t, const Request&) {
  fail("systems: this build has no GPU backend");
}
bool DeviceRun::finish(int, const SystemList&, const Request&, Result&) {
  fail("systems: this build has no GPU backend");
}
#endif

}  // namespace clebsch
