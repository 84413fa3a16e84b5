// SPDX-License-Identifier: GPL-2.0-only
#include "pair/units.h"

#include <string>

#include "core/units.h"
#include "error.h"
#include "update.h"

namespace clebsch_lammps {

double energy_factor(LAMMPS_NS::LAMMPS* lmp) {
  const std::string units = lmp->update->unit_style;
  if (units == "metal") return 1.0;
  if (units == "real") return clebsch::kKcalMolPerElectronVolt;
  lmp->error->all(FLERR,
                  "Pair style clebsch: expected units metal or real, got {}; put `units metal` at the top of the "
                  "input",
                  units);
}

}  // namespace clebsch_lammps
