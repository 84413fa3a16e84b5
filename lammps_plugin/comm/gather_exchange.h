// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Features of all ranks to all ranks: one collective call of fixed size, a round and direction, instead of messages
// between neighbours. It is the 1.5D algorithm of distributed sparse-dense products with full replication (c = p) and
// replication reuse: the rows that the forward pass has gathered are the ones that the backward pass needs, so nothing
// is gathered twice (V. Bharadwaj, A. Buluc, J. Demmel, IPDPS 2022). No LAMMPS.
#include <vector>

#include "comm/gather_plan.h"
#include "comm/halo_exchange.h"

namespace clebsch_lammps {

class GatherExchange : public clebsch::FeatureExchange {
 public:
  GatherExchange(clebsch::RowMemory& memory, Link& link)
      : memory_(memory), link_(link), slots_(memory), outgoing_(memory), sources_(memory), sums_(memory) {}

  /// Makes the room for rounds of these widths: rounds allocate nothing. All ranks take part in them, also those
  /// without rows.
  void set_plan(const GatherPlan& plan, const std::vector<std::int64_t>& widths, clebsch::Dtype dtype);

  /// All-gather of own rows, then remote rows are taken out of what arrived.
  void forward(const clebsch::FeatureRows& rows) override;
  /// A reduce-scatter, made of an all-to-all, after which each rank sums what belongs to its own rows. It sends as many
  /// bytes as one of MPI's or NCCL's, but adds in the order of ranks, which these do not promise. The sums have the
  /// bits of HaloExchange's.
  void reverse(const clebsch::FeatureRows& rows) override;

  /// One slot to each other rank in every round and direction: the least that a rank sends, whatever way the collective
  /// calls take.
  Traffic traffic(const std::vector<std::int64_t>& widths, clebsch::Dtype dtype) const;
  double memory_usage() const {
    return static_cast<double>(slots_.size() + outgoing_.size() + sources_.size() + sums_.size());
  }

 private:
  clebsch::RowMemory& memory_;
  Link& link_;
  GatherPlan plan_;
  RowArray slots_, outgoing_;  ///< (ranks, padded) rows
  RowArray sources_;
  RowSums sums_;
};

}  // namespace clebsch_lammps
