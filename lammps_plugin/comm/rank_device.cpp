// SPDX-License-Identifier: GPL-2.0-only
#include "comm/rank_device.h"

#include <mpi.h>

#include "comm.h"
#include "comm/device_reports.h"
#include "comm/node_turn.h"
#include "error.h"
#include "model/model.h"
#include "universe.h"

namespace clebsch_lammps {

std::string choose_device(LAMMPS_NS::LAMMPS* lmp, const std::string& device, int taken) {
  if (device == "cpu" || device == "cpu:padded") return device;
  // Partitions share the GPUs of a node, but each reads its input alone, so that only the ranks of this one can be
  // asked. The launcher has counted all; without its numbers, partitions are taken to fill nodes one after the other.
  int place = place_by_launcher();
  if (place < 0 && lmp->universe->nworlds > 1) place = lmp->universe->me;
  MPI_Comm node = node_communicator(lmp->world);
  const auto reports = gather_reports(lmp->world, node, place, taken, clebsch::visible_gpus);
  MPI_Comm_free(&node);
  const DeviceChoices choices = choose_devices(device, reports);
  if (!choices.error.empty()) lmp->error->all(FLERR, "Pair style clebsch: {}", choices.error);
  if (!choices.warning.empty() && lmp->comm->me == 0)
    lmp->error->warning(FLERR, "Pair style clebsch: {}", choices.warning);
  return choices.devices[lmp->comm->me];
}

}  // namespace clebsch_lammps
