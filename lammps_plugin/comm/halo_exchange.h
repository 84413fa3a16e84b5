// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Features exchanged between neighbours: one message to and from each rank of the plan, a round and direction. No
// LAMMPS, and no matter where the features are or who carries them.
#include <vector>

#include "comm/halo_plan.h"
#include "comm/link.h"
#include "comm/row_array.h"
#include "comm/row_sums.h"
#include "model/feature_exchange.h"

namespace clebsch_lammps {

/// What a rank sends in a step, forward and back.
struct Traffic {
  long long messages = 0, bytes = 0;
};

class HaloExchange : public clebsch::FeatureExchange {
 public:
  /// `memory`: where the features are; `link` carries them from there.
  HaloExchange(clebsch::RowMemory& memory, Link& link)
      : memory_(memory), link_(link), buffer_(memory), rows_(memory), sums_(memory) {}

  /// Makes the room for rounds of these widths (Model::exchange_widths()): rounds allocate nothing.
  void set_plan(const HaloPlan& plan, const std::vector<std::int64_t>& widths, clebsch::Dtype dtype);

  /// Rows arrive in place; own rows are packed, since those of a rank are scattered.
  void forward(const clebsch::FeatureRows& rows) override;
  /// Copies' rows leave from where they are; arriving rows are added rank by rank in ascending order, whichever comes
  /// first, so that the bits are the same every time, on the host and on a GPU.
  void reverse(const clebsch::FeatureRows& rows) override;

  Traffic traffic(const std::vector<std::int64_t>& widths, clebsch::Dtype dtype) const;
  double memory_usage() const { return static_cast<double>(buffer_.size() + rows_.size() + sums_.size()); }

 private:
  /// Messages of the peers' rows, which begin at `first` and lie side by side.
  static void fill(std::vector<Message>& messages, const std::vector<HaloPeer>& peers, char* first, std::size_t size);

  clebsch::RowMemory& memory_;
  Link& link_;
  HaloPlan plan_;
  RowArray buffer_;  ///< own rows as others have them, one after the other
  RowArray rows_;    ///< the plan's
  RowSums sums_;
  std::vector<Message> sends_, receives_;
};

/// Bytes of a row. Throws std::runtime_error unless the rows are as many as the plan's nodes (a GPU's arrays may have
/// room for more).
std::size_t checked_row_bytes(const clebsch::FeatureRows& rows, int owned, int remote);
std::size_t row_bytes(std::int64_t width, clebsch::Dtype dtype);

}  // namespace clebsch_lammps
