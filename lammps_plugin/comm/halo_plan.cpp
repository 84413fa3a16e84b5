// SPDX-License-Identifier: GPL-2.0-only
#include "comm/halo_plan.h"

#include <stdexcept>
#include <string>

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

}  // namespace

HaloPlan make_halo_plan(MPI_Comm world, const std::vector<AtomHome>& homes, const std::vector<int>& row_of_atom,
                        int owned) {
  int ranks = 1;
  MPI_Comm_size(world, &ranks);
  HaloPlan plan;
  plan.owned = owned;
  plan.remote = static_cast<int>(homes.size());

  // What is wanted of each rank, and in turn what each rank wants of this one. (LAMMPS's own mpi.h, for builds without
  // MPI, takes no const pointers.)
  std::vector<int> wanted(ranks, 0), asked(ranks, 0), indices(homes.size());
  for (std::size_t k = 0; k < homes.size(); ++k) {
    ++wanted[homes[k].rank];
    indices[k] = homes[k].index;
  }
  MPI_Alltoall(wanted.data(), 1, MPI_INT, asked.data(), 1, MPI_INT, world);
  std::vector<int> wanted_starts, asked_starts;
  plan.from = peers_of(wanted, wanted_starts);
  plan.to = peers_of(asked, asked_starts);
  plan.rows.resize(plan.to.empty() ? 0 : plan.to.back().first + plan.to.back().count);
  MPI_Alltoallv(indices.data(), wanted.data(), wanted_starts.data(), MPI_INT, plan.rows.data(), asked.data(),
                asked_starts.data(), MPI_INT, world);

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
