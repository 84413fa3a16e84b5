// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Who sends which rows to whom when features are exchanged. MPI alone, no LAMMPS, so that it is tested alone.
#include <mpi.h>

#include <vector>

#include "comm/halo_nodes.h"

namespace clebsch_lammps {

/// A rank to exchange with, and its part of a sequence.
struct HaloPeer {
  int rank = 0;
  int first = 0, count = 0;
};

/// Good for as long as the neighbour list. Nodes 0 .. owned - 1 are this rank's own rows, the next `remote` ones are
/// copies of rows of other ranks.
struct HaloPlan {
  int owned = 0, remote = 0;
  std::vector<HaloPeer> from;  ///< ascending by rank: node owned + first and the next ones are copies of its rows
  std::vector<HaloPeer> to;    ///< ascending by rank: it has copies of the rows that `rows` names from `first` on
  std::vector<int> rows;       ///< own rows that others have copies of, in the order of their nodes
};

/// Collective over `world`, which must carry no other messages at this time. `homes`: of this rank's remote nodes,
/// ascending (HaloNodes). `row_of_atom`: the row of each own atom by its local index, -1 for an atom that is no node;
/// there are `owned` rows. Throws std::runtime_error when another rank asks for an atom that is no node here, after all
/// messages, or when ranks are missing for `seconds` (0: no limit): the caller has to stop all ranks then.
HaloPlan make_halo_plan(MPI_Comm world, const std::vector<AtomHome>& homes, const std::vector<int>& row_of_atom,
                        int owned, double seconds = 0);

}  // namespace clebsch_lammps
