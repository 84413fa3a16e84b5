// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Which of several ranks that fail at once says so. MPI alone, no LAMMPS, so that it is tested alone.
#include <mpi.h>

namespace clebsch_lammps {

/// Not collective; to be called by a rank that has failed, before it says so and ends all. `doubt`: how far its message
/// may be from the cause; of ranks that fail at once the one with the least doubt is to speak, and the lowest of equal
/// ones. Tells the 256 next ranks on either side, and returns half a second later unless one that should speak instead
/// has told this one the same: then this rank waits to be ended by that one, and returns after 20 seconds if it is not.
/// Ranks that work are not involved. Messages have tag 31991 in `world`, which LAMMPS does not use.
void wait_for_better_voice(MPI_Comm world, double doubt);

/// To be called before a run: MPI then takes the memory that looking for such messages needs, of which there may be
/// none later, when a rank fails for want of it.
void prepare_voice(MPI_Comm world);

}  // namespace clebsch_lammps
