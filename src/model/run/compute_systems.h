#pragma once
// What the calls of a model for systems share.
#include "model/run/impl.h"

namespace clebsch {

/// Bins along a cutoff in the search for pairs. Narrow bins leave the CPU fewer candidates; wide ones keep the lanes of
/// a GPU's warps busy.
constexpr int kHostBins = 2, kDeviceBins = 1;

bool on_gpu(const Model::Impl& model);

/// Throws Error for types that the model does not have, or not in use.
void check_types(const Model::Impl& model, const SystemsView& systems);

/// The counts and types of systems as a list without pairs; layer_rows (layers): atoms.
PairListView pairs_of_systems_list(const SystemList& list, const std::vector<int32_t>& layer_rows);

/// Energies and, where they were asked for, virials of the systems, from those of their atoms.
void sum_systems(const SystemsView& systems, bool virials, Result& result);

}  // namespace clebsch
