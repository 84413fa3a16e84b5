// SPDX-License-Identifier: GPL-2.0-only
#include "comm/halo_plan.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "comm/deadline.h"

namespace clebsch_lammps {
namespace {

/// Peers of all ranks' counts; `starts` (ranks) becomes where each begins.
std::vector<HaloPeer> peers_of(const std::vector<int>& counts, std::vector<int>& starts) {
  std::vector<HaloPeer> peers;
  starts.resize(counts.size());
  int first = 0;
  for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) {
    starts[rank] = first;
    if (counts[rank] > 0) peers.push_back({rank, first, counts[rank]});
    first += counts[rank];
  }
  return peers;
}

/// What ranks tell each other.
struct Wishes {
  std::vector<int> wanted, asked;  ///< atoms that this rank wants of each, and each of this one
  std::vector<int> wanted_starts, asked_starts;
  std::vector<int> indices;  ///< of the wanted atoms on their ranks
  std::vector<int> rows;     ///< of the asked ones here
};

/// Tells owners what is wanted of them; fills the peers of `plan` and `wishes.rows`.
void exchange_wishes(MPI_Comm world, double seconds, Wishes& wishes, HaloPlan& plan) {
#ifdef MPI_STUBS  // LAMMPS without MPI: one rank, which wants nothing of others
  static_cast<void>(world), static_cast<void>(seconds);
  plan.from = peers_of(wishes.wanted, wishes.wanted_starts);
#else
  std::vector<PendingMessage> pending(1, {MPI_REQUEST_NULL, -1});
  MPI_Ialltoall(wishes.wanted.data(), 1, MPI_INT, wishes.asked.data(), 1, MPI_INT, world, &pending[0].request);
  wait_for(pending, 0, seconds, "numbers of atoms to exchange");
  plan.from = peers_of(wishes.wanted, wishes.wanted_starts);
  plan.to = peers_of(wishes.asked, wishes.asked_starts);
  wishes.rows.resize(plan.to.empty() ? 0 : plan.to.back().first + plan.to.back().count);
  pending.assign(1, {MPI_REQUEST_NULL, -1});
  MPI_Ialltoallv(wishes.indices.data(), wishes.wanted.data(), wishes.wanted_starts.data(), MPI_INT, wishes.rows.data(),
                 wishes.asked.data(), wishes.asked_starts.data(), MPI_INT, world, &pending[0].request);
  wait_for(pending, wishes.rows.size() * sizeof(int), seconds, "a list of atoms to exchange");
#endif
}

}  // namespace

HaloPlan make_halo_plan(MPI_Comm world, const std::vector<AtomHome>& homes, const std::vector<int>& row_of_atom,
                        int owned, double seconds) {
  int ranks = 1;
  MPI_Comm_size(world, &ranks);
  HaloPlan plan;
  plan.owned = owned;
  plan.remote = static_cast<int>(homes.size());
  auto wishes = std::make_unique<Wishes>();
  wishes->wanted.resize(ranks, 0);
  wishes->asked.resize(ranks, 0);
  wishes->indices.resize(homes.size());
  for (std::size_t k = 0; k < homes.size(); ++k) {
    ++wishes->wanted[homes[k].rank];
    wishes->indices[k] = homes[k].index;
  }
  try {
    exchange_wishes(world, seconds, *wishes, plan);
  } catch (...) {
    static_cast<void>(wishes.release());  // MPI may still write there when a rank comes late
    throw;
  }
  plan.rows = std::move(wishes->rows);

  for (const HaloPeer& peer : plan.to) {
    for (int k = peer.first; k < peer.first + peer.count; ++k) {
      const int index = plan.rows[k];
      const bool known = index >= 0 && index < static_cast<int>(row_of_atom.size()) && row_of_atom[index] >= 0;
      if (!known)
        throw std::runtime_error("rank " + std::to_string(peer.rank) + " has a ghost of local atom " +
                                 std::to_string(index) +
                                 ", which is not an atom of the model here; expected ghosts to have the types of their "
                                 "owners: let LAMMPS build a new neighbor list after types have changed");
      plan.rows[k] = row_of_atom[index];
    }
  }
  return plan;
}

}  // namespace clebsch_lammps
