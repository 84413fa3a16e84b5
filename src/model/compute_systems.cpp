// Evaluating systems: the list that serves them, and results by system.
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "core/errors.h"
#include "model/device/device_run.h"
#include "model/run/compute_points.h"
#include "model/run/compute_systems.h"
#include "model/run/guarded.h"
#include "model/run/host_graph.h"
#include "model/run/impl.h"

namespace clebsch {

bool on_gpu(const Model::Impl& model) { return model.run && !model.device.device.is_cpu(); }

void check_types(const Model::Impl& model, const SystemsView& systems) {
  const int32_t count = static_cast<int32_t>(model.metadata.shown.type_names.size());
  for (int32_t i = 0; i < systems.atoms; ++i) {
    if (systems.types[i] < 0 || systems.types[i] >= count)
      fail("model {}: expected types of 0 to {}, got {} at atom {}", model.name, count - 1, systems.types[i], i);
  }
  require_types_in_use(model, systems.types, systems.atoms);
}

PairListView pairs_of_systems_list(const SystemList& list, const std::vector<int32_t>& layer_rows) {
  const SystemsView& systems = list.points();
  PairListView pairs;
  pairs.n_local = pairs.n_rows = pairs.n_nodes = pairs.n_points = systems.atoms;
  pairs.n_systems = std::max(systems.count, 1);
  pairs.types = systems.types;
  pairs.systems = systems.count > 1 ? list.grid().system_of.data() : nullptr;
  pairs.layer_rows = layer_rows.data();
  pairs.n_layers = static_cast<int>(layer_rows.size());
  return pairs;
}

namespace {

/// The list of these systems becomes the model's.
void take_list(Model::Impl& model, int threads) {
  const SystemsView& systems = model.systems.points();
  const PairGrid& grid = model.systems.grid();
  model.pair_layer_rows.assign(model.metadata.shown.layers, systems.atoms);
  PairListView pairs = pairs_of_systems_list(model.systems, model.pair_layer_rows);
  if (!on_gpu(model)) {
    find_pairs(grid, systems, threads, model.found);
    pairs.row_ptr = model.found.row_ptr.data();
    pairs.neighbours = model.found.neighbours.data();
    pairs.shifts = model.found.shifts.data();
    take_pairs(model, pairs);
    return;
  }
  check_types(model, systems);
  model.pairs = pairs;
  ++model.pairs_version;
}

}  // namespace

void sum_systems(const SystemsView& systems, bool virials, Result& result) {
  const std::size_t count = static_cast<std::size_t>(systems.count);
  result.system_energies.resize(count);
  for (std::size_t s = 0; s < count; ++s) {
    const double* energies = result.atomic_energy.data();
    result.system_energies[s] = std::accumulate(energies + systems.starts[s], energies + systems.starts[s + 1], 0.0);
  }
  if (!virials) return;
  result.system_virials.assign(6 * count, 0.0);
  if (count == 1) {
    const double* v = result.virial;
    result.system_virials = {v[0], v[4], v[8], 0.5 * (v[1] + v[3]), 0.5 * (v[2] + v[6]), 0.5 * (v[5] + v[7])};
    return;
  }
  for (std::size_t s = 0; s < count; ++s) {
    for (int32_t i = systems.starts[s]; i < systems.starts[s + 1]; ++i) {
      for (std::size_t c = 0; c < 6; ++c)
        result.system_virials[6 * s + c] += result.atom_virial[6 * static_cast<std::size_t>(i) + c];
    }
  }
}

void Model::compute(const SystemsView& systems, const SystemsOptions& options, const Request& wanted, Result& result) {
  Impl& model = *impl_;
  const bool gpu = on_gpu(model);
  const int threads = model.threads > 0 ? model.threads : at::get_num_threads();
  if (model.systems_version != model.pairs_version) model.systems.forget();  // another list has come in between
  if (!model.systems.update(systems, model.metadata.shown.r_max, options.skin, gpu ? kDeviceBins : kHostBins,
                            threads)) {
    model.systems_version = -1;  // until the list is taken
    take_list(model, threads);
    model.systems_version = model.pairs_version;
    ++model.lists;
  }
  const SystemsView& points = model.systems.points();
  Request request = wanted;
  const bool several = systems.count > 1;
  if (wanted.system_virials) (several && !gpu ? request.atom_virial : request.virial) = true;
  if (gpu) {
    const auto size = [&] { return fmt::format("{} atoms", points.atoms); };
    guarded(model, request, size, [&] {
      model.run->compute(model.systems, model.pairs_version, graph_of_list(model.pairs), options.room, request, result);
    });
  } else {
    compute_points(model, {points.positions, points.cells}, request, result, nullptr);
  }
  sum_systems(points, wanted.system_virials && !(gpu && several), result);
}

}  // namespace clebsch
