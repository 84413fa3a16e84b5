// SPDX-License-Identifier: GPL-2.0-only
#include "comm/mpi_link.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace clebsch_lammps {
namespace {

/// A slot in numbers of MPI_FLOAT, whose bits nobody looks at: MPI's counts are int.
int floats(std::size_t bytes) {
  const std::size_t count = bytes / sizeof(float);
  if (bytes % sizeof(float) != 0 || count > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw std::runtime_error("comm gather: expected less than 8 GiB of features a rank, got " + std::to_string(bytes) +
                             " bytes; use comm halo");
  return static_cast<int>(count);
}

}  // namespace

MpiLink::MpiLink(MPI_Comm world, double seconds) : world_(world), seconds_(seconds) {
  MPI_Comm_rank(world_, &me_);
  MPI_Comm_size(world_, &ranks_);
}

template <typename Call>
std::size_t MpiLink::start(const std::vector<Message>& messages, const Call& call) {
  std::size_t bytes = 0;
  for (const Message& message : messages) {
    bytes += message.bytes;
    for (std::size_t begin = 0; begin < message.bytes; begin += kPiece) {
      pending_.emplace_back();
      pending_.back().rank = message.rank;
      call(message.data + begin, static_cast<int>(std::min(kPiece, message.bytes - begin)), MPI_BYTE, message.rank, 0,
           world_, &pending_.back().request);
    }
  }
  return bytes;
}

void MpiLink::exchange(const std::vector<Message>& sends, const std::vector<Message>& receives, const Round& round) {
  pending_.clear();
  const std::size_t received = start(receives, MPI_Irecv), sent = start(sends, MPI_Isend);
  wait_for(pending_, received + sent, seconds_, {round.what, round.layer});
}

// LAMMPS's own mpi.h, for builds without MPI, has neither collective calls that do not wait nor MPI_REQUEST_NULL; there
// is one rank then.

void MpiLink::all_gather(char* slots, std::size_t bytes, const Round& round) {
  if (ranks_ == 1 || bytes == 0) return;
#ifndef MPI_STUBS
  pending_.assign(1, {MPI_REQUEST_NULL, -1});
  MPI_Iallgather(MPI_IN_PLACE, 0, MPI_FLOAT, slots, floats(bytes), MPI_FLOAT, world_, &pending_[0].request);
  wait_for(pending_, bytes * static_cast<std::size_t>(ranks_), seconds_, {round.what, round.layer});
#endif
}

void MpiLink::all_to_all(char* out, char* in, std::size_t bytes, const Round& round) {
  if (ranks_ == 1 || bytes == 0) return;
#ifndef MPI_STUBS
  pending_.assign(1, {MPI_REQUEST_NULL, -1});
  MPI_Ialltoall(out, floats(bytes), MPI_FLOAT, in, floats(bytes), MPI_FLOAT, world_, &pending_[0].request);
  wait_for(pending_, bytes * static_cast<std::size_t>(ranks_), seconds_, {round.what, round.layer});
#endif
}

void AwareLink::wait(void* stream) {
  gpu_.mark(0, stream);
  gpu_.wait(0);
}

void AwareLink::exchange(const std::vector<Message>& sends, const std::vector<Message>& receives, const Round& round) {
  wait(round.stream);
  MpiLink::exchange(sends, receives, round);
}

void AwareLink::all_gather(char* slots, std::size_t bytes, const Round& round) {
  wait(round.stream);
  MpiLink::all_gather(slots, bytes, round);
}

void AwareLink::all_to_all(char* out, char* in, std::size_t bytes, const Round& round) {
  wait(round.stream);
  MpiLink::all_to_all(out, in, bytes, round);
}

}  // namespace clebsch_lammps
