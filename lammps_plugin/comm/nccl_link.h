// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Features from GPU to GPU by NCCL, on the model's stream: the host waits for nothing. No LAMMPS.
#include <mpi.h>

#include <memory>
#include <string>

#include "comm/link.h"
#include "model/gpu_memory.h"
#include "model/nccl.h"

namespace clebsch_lammps {

class NcclLink : public Link {
 public:
  /// Collective over `world`, whose ranks have a GPU each: its memory `gpu`, its number `device` among the visible
  /// ones. Work that has not ended after `seconds` (0: no limit) ends the communicator. At last neighbours by rank
  /// exchange a message, so that connections that cannot be made show here. When it fails on one rank it is null on
  /// all, and `problem` says why, the same on all.
  static std::unique_ptr<NcclLink> connect(MPI_Comm world, clebsch::GpuMemory& gpu, int device, double seconds,
                                           std::string& problem);

  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives, const Round& round) override;
  void all_gather(char* slots, std::size_t bytes, const Round& round) override;
  /// By messages: a reduce-scatter of NCCL's adds in an order that it does not promise.
  void all_to_all(char* out, char* in, std::size_t bytes, const Round& round) override;
  long long messages(std::size_t bytes) const override { return bytes > 0 ? 1 : 0; }
  void check() const override { nccl_->check(); }

 private:
  NcclLink(std::unique_ptr<clebsch::Nccl> nccl, int me, int ranks) : nccl_(std::move(nccl)), me_(me), ranks_(ranks) {}

  std::unique_ptr<clebsch::Nccl> nccl_;
  int me_, ranks_;
};

}  // namespace clebsch_lammps
