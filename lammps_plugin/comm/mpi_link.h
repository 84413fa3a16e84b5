// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Features through MPI, from wherever MPI can read them. MPI alone, no LAMMPS.
#include <mpi.h>

#include "comm/deadline.h"
#include "comm/link.h"
#include "model/gpu_memory.h"

namespace clebsch_lammps {

/// From the host's memory; streams are not looked at.
class MpiLink : public Link {
 public:
  /// Bytes of one message: MPI counts are int.
  static constexpr std::size_t kPiece = std::size_t{1} << 30;

  /// `world` must carry no other messages while features are exchanged. A call that takes more than `seconds` (0: no
  /// limit) throws std::runtime_error, which names the ranks that are missing; this object is of no use afterwards.
  explicit MpiLink(MPI_Comm world, double seconds = 0);
  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives, const Round& round) override;
  void all_gather(char* slots, std::size_t bytes, const Round& round) override;
  void all_to_all(char* out, char* in, std::size_t bytes, const Round& round) override;
  long long messages(std::size_t bytes) const override { return (bytes + kPiece - 1) / kPiece; }

 private:
  /// Begins to send or to receive (`call`: MPI_Isend or MPI_Irecv) all messages, in pieces. Their bytes.
  template <typename Call>
  std::size_t start(const std::vector<Message>& messages, const Call& call);

  MPI_Comm world_;
  int me_ = 0, ranks_ = 1;
  double seconds_;
  std::vector<PendingMessage> pending_;
};

/// From a GPU's memory, for an MPI that can read it (LAMMPS calls that GPU-aware). The host waits for the stream first.
class AwareLink : public MpiLink {
 public:
  AwareLink(MPI_Comm world, clebsch::GpuMemory& gpu, double seconds = 0) : MpiLink(world, seconds), gpu_(gpu) {}
  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives, const Round& round) override;
  void all_gather(char* slots, std::size_t bytes, const Round& round) override;
  void all_to_all(char* out, char* in, std::size_t bytes, const Round& round) override;

 private:
  void wait(void* stream);
  clebsch::GpuMemory& gpu_;
};

}  // namespace clebsch_lammps
