// SPDX-License-Identifier: GPL-2.0-only
#include "comm/one_voice.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace clebsch_lammps {

#ifdef MPI_STUBS
void wait_for_lower_voice(MPI_Comm) {}  // LAMMPS without MPI: one rank
#else
namespace {

constexpr int kTag = 31991, kReach = 256;
constexpr auto kGrace = std::chrono::milliseconds(500), kMost = std::chrono::milliseconds(20000);

/// Whether a rank below this one has failed as well. Messages of no bytes are short enough to go without the receiver.
bool lower_has_failed(int me, MPI_Comm world) {
  for (int rank = std::max(0, me - kReach); rank < me; ++rank) {
    int there = 0;
    MPI_Iprobe(rank, kTag, world, &there, MPI_STATUS_IGNORE);
    if (there) return true;
  }
  return false;
}

}  // namespace

void wait_for_lower_voice(MPI_Comm world) {
  int me = 0, ranks = 1;
  MPI_Comm_rank(world, &me);
  MPI_Comm_size(world, &ranks);
  if (ranks == 1) return;
  static char nothing = 0;
  for (int rank = me + 1; rank < std::min(ranks, me + 1 + kReach); ++rank) {
    MPI_Request request;
    MPI_Isend(&nothing, 0, MPI_BYTE, rank, kTag, world, &request);
    MPI_Request_free(&request);
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  bool lower = false;
  while (Clock::now() - start < (lower ? kMost : kGrace)) {
    lower = lower || lower_has_failed(me, world);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}
#endif

}  // namespace clebsch_lammps
