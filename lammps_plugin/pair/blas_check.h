// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Is the BLAS that torch calls in this process torch's own?
#include "lammps.h"

namespace clebsch_lammps {

/// Collective: torch's BLAS may have been captured by another library of the process. Warns, once a process, or stops
/// when a product comes out wrong.
void check_blas(LAMMPS_NS::LAMMPS* lmp);

/// What check_blas() adds to its message: what to do against it; "" when nobody knows.
void set_blas_remedy(const char* remedy);

}  // namespace clebsch_lammps
