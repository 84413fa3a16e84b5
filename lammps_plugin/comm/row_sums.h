// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// Received rows added to own rows in a fixed order.
#include <vector>

#include "comm/row_array.h"

namespace clebsch_lammps {

class RowSums {
 public:
  explicit RowSums(clebsch::RowMemory& memory) : memory_(memory), rows_(memory), starts_(memory), places_(memory) {}

  /// Received row places[k] belongs to own row rows[k], below `owned`. Of the same own row, a smaller k is added first.
  void set(int owned, const std::vector<int>& rows, const std::vector<int>& places);
  void add(const void* received, void* target, std::int64_t width, clebsch::Dtype dtype, void* stream) const;
  std::size_t size() const { return rows_.size() + starts_.size() + places_.size(); }

 private:
  clebsch::RowMemory& memory_;
  RowArray rows_, starts_, places_;
  int count_ = 0;
};

}  // namespace clebsch_lammps
