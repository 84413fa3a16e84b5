// SPDX-License-Identifier: GPL-2.0-only
#include "compute/compute_clebsch_committee.h"

#include <mpi.h>

#include <algorithm>
#include <cmath>

#include "atom.h"
#include "comm/stop_rank.h"
#include "compute/compute_arguments.h"
#include "error.h"
#include "memory.h"
#include "neighbor.h"
#include "pair/pair_clebsch.h"
#include "update.h"

using namespace LAMMPS_NS;

namespace {

/// LAMMPS's arrays and a list are on the host for members meanwhile.
class Turn {
 public:
  Turn(PairClebsch& pair, NeighList* asked) : pair_(pair) { pair_.begin_members(asked); }
  ~Turn() { pair_.end_members(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  PairClebsch& pair_;
};

}  // namespace

ComputeClebschCommittee::ComputeClebschCommittee(LAMMPS* lmp, int narg, char** arg) : Compute(lmp, narg, arg) {
  if (narg < 4) error->all(FLERR, "Compute {}: expected one model file or more, got none", style);
  for (int k = 3; k < narg; ++k) members_.emplace_back().file = arg[k];
  peratom_flag = 1;
  size_peratom_cols = 0;
  vector_flag = 1;
  size_vector = 3;
  extvector = 0;
  timeflag = 1;
  vector = new double[3]();
}

ComputeClebschCommittee::~ComputeClebschCommittee() {
  memory->destroy(vector_atom);
  delete[] vector;
}

void ComputeClebschCommittee::init() {
  evaluated_ = -1;
  auto* pair = clebsch_lammps::find_pair_clebsch(lmp, style);
  // Another model of the pair style may have other types, dtype or device.
  if (pair->model() != first_)
    for (auto& member : members_) member.model.reset();
  for (auto& member : members_) pair->prepare_member(member);
  first_ = pair->model();
  list_ = nullptr;
  if (const int flags = pair->member_list_flags()) neighbor->add_request(this, flags);
}

void ComputeClebschCommittee::evaluate() {
  if (evaluated_ == update->ntimestep) return;
  auto* pair = clebsch_lammps::find_evaluated(lmp, style);
  if (pair->last_step() != update->ntimestep)
    error->all(FLERR,
               "Compute {}: expected pair style clebsch evaluated at step {}, got step {}; use the compute "
               "during a run (`run 0` suffices)",
               style, update->ntimestep, pair->last_step());
  if (pair->model() != first_)
    error->all(FLERR, "Compute {}: expected a run since pair_coeff was given, got none; `run 0` suffices", style);
  const std::size_t atoms = static_cast<std::size_t>(atom->nlocal);
  if (atom->nmax > nmax_) {
    nmax_ = atom->nmax;
    memory->destroy(vector_atom);
    memory->create(vector_atom, nmax_, "clebsch/committee:vector");
  }
  // Differences to the first model's forces: what models agree about, which may be large, does not round.
  const Turn turn(*pair, list_);
  std::vector<double> first;
  pair->own_forces(first);
  sums_.assign(3 * atoms, 0.0);
  squares_.assign(atoms, 0.0);
  for (auto& member : members_) {
    pair->member_forces(member, forces_);
    for (std::size_t i = 0; i < atoms; ++i) {
      for (std::size_t c = 3 * i; c < 3 * i + 3; ++c) {
        const double apart = forces_[c] - first[c];
        sums_[c] += apart;
        squares_[i] += apart * apart;
      }
      if (!std::isfinite(squares_[i]))
        clebsch_lammps::stop_rank(lmp, fmt::format("Compute {}: the force of {} on atom {} is not a number", style,
                                                   member.file, atom->tag[i]));
    }
  }
  const double count = static_cast<double>(members_.size() + 1);
  double most = 0, least = HUGE_VAL, sum[2] = {0, 0};
  for (std::size_t i = 0; i < atoms; ++i) {
    const double* d = &sums_[3 * i];
    const double mean = (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]) / count;
    // Atoms of other styles, of types that are NULL, are not what models may differ about.
    const bool counts = (atom->mask[i] & groupbit) && members_.front().model_type[atom->type[i]] >= 0;
    vector_atom[i] = counts ? std::sqrt(std::max(squares_[i] - mean, 0.0) / count) : 0.0;
    if (!counts) continue;
    most = std::max(most, vector_atom[i]);
    least = std::min(least, vector_atom[i]);
    sum[0] += vector_atom[i];
    sum[1] += 1;
  }
  double all[2] = {0, 0};
  MPI_Allreduce(&most, &vector[0], 1, MPI_DOUBLE, MPI_MAX, world);
  MPI_Allreduce(&least, &vector[1], 1, MPI_DOUBLE, MPI_MIN, world);
  MPI_Allreduce(sum, all, 2, MPI_DOUBLE, MPI_SUM, world);
  if (all[1] == 0) vector[1] = 0;  // no atom counts
  vector[2] = all[1] > 0 ? all[0] / all[1] : 0;
  evaluated_ = update->ntimestep;
}

void ComputeClebschCommittee::compute_vector() {
  invoked_vector = update->ntimestep;
  evaluate();
}

void ComputeClebschCommittee::compute_peratom() {
  invoked_peratom = update->ntimestep;
  evaluate();
}

double ComputeClebschCommittee::memory_usage() {
  double bytes =
      static_cast<double>((sums_.capacity() + squares_.capacity() + forces_.capacity() + nmax_) * sizeof(double));
  for (const auto& member : members_)
    bytes += (member.source ? member.source->memory_usage() : 0.0) + (member.halo ? member.halo->memory_usage() : 0.0);
  return bytes;
}
