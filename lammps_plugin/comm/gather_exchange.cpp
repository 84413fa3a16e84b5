// SPDX-License-Identifier: GPL-2.0-only
#include "comm/gather_exchange.h"

#include <algorithm>

namespace clebsch_lammps {

void GatherExchange::set_plan(const GatherPlan& plan, const std::vector<std::int64_t>& widths, clebsch::Dtype dtype) {
  plan_ = plan;
  sources_.fill(plan_.sources);
  sums_.set(plan_.owned, plan_.rows, plan_.places);
  std::int64_t widest = 0;
  for (const std::int64_t width : widths) widest = std::max(widest, width);
  const std::size_t bytes =
      static_cast<std::size_t>(plan_.ranks) * static_cast<std::size_t>(plan_.padded) * row_bytes(widest, dtype);
  slots_.reserve(bytes);
  outgoing_.reserve(bytes);
  link_.reserve(bytes, bytes);
}

void GatherExchange::forward(const clebsch::FeatureRows& rows) {
  const std::size_t size = checked_row_bytes(rows, plan_.owned, plan_.remote);
  const std::size_t slot = static_cast<std::size_t>(plan_.padded) * size;
  char* const data = static_cast<char*>(rows.data);
  clebsch::RowCopy copy;
  copy.row_bytes = static_cast<std::int64_t>(size);
  copy.from = data;
  copy.to = slots_.bytes() + static_cast<std::size_t>(plan_.me) * slot;
  copy.count = plan_.owned;
  if (copy.count > 0) memory_.copy(copy, rows.stream);
  link_.all_gather(slots_.bytes(), slot, {rows.stream, "features", rows.round});
  copy.from = slots_.bytes();
  copy.from_rows = sources_.numbers();
  copy.to = data + static_cast<std::size_t>(plan_.owned) * size;
  copy.count = plan_.remote;
  if (copy.count > 0) memory_.copy(copy, rows.stream);
}

void GatherExchange::reverse(const clebsch::FeatureRows& rows) {
  const std::size_t size = checked_row_bytes(rows, plan_.owned, plan_.remote);
  char* const data = static_cast<char*>(rows.data);
  // Rows of atoms that this rank has no copy of are sent as they are: nobody reads them.
  clebsch::RowCopy copy;
  copy.row_bytes = static_cast<std::int64_t>(size);
  copy.from = data + static_cast<std::size_t>(plan_.owned) * size;
  copy.to = outgoing_.bytes();
  copy.to_rows = sources_.numbers();
  copy.count = plan_.remote;
  if (copy.count > 0) memory_.copy(copy, rows.stream);
  link_.all_to_all(outgoing_.bytes(), slots_.bytes(), static_cast<std::size_t>(plan_.padded) * size,
                   {rows.stream, "gradients", rows.round});
  sums_.add(slots_.bytes(), data, rows.width, rows.dtype, rows.stream);
}

Traffic GatherExchange::traffic(const std::vector<std::int64_t>& widths, clebsch::Dtype dtype) const {
  Traffic sum;
  for (const std::int64_t width : widths) {
    const std::size_t slot = static_cast<std::size_t>(plan_.padded) * row_bytes(width, dtype);
    if (slot == 0) continue;
    sum.messages += 2 * (plan_.ranks - 1);
    sum.bytes += 2 * static_cast<long long>(slot) * (plan_.ranks - 1);
  }
  return sum;
}

}  // namespace clebsch_lammps
