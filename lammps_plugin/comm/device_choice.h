// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Which GPU each rank takes, from what all ranks see. Neither LAMMPS nor MPI, so that it is tested without GPUs.
#include <string>
#include <vector>

#include "model/model.h"

namespace clebsch_lammps {

/// What one rank sees.
struct DeviceReport {
  int node = 0;               ///< equal for ranks of one node
  std::string host;           ///< the node's name, for messages
  int place = -1;             ///< among all ranks of the job on this node, those of other partitions too; -1: unknown
  int taken = -1;             ///< index of the GPU that is fixed already (Kokkos's), -1: none
  clebsch::VisibleGpus gpus;  ///< those a model can be loaded on
};

/// The same on all ranks. `error` and `warning` are empty when there is nothing to say; after an error no rank may go
/// on.
struct DeviceChoices {
  std::vector<std::string> devices;  ///< by rank, as LoadOptions::device takes them: "cpu", "auto:N" or "cuda:N"
  std::string error, warning;
};

/// Chooses for `wanted`, "auto" or "cuda", and the reports of ranks 0, 1, ... of one LAMMPS world.
///
/// A rank takes the GPU that follows from its place on the node (places of partitions differ, although they know
/// nothing of each other), unless ranks of this world would share it while another of its visible GPUs has fewer: GPUs
/// are told apart by identity, so ranks that are shown one GPU each do not share. Where the places of a node are
/// unknown or not all different, its ranks are counted in the order of `reports`.
///
/// "auto" is the CPU for all when one rank sees no GPU, with a warning if another does; "cuda" is an error then. A GPU
/// that does not start is an error for both.
DeviceChoices choose_devices(const std::string& wanted, const std::vector<DeviceReport>& reports);

/// This process's number among those that the launcher started on the node, from the variable that the launcher sets;
/// -1 when none of the known ones is set.
int place_by_launcher();

}  // namespace clebsch_lammps
