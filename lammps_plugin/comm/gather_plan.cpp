// SPDX-License-Identifier: GPL-2.0-only
#include "comm/gather_plan.h"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "comm/deadline.h"

namespace clebsch_lammps {

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
  std::vector<int> sent(plan.ranks, 0), sent_starts(plan.ranks, 0), got(plan.ranks, 0), got_starts(plan.ranks, 0);
  for (const HaloPeer& peer : halo.to) {
    sent[peer.rank] = peer.count;
    sent_starts[peer.rank] = peer.first;
  }
  for (const HaloPeer& peer : halo.from) {
    got[peer.rank] = peer.count;
    got_starts[peer.rank] = peer.first;
  }
  plan.rows = halo.rows;
  plan.sources.resize(static_cast<std::size_t>(halo.remote));
#ifndef MPI_STUBS
  std::vector<PendingMessage> pending(1, {MPI_REQUEST_NULL, -1});
  MPI_Ialltoallv(plan.rows.data(), sent.data(), sent_starts.data(), MPI_INT, plan.sources.data(), got.data(),
                 got_starts.data(), MPI_INT, world, &pending[0].request);
  wait_for(pending, 0, seconds, "rows of atoms to gather");
#endif
  for (const HaloPeer& peer : halo.from)
    for (int k = peer.first; k < peer.first + peer.count; ++k) plan.sources[k] += peer.rank * plan.padded;
  plan.places.resize(plan.rows.size());
  for (const HaloPeer& peer : halo.to)
    for (int k = peer.first; k < peer.first + peer.count; ++k) plan.places[k] = peer.rank * plan.padded + plan.rows[k];
  return plan;
}

}  // namespace clebsch_lammps
