// SPDX-License-Identifier: GPL-2.0-only
#include "comm/halo_exchange.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace clebsch_lammps {

std::size_t row_bytes(std::int64_t width, clebsch::Dtype dtype) {
  return static_cast<std::size_t>(width) * (dtype == clebsch::Dtype::float64 ? sizeof(double) : sizeof(float));
}

std::size_t checked_row_bytes(const clebsch::FeatureRows& rows, int owned, int remote) {
  if (rows.nodes < std::int64_t{owned} + remote)
    throw std::runtime_error("expected features of " + std::to_string(owned) + " own and " + std::to_string(remote) +
                             " remote nodes, got " + std::to_string(rows.nodes) + " nodes; please report this");
  return row_bytes(rows.width, rows.dtype);
}

void HaloExchange::set_plan(const HaloPlan& plan, const std::vector<std::int64_t>& widths, clebsch::Dtype dtype) {
  plan_ = plan;
  rows_.fill(plan_.rows);
  std::vector<int> places(plan_.rows.size());
  std::iota(places.begin(), places.end(), 0);
  sums_.set(plan_.owned, plan_.rows, places);
  std::int64_t widest = 0;
  for (const std::int64_t width : widths) widest = std::max(widest, width);
  const std::size_t size = row_bytes(widest, dtype);
  const std::size_t copies = plan_.rows.size() * size, remote = static_cast<std::size_t>(plan_.remote) * size;
  buffer_.reserve(copies);
  // Forward copies are sent and remote nodes received; back it is the other way round.
  link_.reserve(std::max(copies, remote), std::max(copies, remote));
  sends_.reserve(std::max(plan_.from.size(), plan_.to.size()));
  receives_.reserve(sends_.capacity());
}

void HaloExchange::fill(std::vector<Message>& messages, const std::vector<HaloPeer>& peers, char* first,
                        std::size_t size) {
  messages.clear();
  for (const HaloPeer& peer : peers)
    messages.push_back(
        {peer.rank, first + static_cast<std::size_t>(peer.first) * size, static_cast<std::size_t>(peer.count) * size});
}

void HaloExchange::forward(const clebsch::FeatureRows& rows) {
  const std::size_t size = checked_row_bytes(rows, plan_.owned, plan_.remote);
  char* const data = static_cast<char*>(rows.data);
  fill(receives_, plan_.from, data + static_cast<std::size_t>(plan_.owned) * size, size);
  fill(sends_, plan_.to, buffer_.bytes(), size);
  if (!plan_.rows.empty()) {
    clebsch::RowCopy pack;
    pack.from = data;
    pack.from_rows = rows_.numbers();
    pack.to = buffer_.bytes();
    pack.count = static_cast<std::int64_t>(plan_.rows.size());
    pack.row_bytes = static_cast<std::int64_t>(size);
    memory_.copy(pack, rows.stream);
  }
  link_.exchange(sends_, receives_, {rows.stream, "features", rows.round});
}

void HaloExchange::reverse(const clebsch::FeatureRows& rows) {
  const std::size_t size = checked_row_bytes(rows, plan_.owned, plan_.remote);
  char* const data = static_cast<char*>(rows.data);
  fill(receives_, plan_.to, buffer_.bytes(), size);
  fill(sends_, plan_.from, data + static_cast<std::size_t>(plan_.owned) * size, size);
  link_.exchange(sends_, receives_, {rows.stream, "gradients", rows.round});
  sums_.add(buffer_.bytes(), data, rows.width, rows.dtype, rows.stream);
}

Traffic HaloExchange::traffic(const std::vector<std::int64_t>& widths, clebsch::Dtype dtype) const {
  Traffic sum;
  for (const std::int64_t width : widths) {
    for (const auto* peers : {&plan_.to, &plan_.from}) {
      for (const HaloPeer& peer : *peers) {
        const std::size_t bytes = static_cast<std::size_t>(peer.count) * row_bytes(width, dtype);
        sum.messages += link_.messages(bytes);
        sum.bytes += static_cast<long long>(bytes);
      }
    }
  }
  return sum;
}

}  // namespace clebsch_lammps
