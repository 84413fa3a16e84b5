// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Waits for other ranks that end: a rank that has died or hangs must not keep the others for ever. MPI alone, no
// LAMMPS, so that it is tested alone.
#include <mpi.h>

#include <cstddef>
#include <vector>

namespace clebsch_lammps {

/// Collective: the seconds that a wait of the exchange may take, from rank 0's CLEBSCH_COMM_TIMEOUT; 300 when it is not
/// set or empty, 0 for no limit. Throws std::runtime_error on all ranks when it is no number of seconds.
double comm_timeout(MPI_Comm world);

/// One request and the rank that it waits for, -1: all of them.
struct PendingMessage {
  MPI_Request request;
  int rank;
};

/// What a wait is for, for its error message alone: nothing is put together, or allocated, in a step that goes well.
struct Awaited {
  Awaited(const char* name) : what(name) {}  // NOLINT: a name alone is the usual case
  Awaited(const char* features, int behind) : what(features), layer(behind) {}
  const char* what;  ///< what is expected, or what is exchanged behind `layer`
  int layer = -1;    ///< -1: none
};

/// Returns when all messages have come and gone. Throws std::runtime_error naming the ranks that are missing when that
/// takes more than `seconds` (0: no limit). `bytes`: in all messages.
///
/// MPI is asked again and again, as its own waits do; after a time in which `bytes` should have been sent this thread
/// sleeps for 50 microseconds between two questions, so that a rank that is late on the same core gets it.
///
/// After an error the messages are given up, but a peer that comes late may still write into their memory: the caller
/// has to end the run.
void wait_for(std::vector<PendingMessage>& messages, std::size_t bytes, double seconds, const Awaited& awaited);

/// The most numbers of one reduction.
constexpr int kMostReduced = 16;

/// MPI_Allreduce in place with a deadline: `numbers` (count), at most kMostReduced, become those of all ranks. Errors
/// as of wait_for(), which leave `numbers` as they were; std::runtime_error for a count out of range. Allocates in a
/// thread's first call alone.
void reduce_over_ranks(double* numbers, int count, MPI_Op op, MPI_Comm world, double seconds, const Awaited& awaited);

}  // namespace clebsch_lammps
