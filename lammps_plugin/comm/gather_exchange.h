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
  /// The reduce-scatter, as an all-to-all and a sum of one's own: of as many bytes, and in the order of ranks, which
  /// neither MPI nor NCCL promises for theirs. The sums are those of HaloExchange, to the bit.
  void reverse(const clebsch::FeatureRows& rows) override;

  /// A slot to each other rank, a round and direction: what leaves a rank at least, however the calls are made.
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
