// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Work that the first rank of a node does for the others: compiling GPU kernels into the cache on disk. MPI alone, no
// LAMMPS, so that it is tested alone.
#include <mpi.h>

#include <functional>
#include <string>

namespace clebsch_lammps {

/// Collective: the ranks of `world` that share this rank's memory. To be freed by the caller.
MPI_Comm node_communicator(MPI_Comm world);

/// Collective: the message of the lowest rank whose message is not empty, on every rank; "" when all are.
std::string first_message(const std::string& mine, MPI_Comm world);

/// The same on every rank.
struct TurnOutcome {
  std::string error;   ///< of the lowest rank that failed; "" when all succeeded
  std::string notice;  ///< why ranks of a node worked for themselves, of the lowest such node; "" when none did
};

/// Collective: on each node the first rank runs `work`; unless that failed, the other ranks then run it and find in the
/// cache what the first one left. When `cache_problem` of a node's first rank is not empty, nothing can be found there:
/// all its ranks work at once, each for itself. Nobody waits for a rank that failed: whatever `work` throws becomes the
/// outcome's error.
TurnOutcome work_in_turns(MPI_Comm world, MPI_Comm node, const std::string& cache_problem,
                          const std::function<void()>& work);

}  // namespace clebsch_lammps
