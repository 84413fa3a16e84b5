// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Which of several ranks that fail at once says so. MPI alone, no LAMMPS, so that it is tested alone.
#include <mpi.h>

namespace clebsch_lammps {

/// Of several ranks that fail at once, lets the one report whose message is closest to the cause. Not collective: a
/// rank that has failed calls it before it reports and ends all ranks. `doubt`: how far its message may be from the
/// cause; the rank with the least doubt is to report, of equal ones the lowest.
///
/// The rank tells its failure to the 256 ranks before it and the 256 behind it, and for half a second looks for the
/// same from them. It returns then, unless one of them should report instead. In that case it waits to be ended by that
/// rank, and returns after 20 seconds if it is not. Ranks that have not failed take no part. Messages have tag 31991 in
/// `world`, which LAMMPS does not use.
void wait_for_better_voice(MPI_Comm world, double doubt);

/// To be called before a run: MPI then takes the memory that looking for such messages needs, of which there may be
/// none later, when a rank fails for want of it.
void prepare_voice(MPI_Comm world);

}  // namespace clebsch_lammps
