// Points on a device, and a step of systems on a GPU: pairs are searched there when the list is new.
#include <algorithm>

#include "core/errors.h"
#include "model/device/device_run.h"
#include "model/device/device_scope.h"

namespace clebsch {

void DeviceRun::fit_points(const PointCapacity& need) {
  const int64_t rows = buffers_->capacity().rows;
  if (points_ && points_->holds(need, rows)) return;
  // The numbers of ghosts and pairs change with every list, so the buffers get an eighth more than needed.
  const auto reserve = [](int64_t count) { return std::min(count + count / 8 + 64, int64_t{2147483647}); };
  const Metadata& metadata = model_.metadata.shown;
  forget_recording();
  points_.reset();
  // A batch of smaller structures has more systems than the one before.
  const PointCapacity capacity{reserve(need.points), reserve(need.pairs), need.systems > 1 ? 2 * need.systems : 1,
                               need.shifts};
  points_ = std::make_unique<PointBuffers>(model_.device.device, rows, capacity, metadata.pair_cutoffs,
                                           static_cast<int>(metadata.type_names.size()));
  list_version_ = -1;
}

void DeviceRun::compute(const SystemList& list, int64_t version, const GraphView& graph, int32_t room,
                        const Request& request, Result& result) {
  const DeviceScope scope(model_.device.device, stream_);
  synchronize();  // a step that failed may have left transfers under way
  const Clock::time_point start = Clock::now();
  prepare_for(true, false);
  prepare_for(request);
  const SystemsView& systems = list.points();
  if (!search_) search_ = std::make_unique<PairSearch>(model_.device.device);
  if (version != searched_) {
    search_->count(list.grid(), systems);
    synchronize();
    searched_ = version;
  }
  const int64_t pairs = search_->pairs(), atoms = std::max(systems.atoms, room);
  Capacity need{atoms, atoms, 0};
  if (outgrown(need)) {
    need.edges = expected_edges(pairs, model_.metadata.shown.r_max, list.grid().cutoff);
    make_buffers(need);
  }
  Clock::time_point uploaded;
  for (;;) {
    fit_points({atoms, pairs, systems.count, true});
    if (list_version_ != version) {
      buffers_->upload_nodes(graph);
      points_->upload(systems, *search_);
      list_version_ = version;
    }
    points_->upload(systems);
    uploaded = Clock::now();
    run_to_the_end(request, {nullptr, graph.n_local, graph.n_nodes});
    if (points_->found() <= buffers_->capacity().edges) break;
    // There were more edges than room, so the last rows lost some: the step is done again with more room.
    need.edges = points_->found();
    make_buffers(need);
  }
  finish(start, uploaded, graph, request, result);
  if (request.system_virials && systems.count > 1) {
    const double* virials = points_->fetched_virials();
    result.system_virials.assign(virials, virials + 6 * int64_t{systems.count});
  }
}

}  // namespace clebsch
