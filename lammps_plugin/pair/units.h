// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// LAMMPS's units of energy; lengths are Angstrom in all that are accepted.
#include "lammps.h"

namespace clebsch_lammps {

/// Factor from eV to LAMMPS's energy unit: 1 for metal, kcal/mol per eV for real; stops for others.
double energy_factor(LAMMPS_NS::LAMMPS* lmp);

}  // namespace clebsch_lammps
