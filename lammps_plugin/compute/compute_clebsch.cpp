// SPDX-License-Identifier: GPL-2.0-only
#include "compute/compute_clebsch.h"

#include <mpi.h>

#include <algorithm>

#include "atom.h"
#include "comm.h"
#include "compute/compute_arguments.h"
#include "error.h"
#include "group.h"
#include "pair/pair_clebsch.h"
#include "update.h"

using namespace LAMMPS_NS;

ComputeClebsch::ComputeClebsch(LAMMPS* lmp, int narg, char** arg) : Compute(lmp, narg, arg) {
  const auto arguments = clebsch_lammps::parse_compute_arguments(lmp, narg, arg);
  name_ = arguments.name;
  length_ = name_ == "timing" ? clebsch_lammps::StepTimes::kParts : arguments.length;
  local_.resize(length_);
  total_.resize(length_);
  timeflag = 1;
  if (length_ == 1) {
    scalar_flag = 1;
    extscalar = 1;
  } else {
    vector_flag = 1;
    size_vector = length_;
    extvector = name_ == "timing" ? 0 : 1;
    vector = total_.data();
  }
}

ComputeClebsch::~ComputeClebsch() { vector = nullptr; }

void ComputeClebsch::init() {
  auto* pair = clebsch_lammps::find_pair_clebsch(lmp, style);
  if (name_ == "timing") {
    pair->request_times();
    return;
  }
  per_atom_ = pair->request_output(name_) == clebsch::OutputKind::atom;
  extscalar = extvector = per_atom_;
  if (per_atom_) return;
  if (igroup != 0)
    error->all(FLERR, "Compute {}: output {} is of the whole system: expected group all, got {}", style, name_,
               group->names[igroup]);
  if (!pair->has_whole_graph())
    error->all(FLERR,
               "Compute {}: output {} is of the whole system, of which a rank with ghosts sees more than its part: "
               "expected one rank and comm auto, got {} rank(s) with ghosts. Values of ranks do not add up; have the "
               "model give the output per atom, which is summed over the atoms on any number of ranks",
               style, name_, comm->nprocs);
}

void ComputeClebsch::evaluate() {
  if (name_ == "timing") {
    const double* seconds = clebsch_lammps::find_evaluated(lmp, style)->times().seconds();
    std::copy(seconds, seconds + length_, local_.begin());
    MPI_Allreduce(local_.data(), total_.data(), length_, MPI_DOUBLE, MPI_MAX, world);
    return;
  }
  auto* pair = clebsch_lammps::find_with_output(lmp, style, name_);
  std::fill(local_.begin(), local_.end(), 0.0);
  if (const auto* output = pair->output(name_)) {
    clebsch_lammps::check_length(lmp, style, *output, length_);
    for (int node = 0; node < (per_atom_ ? pair->owned_nodes() : 1); ++node) {
      if (per_atom_ && !(atom->mask[pair->node_atoms()[node]] & groupbit)) continue;
      for (int c = 0; c < length_; ++c) local_[c] += output->values[static_cast<std::size_t>(node) * length_ + c];
    }
  }
  MPI_Allreduce(local_.data(), total_.data(), length_, MPI_DOUBLE, MPI_SUM, world);
}

double ComputeClebsch::compute_scalar() {
  invoked_scalar = update->ntimestep;
  evaluate();
  scalar = total_[0];
  return scalar;
}

void ComputeClebsch::compute_vector() {
  invoked_vector = update->ntimestep;
  evaluate();
}
