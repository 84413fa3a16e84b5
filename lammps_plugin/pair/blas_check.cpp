// SPDX-License-Identifier: GPL-2.0-only
#include "pair/blas_check.h"

#include <exception>
#include <string>

#include "comm.h"
#include "error.h"
#include "model/model.h"
#include "pair/model_loading.h"

namespace clebsch_lammps {
namespace {

struct BlasCheck {
  std::string warning, error;
};

BlasCheck check_blas_of_process() {
  try {
    clebsch::keep_own_blas();
    const std::string message = clebsch::check_blas();
    // Another library may serve torch as well as its own; anything but "right" is no ground to compute forces on.
    const bool right = message.empty() || message.find("results are right") != std::string::npos;
    return right ? BlasCheck{message, ""} : BlasCheck{"", message};
  } catch (const std::exception& error) {
    return {"", error.what()};
  }
}

}  // namespace

void check_blas(LAMMPS_NS::LAMMPS* lmp) {
  static const BlasCheck found = check_blas_of_process();
  static bool warned = false;
  // At every call: another LAMMPS of this process may have ranks whose first call this is.
  stop_together(lmp, found.error);
  if (found.warning.empty() || warned || lmp->comm->me != 0) return;
  warned = true;
  lmp->error->warning(FLERR, "Pair style clebsch: {}", found.warning);
}

}  // namespace clebsch_lammps
