// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// A model file on every rank: rank 0 reads, all ranks parse, and all ranks stop together when one fails.
#include <memory>
#include <string>

#include "lammps.h"
#include "model/model.h"

namespace clebsch_lammps {

/// Collective. Stops all ranks with the lowest rank's message when any rank's message is not empty.
void stop_together(LAMMPS_NS::LAMMPS* lmp, const std::string& message);

/// Collective. Rank 0 finds `file` (as given, else its name in LAMMPS_POTENTIALS), reads it and broadcasts the bytes;
/// every rank then checks and loads them.
std::shared_ptr<clebsch::Model> load_model(LAMMPS_NS::LAMMPS* lmp, const std::string& file,
                                           const clebsch::LoadOptions& options);

/// Collective: the GPU kernels of a loaded model for each rank's current device. The first rank of a node compiles
/// those that are not in the cache on disk, then the others find them there. All ranks stop together when a kernel
/// cannot be compiled; a cache that cannot be written costs a warning.
void prepare_kernels(LAMMPS_NS::LAMMPS* lmp, const clebsch::Model& model);

}  // namespace clebsch_lammps
