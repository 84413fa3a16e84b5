// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// What all ranks of a LAMMPS world see of GPUs. MPI alone, no LAMMPS, so that it is tested alone.
#include <mpi.h>

#include <functional>
#include <vector>

#include "comm/device_choice.h"

namespace clebsch_lammps {

/// Collective: the reports of all ranks, on every rank. `look` says what this one sees; whatever it throws becomes a
/// report of GPUs that cannot be used, so that every rank arrives here. `place`, `taken`: this rank's, as in
/// DeviceReport. `node`: the ranks of `world` that share this rank's memory.
std::vector<DeviceReport> gather_reports(MPI_Comm world, MPI_Comm node, int place, int taken,
                                         const std::function<clebsch::VisibleGpus()>& look);

}  // namespace clebsch_lammps
