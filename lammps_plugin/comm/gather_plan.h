// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Where rows are when every rank has those of all. MPI alone, no LAMMPS, so that it is tested alone.
#include <mpi.h>

#include <vector>

#include "comm/halo_plan.h"

namespace clebsch_lammps {

/// Valid as long as the halo plan from which it was made. Row k of rank r has the place r * padded + k.
struct GatherPlan {
  int me = 0, ranks = 1;
  int owned = 0, remote = 0;
  int padded = 0;            ///< rows of each rank's slot: those of the rank that owns most
  std::vector<int> sources;  ///< (remote) the place of the row that each remote node is a copy of
  std::vector<int> rows;     ///< own rows that others have copies of, as HaloPlan::rows
  std::vector<int> places;   ///< of each, where its gradient arrives: this row in the slot of the rank with the copy
};

/// Collective over `world`, as make_halo_plan; waits longer than `seconds` (0: any) throw std::runtime_error.
GatherPlan make_gather_plan(MPI_Comm world, const HaloPlan& halo, double seconds = 0);

}  // namespace clebsch_lammps
