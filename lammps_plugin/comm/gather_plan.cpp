// SPDX-License-Identifier: GPL-2.0-only
#include "comm/gather_plan.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/deadline.h"

namespace clebsch_lammps {
namespace {

/// Rows that ranks tell each other.
struct Told {
  explicit Told(std::size_t ranks) : sent(ranks, 0), sent_starts(ranks, 0), got(ranks, 0), got_starts(ranks, 0) {}
  std::vector<int> sent, sent_starts, got, got_starts;  ///< by rank
  std::vector<int> rows, sources;                       ///< sent, and got
};

void tell_rows([[maybe_unused]] MPI_Comm world, [[maybe_unused]] double seconds, [[maybe_unused]] Told& told) {
#ifndef MPI_STUBS
  std::vector<PendingMessage> pending(1, {MPI_REQUEST_NULL, -1});
  MPI_Ialltoallv(told.rows.data(), told.sent.data(), told.sent_starts.data(), MPI_INT, told.sources.data(),
                 told.got.data(), told.got_starts.data(), MPI_INT, world, &pending[0].request);
  wait_for(pending, 0, seconds, "rows of atoms to gather");
#endif
}

}  // namespace

GatherPlan make_gather_plan(MPI_Comm world, const HaloPlan& halo, double seconds) {
  GatherPlan plan;
  MPI_Comm_rank(world, &plan.me);
  MPI_Comm_size(world, &plan.ranks);
  plan.owned = halo.owned;
  plan.remote = halo.remote;
  double most = plan.owned;
  reduce_over_ranks(&most, 1, MPI_MAX, world, seconds, "numbers of rows");
  plan.padded = static_cast<int>(most);
  if (std::int64_t{plan.padded} * plan.ranks > std::numeric_limits<int>::max())  // the same on all ranks
    throw std::runtime_error("comm gather: expected fewer than 2^31 rows on all ranks, got " +
                             std::to_string(plan.padded) + " on the largest of " + std::to_string(plan.ranks) +
                             "; use comm halo");

  // Owners know the rows; who has copies of them asked by local index.
  auto told = std::make_unique<Told>(static_cast<std::size_t>(plan.ranks));
  for (const HaloPeer& peer : halo.to) {
    told->sent[peer.rank] = peer.count;
    told->sent_starts[peer.rank] = peer.first;
  }
  for (const HaloPeer& peer : halo.from) {
    told->got[peer.rank] = peer.count;
    told->got_starts[peer.rank] = peer.first;
  }
  told->rows = halo.rows;
  told->sources.resize(static_cast<std::size_t>(halo.remote));
  try {
    tell_rows(world, seconds, *told);
  } catch (...) {
    static_cast<void>(told.release());  // MPI may still write there when a rank comes late
    throw;
  }
  plan.rows = std::move(told->rows);
  plan.sources = std::move(told->sources);
  for (const HaloPeer& peer : halo.from)
    for (int k = peer.first; k < peer.first + peer.count; ++k) plan.sources[k] += peer.rank * plan.padded;
  plan.places.resize(plan.rows.size());
  for (const HaloPeer& peer : halo.to)
    for (int k = peer.first; k < peer.first + peer.count; ++k) plan.places[k] = peer.rank * plan.padded + plan.rows[k];
  return plan;
}

}  // namespace clebsch_lammps
