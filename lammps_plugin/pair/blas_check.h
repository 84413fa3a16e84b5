// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Is the BLAS that torch calls in this process torch's own?
#include "lammps.h"

namespace clebsch_lammps {

/// Collective: torch's BLAS may have been captured by another library of the process, such as a LAMMPS that exports its
/// LINALG library. Gives torch its own back; warns, once a process, where that does not succeed, and stops when a
/// product comes out wrong.
void check_blas(LAMMPS_NS::LAMMPS* lmp);

}  // namespace clebsch_lammps
