// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Features of GPUs through pinned memory of the host and MPI: where NCCL cannot serve, as with several ranks on a GPU.
// No LAMMPS.
#include <mpi.h>

#include "comm/mpi_link.h"

namespace clebsch_lammps {

/// A round: copies to the host, MPI, copies back, in pieces, so that the first piece is on its way to the other rank
/// while the next ones are copied. The host waits for the pieces that it sends and receives, not for the copies back.
class PinnedLink : public Link {
 public:
  /// Bytes of one message and copy, the same on all ranks. `world` and `seconds` as for MpiLink.
  static constexpr std::size_t kPiece = std::size_t{4} << 20;

  PinnedLink(MPI_Comm world, clebsch::GpuMemory& gpu, double seconds = 0);
  ~PinnedLink() override;
  PinnedLink(const PinnedLink&) = delete;
  PinnedLink& operator=(const PinnedLink&) = delete;

  void reserve(std::size_t sent, std::size_t received) override;
  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives, const Round& round) override;
  void all_gather(char* slots, std::size_t bytes, const Round& round) override;
  void all_to_all(char* out, char* in, std::size_t bytes, const Round& round) override;
  long long messages(std::size_t bytes) const override { return (bytes + kPiece - 1) / kPiece; }
  double memory_usage() const override { return static_cast<double>(sent_.bytes + received_.bytes); }

 private:
  struct Pinned {
    char* data = nullptr;
    std::size_t bytes = 0;
  };
  /// A part of a message and its place in the pinned memory.
  struct Piece {
    int rank;
    char *device, *host;
    std::size_t bytes;
  };
  void grow(Pinned& memory, std::size_t bytes);
  /// Cuts messages into pieces that lie one after the other in the pinned memory.
  static void cut(const std::vector<Message>& messages, const Pinned& memory, std::vector<Piece>& pieces);

  MPI_Comm world_;
  MpiLink mpi_;
  clebsch::GpuMemory& gpu_;
  int me_ = 0, ranks_ = 1;
  Pinned sent_, received_;
  std::vector<Piece> out_, in_;
  double seconds_;
  std::vector<MPI_Request> receives_;
  std::vector<PendingMessage> sends_, one_;
};

}  // namespace clebsch_lammps
