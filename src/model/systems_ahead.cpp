// Model::prepare_systems() and what follows it: batches of systems, whose results are fetched later.
#include <ATen/Parallel.h>

#include "core/errors.h"
#include "model/device/device_run.h"
#include "model/run/compute_points.h"
#include "model/run/compute_systems.h"
#include "model/run/guarded.h"
#include "model/run/impl.h"

namespace clebsch {
namespace {

using State = SystemsAhead::State;

SystemsAhead& ahead_at(Model::Impl& model, int place, State expected, const char* call) {
  require(place >= 0 && place < Model::kAhead, "{}: expected a place of 0 to {}, got {}", call, Model::kAhead - 1,
          place);
  SystemsAhead& ahead = model.ahead[place];
  require(expected == State::empty || ahead.state == expected, "{}: expected the call that comes before it", call);
  return ahead;
}

}  // namespace

void Model::prepare_systems(int place, const SystemsView& systems) {
  Impl& model = *impl_;
  SystemsAhead& ahead = ahead_at(model, place, State::empty, "prepare_systems");
  require(systems.count > 1, "prepare_systems: expected several systems, got {}", systems.count);
  const bool gpu = on_gpu(model);
  ahead.state = State::empty;
  ahead.list.forget();
  // One thread: this is done while the device computes, and a team of a second thread of the host would be started for
  // it in every call.
  ahead.list.update(systems, model.metadata.shown.r_max, 0.0, gpu ? kDeviceBins : kHostBins, 1);
  const SystemsView& points = ahead.list.points();
  check_types(model, points);
  if (gpu) {
    // Without the guards of a step: torch's count of threads, which they set, is partly the whole process's.
    try {
      model.run->prepare(place, ahead.list);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail("model {}: pairs of {} atoms: {}", model.name, points.atoms, plain_message(error));
    }
  }
  ahead.layer_rows.assign(model.metadata.shown.layers, points.atoms);
  ahead.pairs = pairs_of_systems_list(ahead.list, ahead.layer_rows);
  ahead.state = State::prepared;
}

void Model::start_systems(int place, int32_t room, const Request& request) {
  Impl& model = *impl_;
  SystemsAhead& ahead = ahead_at(model, place, State::prepared, "start_systems");
  require(request.outputs.empty() && !request.atom_virial && !request.centroid_virial && !request.keep_features,
          "start_systems: expected energies, forces and virials alone");
  ahead.request = request;
  ahead.room = room;
  ahead.state = State::empty;
  if (on_gpu(model)) {
    // The lists of other calls have nothing on the device any more.
    model.systems.forget();
    model.pairs = ahead.pairs;
    model.systems_version = ++model.pairs_version;
    ++model.lists;
    if (request.system_virials) ahead.request.virial = true;
    const auto size = [&] { return fmt::format("{} atoms", ahead.pairs.n_nodes); };
    guarded(model, ahead.request, size, [&] {
      model.run->start(place, ahead.list, model.pairs_version, graph_of_list(ahead.pairs), room, ahead.request);
    });
  }
  ahead.state = State::started;
}

const SystemsView& Model::finish_systems(int place, Request& request, Result& result) {
  Impl& model = *impl_;
  SystemsAhead& ahead = ahead_at(model, place, State::started, "finish_systems");
  const SystemsView& points = ahead.list.points();
  request = ahead.request;
  ahead.state = State::empty;
  bool finished = false;
  if (on_gpu(model)) {
    const auto size = [&] { return fmt::format("{} atoms", points.atoms); };
    guarded(model, request, size, [&] { finished = model.run->finish(place, ahead.list, request, result); });
  }
  // On the CPU there is nobody to work ahead; and on a GPU there may have been more edges than room.
  if (!finished) {
    compute(points, {0.0, ahead.room}, request, result);
  } else {
    sum_systems(points, false, result);
  }
  return points;
}

}  // namespace clebsch
