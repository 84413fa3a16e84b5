// SPDX-License-Identifier: GPL-2.0-only
#include "comm/halo.h"

#include <algorithm>
#include <exception>

#include "atom.h"
#include "comm.h"
#include "comm/deadline.h"
#include "error.h"
#include "neigh_list.h"
#include "utils.h"

namespace clebsch_lammps {
namespace {

/// All ranks stop together when the environment's deadline is none.
double timeout_of(LAMMPS_NS::LAMMPS* lmp) {
  try {
    return comm_timeout(lmp->world);
  } catch (const std::exception& failure) {
    lmp->error->all(FLERR, "Pair style clebsch: {}", failure.what());
  }
  return 0;
}

MPI_Comm duplicate(MPI_Comm world) {
  MPI_Comm copy;
  MPI_Comm_dup(world, &copy);
  return copy;
}

}  // namespace

Halo::Halo(LAMMPS_NS::LAMMPS* lmp, clebsch::Model& model, const std::vector<int>& model_type)
    : Pointers(lmp),
      model_type_(model_type),
      widths_(model.metadata().layers > 1 ? model.exchange_widths() : std::vector<std::int64_t>()),
      dtype_(model.dtype()),
      seconds_(timeout_of(lmp)),
      world_(duplicate(lmp->world)),
      exchange_(world_, lmp->comm->nthreads, seconds_) {}

Halo::~Halo() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&world_);
}

bool Halo::of_model(int i) const { return model_type_[atom->type[i]] >= 0; }

bool Halo::needs_plan(bool new_list) {
  const int atoms = atom->nlocal + atom->nghost;
  int mine = new_list || atoms != static_cast<int>(in_model_.size());
  for (int i = 0; i < atoms && !mine; ++i) mine = of_model(i) != (in_model_[i] != 0);
  return largest(mine) != 0;
}

int Halo::largest(int mine) const {
  return static_cast<int>(
      reduce_over_ranks({static_cast<double>(mine)}, MPI_MAX, world_, seconds_, "the start of a step")[0]);
}

void Halo::make_plan(const LAMMPS_NS::NeighList* list, Communication& communication, LAMMPS_NS::Pair* pair) {
  const int local = atom->nlocal, atoms = local + atom->nghost;
  in_model_.resize(atoms);
  for (int i = 0; i < atoms; ++i) in_model_[i] = of_model(i);

  // Rows as the graph will have them: the list's order.
  std::vector<char> needed(atoms, 0);
  std::vector<int> row_of_atom(local, -1);
  int owned = 0;
  for (int k = 0; k < list->inum; ++k) {
    const int i = list->ilist[k];
    if (!in_model_[i]) continue;
    row_of_atom[i] = owned++;
    for (int n = 0; n < list->numneigh[i]; ++n) needed[list->firstneigh[i][n] & NEIGHMASK] = 1;
  }
  for (int i = local; i < atoms; ++i) needed[i] = needed[i] && in_model_[i];

  make_plan(needed, communication.find_homes(pair), row_of_atom, owned);
}

void Halo::make_plan(const std::vector<char>& needed, const std::vector<AtomHome>& ghosts,
                     const std::vector<int>& row_of_atom, int owned) {
  nodes_ = find_halo_nodes(comm->me, atom->nlocal, ghosts, needed);
  exchange_.set_plan(make_halo_plan(world_, nodes_.homes, row_of_atom, owned, seconds_));
}

void Halo::tell(bool returns_forces) {
  if (told_) return;
  told_ = true;
  const HaloPlan& plan = exchange_.plan();
  const auto traffic = exchange_.traffic(widths_, dtype_);
  std::vector<double> mine = {static_cast<double>(plan.owned), static_cast<double>(plan.remote),
                    static_cast<double>(plan.from.size()), static_cast<double>(traffic.messages),
                    static_cast<double>(traffic.bytes)};
  if (returns_forces) {
    mine[3] += static_cast<double>(plan.from.size());
    mine[4] += static_cast<double>(plan.remote) * 3 * sizeof(double);
  }
  const auto sum = reduce_over_ranks(mine, MPI_SUM, world_, seconds_, "counts of messages");
  const auto most = reduce_over_ranks(mine, MPI_MAX, world_, seconds_, "counts of messages");
  if (comm->me != 0) return;
  LAMMPS_NS::utils::logmesg(
      lmp,
      "Pair style clebsch: comm halo through MPI on the host: {:.0f} rows, {:.0f} remote nodes (largest rank: {:.0f}, "
      "{:.0f} from {:.0f} ranks); all ranks send {:.0f} messages and {:.0f} bytes a step (largest: {:.0f}, {:.0f})\n",
      sum[0], sum[1], most[0], most[1], most[2], sum[3], sum[4], most[3], most[4]);
}

double Halo::memory_usage() const {
  return exchange_.memory_usage() +
         static_cast<double>(nodes_.node_atom.capacity() * sizeof(int) +
                             nodes_.representatives.capacity() * sizeof(int) +
                             nodes_.homes.capacity() * sizeof(AtomHome) + in_model_.capacity());
}

}  // namespace clebsch_lammps
