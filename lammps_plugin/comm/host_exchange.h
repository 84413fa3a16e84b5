// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// The exchange of features by MPI from memory of the host: one message to and from each rank of the plan, a round and
// direction. MPI alone, no LAMMPS, so that it is tested alone.
#include <mpi.h>

#include <vector>

#include "comm/deadline.h"
#include "comm/halo_plan.h"
#include "model/feature_exchange.h"

namespace clebsch_lammps {

class HostExchange : public clebsch::FeatureExchange {
 public:
  /// `world` must carry no other messages while rounds are exchanged. `threads` pack and add rows. A round that takes
  /// more than `seconds` (0: no limit) throws std::runtime_error, which names the ranks that are missing; this object is
  /// of no use afterwards.
  explicit HostExchange(MPI_Comm world, int threads = 1, double seconds = 0)
      : world_(world), threads_(threads), seconds_(seconds) {}

  void set_plan(HaloPlan plan) { plan_ = std::move(plan); }
  const HaloPlan& plan() const { return plan_; }

  /// Rows arrive in place; own rows are packed, since those of a rank are scattered.
  void forward(const clebsch::FeatureRows& rows) override;
  /// Copies' rows leave from where they are; arriving rows are added rank by rank in ascending order, whichever comes
  /// first, so that the bits are the same every time.
  void reverse(const clebsch::FeatureRows& rows) override;

  /// What this rank sends in a step of a model with these widths (Model::exchange_widths()), both ways.
  struct Traffic {
    long long messages = 0, bytes = 0;
  };
  Traffic traffic(const std::vector<std::int64_t>& widths, clebsch::Dtype dtype) const;
  double memory_usage() const { return static_cast<double>(buffer_.capacity() + plan_.rows.capacity() * sizeof(int)); }

 private:
  void send(int rank, char* from, std::size_t bytes);
  void receive(int rank, char* to, std::size_t bytes);
  void wait(const clebsch::FeatureRows& rows, const char* what);

  MPI_Comm world_;
  int threads_;
  double seconds_;
  HaloPlan plan_;
  std::vector<char> buffer_;  ///< own rows as others have them, one after the other
  std::vector<PendingMessage> pending_;
  std::size_t pending_bytes_ = 0;
};

}  // namespace clebsch_lammps
