// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// The device that the model of this rank runs on: the rules of device_choice.h, asked with what LAMMPS's ranks see.
#include <string>

#include "lammps.h"

namespace clebsch_lammps {

/// Collective: `device` (auto, cpu or cuda) for this rank, as LoadOptions::device takes it; device_choice.h has the
/// rules. `taken`: the GPU that the host program has chosen for this rank, -1 for none. Rank 0 warns when ranks share a
/// GPU, or stay on the CPU because of one of them; all stop together when a rank's GPU does not start.
std::string choose_device(LAMMPS_NS::LAMMPS* lmp, const std::string& device, int taken = -1);

}  // namespace clebsch_lammps
