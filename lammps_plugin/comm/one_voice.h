// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Which of several ranks that fail at once says so. MPI alone, no LAMMPS, so that it is tested alone.
#include <mpi.h>

namespace clebsch_lammps {

/// Not collective; to be called by a rank that has failed, before it says so and ends all. Tells the next 256 ranks, and
/// returns half a second later unless one of the 256 ranks below has told this one the same: then this rank waits to be
/// ended by that one, and returns after 20 seconds if it is not. Ranks that work are not involved. Messages have tag
/// 31991 in `world`, which LAMMPS does not use.
void wait_for_lower_voice(MPI_Comm world);

}  // namespace clebsch_lammps
