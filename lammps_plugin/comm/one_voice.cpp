// SPDX-License-Identifier: GPL-2.0-only
#include "comm/one_voice.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace clebsch_lammps {

#ifdef MPI_STUBS
void wait_for_better_voice(MPI_Comm, double) {}  // LAMMPS without MPI: one rank
void prepare_voice(MPI_Comm) {}
#else
namespace {

constexpr int kTag = 31991, kReach = 256;
constexpr auto kGrace = std::chrono::milliseconds(500), kMost = std::chrono::milliseconds(20000);

/// Whether a rank that should rather speak has failed as well.
bool better_has_failed(int me, double doubt, int first, int end, MPI_Comm world) {
  bool better = false;
  for (int rank = first; rank < end; ++rank) {
    int there = 0;
    if (rank != me) MPI_Iprobe(rank, kTag, world, &there, MPI_STATUS_IGNORE);
    if (!there) continue;
    double other = 0;
    MPI_Recv(&other, 1, MPI_DOUBLE, rank, kTag, world, MPI_STATUS_IGNORE);
    better = better || std::pair(other, rank) < std::pair(doubt, me);
  }
  return better;
}

}  // namespace

void wait_for_better_voice(MPI_Comm world, double doubt) {
  int me = 0, ranks = 1;
  MPI_Comm_rank(world, &me);
  MPI_Comm_size(world, &ranks);
  const int first = std::max(0, me - kReach), end = std::min(ranks, me + 1 + kReach);
  static double sent;  // messages may leave after this function
  sent = doubt;
  for (int rank = first; rank < end; ++rank) {
    if (rank == me) continue;
    MPI_Request request;
    MPI_Isend(&sent, 1, MPI_DOUBLE, rank, kTag, world, &request);
    MPI_Request_free(&request);
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  bool better = false;
  while (ranks > 1 && Clock::now() - start < (better ? kMost : kGrace)) {
    better = better || better_has_failed(me, doubt, first, end, world);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void prepare_voice(MPI_Comm world) {
  int me = 0, ranks = 1, there = 0;
  MPI_Comm_rank(world, &me);
  MPI_Comm_size(world, &ranks);
  if (ranks > 1) MPI_Iprobe((me + 1) % ranks, kTag, world, &there, MPI_STATUS_IGNORE);
}
#endif

}  // namespace clebsch_lammps
