// SPDX-License-Identifier: GPL-2.0-only
#include "comm/row_sums.h"

namespace clebsch_lammps {

void RowSums::set(int owned, const std::vector<int>& rows, const std::vector<int>& places) {
  // Counting sort by own row, which keeps the order within a row; then rows without anything to add are left out.
  std::vector<int> ends(static_cast<std::size_t>(owned) + 1, 0);
  for (const int row : rows) ++ends[static_cast<std::size_t>(row) + 1];
  std::vector<int> targets, starts(1, 0);
  for (int row = 0; row < owned; ++row) {
    const int count = ends[static_cast<std::size_t>(row) + 1];
    if (count > 0) {
      targets.push_back(row);
      starts.push_back(starts.back() + count);
    }
    ends[static_cast<std::size_t>(row) + 1] += ends[static_cast<std::size_t>(row)];
  }
  std::vector<int> sorted(rows.size());
  for (std::size_t k = 0; k < rows.size(); ++k)
    sorted[static_cast<std::size_t>(ends[static_cast<std::size_t>(rows[k])]++)] = places[k];
  count_ = static_cast<int>(targets.size());
  rows_.fill(targets);
  starts_.fill(starts);
  places_.fill(sorted);
}

void RowSums::add(const void* received, void* target, std::int64_t width, clebsch::Dtype dtype, void* stream) const {
  if (count_ == 0) return;
  clebsch::RowSum sum;
  sum.target = target;
  sum.received = received;
  sum.rows = rows_.numbers();
  sum.starts = starts_.numbers();
  sum.places = places_.numbers();
  sum.count = count_;
  sum.width = width;
  sum.dtype = dtype;
  memory_.add(sum, stream);
}

}  // namespace clebsch_lammps
